"""`batchgen run` as users start it, on the code of any tree, on one rank or under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def run(
    requests: Path,
    output: Path,
    *options: str,
    tree: Path = ROOT,
    ranks: int = 1,
    per_node: int = 1,
    timeout: int = 240,
    **environment: str,
) -> dict[str, Any]:
    """The summary that `--json` prints; AssertionError with all that was said where it failed.

    `tree` has the engine; what it lacks comes from this repository. `per_node`: ranks that share a host pool.
    """
    launcher = [sys.executable, "-P", "-m"]
    if ranks > 1:
        launcher += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m"]
    done = subprocess.run(
        [
            *launcher,
            "batchgen",
            "run",
            str(requests),
            "-o",
            str(output),
            "--device",
            "cpu",
            "--json",
            *options,
        ],
        env={
            **os.environ,
            "PYTHONPATH": f"{tree}{os.pathsep}{ROOT}",
            "NUM_GPUS_PER_NODE": str(per_node),
            "OMP_NUM_THREADS": "1",
            **environment,
        },
        cwd=output.parent,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return summary


def results(path: Path) -> dict[str, Any]:
    """Lines of an output by custom_id, each of which is there once."""
    found: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        assert record["custom_id"] not in found
        found[record["custom_id"]] = record
    return found


def counted(summary: dict[str, Any]) -> dict[str, Any]:
    """The engine's counters, less the times."""
    return {name: count for name, count in summary["engine"].items() if not name.endswith("_seconds")}
