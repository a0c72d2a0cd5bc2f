"""`make gates`: the gated worker over everything that its methods do, compared by its own gates, and added up.

Both L2 levels back to back and every boundary situation under `shadow compare`; small pools, one step a phase and two
ranks in processes of their own; and, for slice 5, what no run of one rank comes to. A method of either slice that no
run has compared is exit 3, and so is a branch that no compared call has taken of those that plan: of all of slice 5,
and of what slice 9 decides at a boundary.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "gates"
PREFIXES = ("BATCHGEN_WORKER_KV", "BATCHGEN_WORKER_DECODE")
#: What plans, of which each branch is wanted. In a file of its own: a method that Python code names has a caller there.
PLANS = (ROOT / "scripts" / "gate_plans.txt").read_text(encoding="utf-8").split()
MODELS = ("tiny", "tiny-dual")
SCALE = "caps/16,prompts/16"
LEVELS = ("--workload", "L2-2048,L2-4096", "--scale", SCALE, "--page-size", "4", "--max-batch", "128")
#: Three quarters of what all rows need at their longest: some go on hold.
POOLS = ("--gpu-pages", "370", "--host-pages", "540", "--content-every", "64")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="runs whose name has this; the sum is of all reports"
    )
    asked = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, command, environment in _runs():
        if asked.only not in name:
            continue
        for path in OUT.glob(f"{name}.*.jsonl"):
            path.unlink()
        started = time.monotonic()
        print(f"==> {name}", flush=True)
        with open(OUT / f"{name}.log", "wb") as log:
            code = subprocess.run(
                [sys.executable, *command],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        print(
            f"    ended with {code} after {time.monotonic() - started:.0f} s; out/gates/{name}.log",
            flush=True,
        )
        if code:
            failed.append(f"{name} ended with {code}")
    reports = sorted(map(str, OUT.glob("*.*.jsonl")))
    if not reports:
        print("no run has written a report: nothing was compared", file=sys.stderr)
        return 3
    names = [option for prefix in PREFIXES for option in ("--require", prefix)]
    names += [option for plan in PLANS for option in ("--all-branches", plan)]
    pages = [
        "--json",
        str(OUT / "gates.json"),
        "--markdown",
        str(OUT / "gates.md"),
        "--html",
        str(OUT / "gates.html"),
    ]
    sums = ["gates", *reports, *names, *pages]
    code = subprocess.run([sys.executable, "-m", "shadow.cli", *sums], cwd=ROOT, check=False).returncode
    print((OUT / "gates.md").read_text(encoding="utf-8"))
    for line in failed:
        print(line, file=sys.stderr)
    return code or (2 if failed else 0)


def _runs() -> list[tuple[str, list[str], dict[str, str]]]:
    """(name, arguments of Python, environment) of each run; reports are out/gates/<name>.<gate>.jsonl."""
    runs = []
    for model in MODELS:
        for what, options in (
            ("levels", (*LEVELS, *POOLS)),
            ("boundaries", ("--workload", "boundaries")),
        ):
            name = f"{what}-{model}"
            given = [f"--candidate-env={one}={value}" for one, value in _flags(name).items()]
            command = ["-m", "shadow.cli", "compare", "--model", model, *options, *given, "--timeout", "900"]
            runs.append((name, [*command, "--json", str(OUT / f"{name}.json")], {}))
        workload = "tests.batchgen.worker.decode_workload"
        checked = {"BATCHGEN_DECODE_ASSERT": "1"}
        runs.append((f"small-{model}", ["-m", workload, model], {**_flags(f"small-{model}"), **checked}))
        launched = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "-m",
            workload,
            model,
        ]
        ranks = {"NUM_GPUS_PER_NODE": "1", "OMP_NUM_THREADS": "1"}
        runs.append((f"ranks-{model}", launched, {**_flags(f"ranks-{model}"), **ranks}))
    tests = ["-m", "pytest", "-q", "-m", "not multirank", "-p", "no:cacheprovider"]
    beyond = [*tests, "tests/batchgen/worker/test_kv_gate.py"]
    runs.append(("beyond-kv", beyond, {"BATCHGEN_WORKER_KV_REPORT": str(OUT / "beyond-kv.kv.jsonl")}))
    # In a process each: of a method the branches of its first calls are traced, and no more of them.
    for name, file in (("beyond-boundary", "test_boundary.py"), ("beyond-plan", "test_boundary_plan.py")):
        beyond = [*tests, f"tests/batchgen/worker/{file}"]
        runs.append((name, beyond, _flags(name, PREFIXES[1:])))
    return runs


def _flags(name: str, prefixes: tuple[str, ...] = PREFIXES) -> dict[str, str]:
    return {
        f"{prefix}_{flag}": value
        for prefix in prefixes
        for flag, value in (
            ("COMPARE", "1"),
            ("BRANCHES", "1"),
            ("REPORT", str(OUT / f"{name}.{prefix.rsplit('_', 1)[1].lower()}.jsonl")),
        )
    }


if __name__ == "__main__":
    raise SystemExit(main())
