"""How fast the kernel of shadow.device compares, against copying on the device: same tensors, same run.

``python -m benchmarks.device_compare [--json FILE]``: bytes read from both sides in a second, over the bytes that a
copy of one side onto the other reads and writes in a second. Bar: 0.8. Exit code 1 below it, 4 where there is no CUDA
device or no triton. Both are run in turns of several launches each; the best turn of each counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.ratios import Ratio, tell
from shadow.device import Ring, unavailable

BAR = 0.8
MISSING = 4
SHAPES = {
    "logits": (512, 151936),
    "heads": (16384, 32, 128),
    "page heads": (65536, 8, 64),
    "odd": (4096, 11, 777),
}
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def measured(
    name: str, shape: tuple[int, ...], dtype: str, device: torch.device, *, turns: int = 5, launches: int = 20
) -> Ratio:
    """Of tensors in which every element differs a little. The kernel only reads, but for 32 bytes a row of up to 2048
    elements; a copy reads and writes."""
    made = torch.Generator(device).manual_seed(0)
    control = torch.randn(shape, generator=made, device=device).to(DTYPES[dtype])
    candidate = (control * 1.01).to(DTYPES[dtype])
    target, ring = torch.empty_like(control), Ring(control)
    copy, compare = fastest(
        [lambda: target.copy_(control), lambda: ring.compare(control, candidate)], device, turns, launches
    )
    gigabytes = 2 * control.nbytes / 1e9
    return Ratio(
        f"device compare, {name} {' x '.join(map(str, shape))} {dtype}",
        copy / compare,
        "a copy on the device",
        BAR,
        figures={"copy GB/s": gigabytes / copy, "compare GB/s": gigabytes / compare},
    )


def fastest(
    actions: list[Callable[[], object]], device: torch.device, turns: int, launches: int
) -> list[float]:
    """Seconds of one launch of each, in its best turn; all have been launched before."""
    best = [float("inf")] * len(actions)
    for turn in range(turns + 1):
        for place, action in enumerate(actions):
            settled(device)
            start = time.perf_counter()
            for _ in range(launches):
                action()
            settled(device)
            if turn:
                best[place] = min(best[place], (time.perf_counter() - start) / launches)
    return best


def settled(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="bandwidth of the comparing kernel against a copy on the device"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="the figures, and what they were measured on"
    )
    options = parser.parse_args(arguments)
    missing = (
        "no CUDA device is here" if not torch.cuda.is_available() else unavailable(torch.device("cuda", 0))
    )
    if missing is not None:
        print(f"device_compare: nothing was measured: {missing}", file=sys.stderr)
        return MISSING
    device = torch.device("cuda", torch.cuda.current_device())
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}")
    found = [tell(measured(name, shape, dtype, device)) for dtype in DTYPES for name, shape in SHAPES.items()]
    if options.json is not None:
        options.json.write_text(report(found, device), encoding="utf-8")
    hold = sum(ratio.holds for ratio in found)
    print(f"\n{hold} of {len(found)} reach {BAR} of the rate of a copy")
    return int(hold < len(found))


def report(found: list[Ratio], device: torch.device) -> str:
    """JSON: the device, and each ratio with its bar and figures."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    told = {"device": name, "torch": torch.__version__, "ratios": [asdict(ratio) for ratio in found]}
    return json.dumps(told, indent=1) + "\n"


if __name__ == "__main__":
    sys.exit(main())
