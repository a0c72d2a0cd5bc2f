"""What being watched costs: `python -m benchmarks.shadow_overhead [--model smollm2] [--batch 32] [--steps 64]`.

Times of one side are CPU times of one thread, the worker's and the observer's of the same steps of the same run, so
that a busy machine does not change the ratio. The dual path is wall time of both sides in lockstep, half of the
threads each, against the worker alone with all of them.

Memory is weighed in runs of its own, from the first import to the end, at its most. Allowed for both paths is what the
worker alone takes, its pools once more (the pages that are held, not what was asked for) and 256 MB. Both paths are all
processes: the two sides, those that they fork from, and the one that compares.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
import timeit
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.ratios import Ratio, tell
from benchmarks.weighing import Scales, weighing

ROOT = Path(__file__).resolve().parent.parent
SAMPLED = 16  # content of each so many-th step
PROMPT = 48
ALLOWED = 256  # MB beyond the worker and its pools once more
#: Of a step, in %, and how many times an eager step both paths may take.
BARS = {"cpu": {"structural": 2.0, "sampled": 8.0}, "cuda": {"structural": 1.0, "sampled": 8.0}}
BOTH = {"cpu": 2.2, "cuda": 2.1}


def batches(arguments: argparse.Namespace, folder: Path) -> tuple[str, ...]:
    import random

    from shadow.workloads import Batch, Request, write_batches
    from shadow.workloads.requests import random_prompt

    rng = random.Random(0)
    requests = tuple(
        Request(f"r{i}", random_prompt(rng, PROMPT), arguments.steps + 8) for i in range(arguments.batch)
    )
    return write_batches([Batch("overhead", requests)], folder)


def options(arguments: argparse.Namespace) -> dict[str, object]:
    return {
        "model": arguments.model,
        "device": arguments.device,
        "page_size": 16,
        "max_batch_size": arguments.batch,
        "gpu_kv_pages": arguments.batch * (2 + (PROMPT + arguments.steps) // 16 + 1),
        "host_kv_pages": 2 * arguments.batch * (2 + (PROMPT + arguments.steps) // 16 + 1),
    }


CLOCKS = (time.process_time, time.perf_counter)


def synchronised() -> float:
    """By the clock, once the device has done what it was given."""
    import torch

    torch.cuda.synchronize()
    return time.perf_counter()


def one_side(mode: str, arguments: argparse.Namespace) -> dict[str, float]:
    """ms per step of one worker: forward, observing, handing over. Runs in a process of its own.

    Of a worker alone also the MB of its pools at the last step.
    """
    os.environ["BATCHGEN_REP_DETECTION"] = "0"
    from batchgen.attention import AttnWrapperBase
    from batchgen.engine import EngineOptions, build_worker
    from shadow import observer as observing
    from shadow.child import read_requests
    from shadow.deltas import Encoder

    worker = build_worker(EngineOptions(**options(arguments), threads=arguments.threads))  # type: ignore[arg-type]
    clock = synchronised if arguments.device == "cuda" else CLOCKS[mode == "alone"]
    spent = {"forward": 0.0, "observe": 0.0, "send": 0.0}
    pools = 0.0
    with tempfile.TemporaryDirectory() as folder:
        (path,) = batches(arguments, Path(folder))
        requests, _ = read_requests(worker, path, None)
    if mode == "alone":
        original, steps = worker._decode_forward_step, 0

        def timed(*args: Any) -> Any:
            nonlocal steps, pools
            if steps >= arguments.steps:
                pools = pool_megabytes(worker)
                raise observing.EnoughSteps
            started = clock()
            result = original(*args)
            steps += 1
            spent["forward"] += clock() - started if steps > 1 else 0.0
            return result

        worker._decode_forward_step = timed
        steps_counted = arguments.steps - 1
    else:
        observing.time = SimpleNamespace(perf_counter=clock)  # type: ignore[attr-defined]
        encoder = Encoder()

        def send(event: Any) -> None:
            started = clock()
            pickle.dumps(encoder.encode(event), pickle.HIGHEST_PROTOCOL)
            spent["send"] += clock() - started

        def ask(event: Any) -> dict[str, int]:
            send(event)
            return {}

        watcher = observing.Observer(
            worker,
            AttnWrapperBase,
            send,
            ask,
            structural=mode == "structural",
            content_every=SAMPLED if mode == "sampled" else 1,
            max_steps=arguments.steps,
        )
        steps_counted = arguments.steps
    gc.collect()
    gc.freeze()  # as in the process of a side
    with suppress(observing.EnoughSteps):
        worker.generate(requests)
    if mode != "alone":
        spent["forward"], spent["observe"] = watcher.forward_seconds, watcher.observe_seconds
    told = {name: 1000 * seconds / steps_counted for name, seconds in spent.items()}
    return {**told, "pools": pools}


def pool_megabytes(worker: Any) -> float:
    """The GPU pool whole, as it is zeroed when it is made; of the host pool the pages that are held."""
    from shadow.observe.content import caches
    from shadow.observe.pools import host_pages

    host = worker.core_engine.host_paged_kv_worker_view
    held = sum(map(len, host_pages(host).values())) * host.config.bytes_per_page
    made = sum(cache.nbytes for _, cache in caches(worker.gpu_paged_kv_cache_manager))
    return float(made + held) / 2**20


def in_a_process(
    mode: str, arguments: argparse.Namespace, threads: int, *, weighed: bool = False
) -> dict[str, float]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.shadow_overhead",
        "--one-side",
        mode,
        "--model",
        arguments.model,
    ]
    command += ["--device", arguments.device]
    command += ["--batch", str(arguments.batch), "--steps", str(arguments.steps), "--threads", str(threads)]
    command += ["--weighed"] if weighed else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def dual(arguments: argparse.Namespace) -> float:
    """Wall ms per step of both sides in lockstep with everything shown."""
    from shadow.messages import Setup
    from shadow.observation import Event, Point
    from shadow.pair import compare_sides

    times: list[float] = []

    def watch(control: Event, candidate: Event) -> None:
        if control.point is Point.DECODE:
            times.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(
            str(ROOT),
            batches(arguments, Path(folder)),
            max(1, arguments.threads // 2),
            options(arguments),
            {"BATCHGEN_REP_DETECTION": "0"},
            max_steps=arguments.steps,
        )
        tally, outcome = compare_sides(setup, setup, timeout=600, watch=watch)
    assert outcome.trouble is None and not tally.total, (outcome.trouble, tally.first)
    return 1000 * (times[-1] - times[0]) / (len(times) - 1)


def gate_nanoseconds() -> float:
    """What a gate that is off adds to one call."""
    from shadow.experiment import Gate, Pure

    class Body:
        def _legacy_read(self) -> int:
            return 1

        def read(self) -> int:
            return _GATE.run(self, "read") if _GATE.on else self._legacy_read()  # type: ignore[no-any-return]

        def plain(self) -> int:
            return self._legacy_read()

    _GATE = Gate("SHADOW_BENCH_OFF", Body, {"read": Pure()})
    body = Body()
    gated, plain = (min(timeit.repeat(call, number=200_000, repeat=7)) for call in (body.read, body.plain))
    return max(0.0, gated - plain) / 200_000 * 1e9


def report(arguments: argparse.Namespace) -> dict[str, Any]:
    alone = in_a_process("alone", arguments, arguments.threads)
    sides = {mode: in_a_process(mode, arguments, 1) for mode in ("structural", "sampled", "all")}
    weighed = in_a_process("alone", arguments, arguments.threads, weighed=True)
    with weighing() as scales:  # the first run, that also loads the model
        dual(arguments)
    both = dual(arguments)
    shares = {m: 100 * (s["observe"] + s["send"]) / s["forward"] for m, s in sides.items()}
    gate = gate_nanoseconds()
    return {
        "alone": alone,
        "sides": sides,
        "dual": both,
        "shares": shares,
        "gate ns": gate,
        # The KV section has 27 methods; a step passes fewer gates than that.
        "gate share": 27 * gate / (alone["forward"] * 1e6) * 100,
        "ratio": both / alone["forward"],
        "megabytes": {"both": scales.most, "control": weighed["most"], "pools": weighed["pools"]},
    }


def show(found: dict[str, Any], device: str) -> None:
    bars = BARS[device]
    table = Table(title="What being watched costs, of a decode step", title_justify="left")
    for column in ("", "cost", "bar"):
        table.add_column(column)
    table.add_row("off: no hook, the original callables", "0", "identity")
    table.add_row("off: 27 gates that are off", f"{found['gate share']:.4f} %", "0.1 %")
    for mode, side in found["sides"].items():
        cost = f"{found['shares'][mode]:.1f} % ({side['observe'] + side['send']:.1f} of {side['forward']:.1f} ms)"
        name = {"sampled": f"content of each {SAMPLED}th step", "all": "content of each step"}.get(mode, mode)
        table.add_row(name, cost, f"{bars[mode]:.0f} %" if mode in bars else "-")
    both, alone, memory = found["dual"], found["alone"]["forward"], found["megabytes"]
    table.add_row(
        "both paths in lockstep", f"{found['ratio']:.2f}x ({both:.0f} of {alone:.0f} ms)", f"{BOTH[device]}x"
    )
    allowed = memory["control"] + memory["pools"] + ALLOWED
    table.add_row("memory of both paths", f"{memory['both']:.0f} MB", f"{allowed:.0f} MB")
    table.caption = f"{memory['control']:.0f} MB alone, {memory['pools']:.0f} MB its pools, {ALLOWED} MB"
    Console().print(table)


def ratios(found: dict[str, Any], device: str) -> list[Ratio]:
    """Those with a bar, for the page of `make bench`."""
    memory = found["megabytes"]
    allowed = memory["control"] + memory["pools"] + ALLOWED
    step = "a decode step"
    shares = [
        Ratio(f"shadow, {mode}", found["shares"][mode], step, bar, at_least=False, unit="%")
        for mode, bar in BARS[device].items()
    ]
    return [
        Ratio("shadow, 27 gates that are off", found["gate share"], step, 0.1, at_least=False, unit="%"),
        *shares,
        Ratio("shadow, both paths", found["ratio"], step, BOTH[device], at_least=False),
        Ratio(
            "shadow, memory of both paths",
            memory["both"] / allowed,
            f"worker, its pools and {ALLOWED} MB",
            1,
            at_least=False,
            figures={"both MB": memory["both"], "allowed MB": allowed},
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shadow_overhead", description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path, help="also write all figures there")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 2)
    parser.add_argument(
        "--one-side", choices=("alone", "structural", "sampled", "all"), help=argparse.SUPPRESS
    )
    parser.add_argument("--weighed", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one_side:
        with weighing() if arguments.weighed else nullcontext(Scales()) as scales:
            told = one_side(arguments.one_side, arguments)
        print(json.dumps({**told, "most": scales.most}))
        return 0
    found = report(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    show(found, arguments.device)
    told = [tell(ratio) for ratio in ratios(found, arguments.device)]
    return int(not all(ratio.holds for ratio in told))


if __name__ == "__main__":
    sys.exit(main())
