"""`make gpu`: everything that needs a GPU, in one command, with the Python that the machine has and without a network.

Runs the GPU tests, both L2 workloads back to back with the handlers and with the gates comparing, graph against eager,
what being watched costs, and how fast tensors are compared. Each part's log, the JSON report, a page and a Markdown
summary lie in out/gpu/. Exit codes, worst first: 2 a part failed to run, 1 something differs or a bar is missed,
3 something was not compared, 0; 4 where the machine lacks what it takes, and nothing was run.

`--device cpu` runs the same parts without a GPU, as a rehearsal: its figures say nothing of one.
"""

from __future__ import annotations

import argparse
import html
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
NEEDED = (
    "msgspec",
    "numpy",
    "pytest",
    "rich",
    "safetensors",
    "tokenizers",
    "typer",
    "xxhash",
    "hypothesis",
    "jinja2",
)
NATIVE = ("BATCHGEN_WORKER_KV_NATIVE=1", "BATCHGEN_WORKER_DECODE_NATIVE=1")
COMPARE = ("BATCHGEN_WORKER_KV_COMPARE=1", "BATCHGEN_WORKER_DECODE_COMPARE=1")
NOISE = ("-m", "shadow.cli", "noise", "--class", "bucket")
SHADOW = ("-m", "shadow.cli", "compare")
GRAPHS = ("-m", "shadow.cli", "graphs")
LACKING = 4
WORST = (2, 1, 3)
SAID = {
    0: "holds",
    1: "differs or misses its bar",
    2: "failed to run",
    3: "compared too little",
    LACKING: "not here",
}


TESTS = "tests"
MARKS = {0: "✅", 1: "❌", 2: "❌"}
STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem }
td { padding: .4rem .6rem; border-top: 1px solid #8884; vertical-align: top; overflow-wrap: anywhere }
code { font-size: .8em; opacity: .75 }
.c1 td:nth-child(2), .c2 td:nth-child(2) { color: #c33; font-weight: 600 }
.c0 td:nth-child(2) { color: #2a8a4a }
"""


@dataclass(frozen=True)
class Part:
    """`arguments` of Python. `here`: False where the device asked for cannot run it at all."""

    name: str
    title: str
    arguments: tuple[str, ...]
    here: bool = True


@dataclass(frozen=True)
class Outcome:
    """`code` as in SAID; `log`: relative to the report; `said`: more about it, where there is more."""

    name: str
    title: str
    command: str
    code: int
    seconds: float
    log: str
    said: str = ""


def lacking(device: str) -> list[str]:
    """What this machine has not, one line each with what to do."""
    found = [
        f"the Python package {name}: install it, or bring its wheel (`make gpu-wheels`, then ARGS='--wheels DIR')"
        for name in NEEDED
        if importlib.util.find_spec(name) is None
    ]
    if importlib.util.find_spec("torch") is None:
        return [*found, "the Python package torch, built for CUDA: set GPU_PYTHON to a Python that has it"]
    if device != "cpu":
        import torch

        if not torch.cuda.is_available():
            built = "for CUDA" if torch.version.cuda else "without CUDA"
            found.append(
                f"a CUDA device: torch {torch.__version__} is built {built} and sees none; run this on the GPU "
                "machine, or rehearse it with ARGS='--device cpu'"
            )
    return found


def unpack(wheels: Path, site: Path) -> None:
    """Installs the wheels of a folder beside the report, for this run alone: the machine's own packages stay.

    Raises:
        SystemExit: the folder has no wheel, or pip refuses one.
    """
    found = sorted(map(str, wheels.glob("*.whl")))
    if not found:
        raise SystemExit(
            f"make gpu: no wheel in {wheels}: make some with `make gpu-wheels` on a machine with a network"
        )
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--upgrade",
        "--target",
        str(site),
    )
    if subprocess.run([*pip, *found], check=False).returncode:
        raise SystemExit(f"make gpu: the wheels in {wheels} could not be installed")
    sys.path.insert(0, str(site))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))


def gpu_tests() -> tuple[str, ...]:
    """The test files that have a test for a GPU: others may need what this machine has not."""
    files = (ROOT / "tests").rglob("test_*.py")
    return tuple(
        sorted(str(f.relative_to(ROOT)) for f in files if "mark.gpu" in f.read_text(encoding="utf-8"))
    )


def parts(device: str, model: str, scale: str, out: Path) -> list[Part]:
    levels = ("--workload", "L2-2048,L2-4096", *(("--scale", scale) if scale else ()))
    sides = ("--device", device, "--model", model, "--page-size", "16")
    run = (*sides, "--max-batch", "128", "--content-every", "64")
    requests, bound = ("--requests", "examples/requests.jsonl"), str(out / "noise.json")

    def reports(name: str) -> list[str]:
        kinds = (("json", "json"), ("html", "html"), ("markdown", "md"), ("junit", "xml"))
        return [option for kind, end in kinds for option in (f"--{kind}", str(out / f"{name}.{end}"))]

    def compared(name: str, title: str, *more: str) -> Part:
        return Part(name, title, (*SHADOW, *run, *more, "--timeout", "900", *reports(name)))

    native = [f"--candidate-env={flag}" for flag in NATIVE]
    gates = [f"--candidate-env={flag}" for flag in COMPARE]
    junit = ("--junitxml", str(out / f"{TESTS}.xml"))
    tests = ("-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "-rs", *junit, *gpu_tests())
    return [
        Part(TESTS, "the tests that need a GPU", tests, here=device != "cpu"),
        compared(
            "native", "both L2 levels back to back: the handlers against the legacy bodies", *levels, *native
        ),
        compared("gates", "the same with the gates comparing", *levels, *gates),
        Part(
            "noise",
            "by how much graph replay and eager may differ, measured",
            (*NOISE, *requests, *sides, "-o", bound),
        ),
        compared("eager", "graph replay against eager", *requests, "--pairing", "bucket", "--noise", bound),
        Part(
            "graphs",
            "each replay against an eager run of the same step, compared on the device",
            (*GRAPHS, *requests, *sides, "--noise", bound, *reports("graphs")),
        ),
        Part(
            "overhead",
            "what being watched costs",
            (
                "-m",
                "benchmarks.shadow_overhead",
                "--model",
                model,
                "--device",
                device,
                "--json",
                str(out / "overhead.json"),
            ),
        ),
        Part(
            "bandwidth",
            "comparing tensors against copying them, on the device",
            ("-m", "benchmarks.device_compare", "--json", str(out / "bandwidth.json")),
            here=device != "cpu",
        ),
    ]


def done(part: Part, out: Path, limit: float) -> Outcome:
    """Runs it in a process of its own; one that takes too long has failed to run."""
    log = out / f"{part.name}.log"
    command = " ".join(("python", *part.arguments)).replace(f"{ROOT}/", "")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }
    started = time.monotonic()
    with log.open("wb") as file:
        try:
            code = subprocess.run(
                [sys.executable, *part.arguments],
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=limit,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            file.write(f"\nended after {limit:.0f} s: it took too long\n".encode())
            code = 2
    code = code if code in SAID else 2
    said = ""
    if part.name == TESTS:
        code, said = judged_tests(out / f"{TESTS}.xml", code)
    return Outcome(part.name, part.title, command, code, round(time.monotonic() - started, 1), log.name, said)


def judged_tests(results: Path, code: int) -> tuple[int, str]:
    """The exit code and what to say of it: a test that was skipped, or that is not there, has checked nothing."""
    if code not in (0, 1) or not results.is_file():
        return 2, "no results"
    suites = ElementTree.parse(results).getroot().iter("testsuite")
    counts = {"tests": 0, "skipped": 0, "failures": 0, "errors": 0}
    for suite in suites:
        for name in counts:
            counts[name] += int(suite.get(name, 0))
    run = counts["tests"] - counts["skipped"]
    bad = counts["failures"] + counts["errors"]
    said = f"{run - bad} passed, {bad} failed, {counts['skipped']} skipped"
    return (1 if bad else 3 if counts["skipped"] or not run else 0), said


def worst(codes: Sequence[int]) -> int:
    """A part that could not be run here is one that was not compared."""
    judged = [3 if code == LACKING else code for code in codes]
    return next((code for code in WORST if code in judged), 0)


def machine(device: str) -> dict[str, str]:
    import torch

    name = torch.cuda.get_device_name() if device != "cpu" else platform.processor() or platform.machine()
    return {"device": name, "torch": torch.__version__, "python": platform.python_version()}


def told_of(outcome: Outcome) -> str:
    return SAID[outcome.code] + (f": {outcome.said}" if outcome.said else "")


def markdown(told: dict[str, str], outcomes: Sequence[Outcome], code: int) -> str:
    rows = [
        f"| {o.title} | {MARKS.get(o.code, '⚠️')} {told_of(o)} | {o.seconds:.0f} s | `{o.log}` |"
        for o in outcomes
    ]
    head = (
        f"## GPU checks: {SAID[code]}\n\n{told['device']}, torch {told['torch']}, Python {told['python']}\n"
    )
    return "\n".join([head, "| part | verdict | time | log |", "| --- | --- | --- | --- |", *rows, ""])


def page(told: dict[str, str], outcomes: Sequence[Outcome], code: int, out: Path) -> str:
    """One file that opens offline; the comparisons' own pages lie beside it."""
    rows = []
    for o in outcomes:
        name = html.escape(o.title)
        linked = f'<a href="{o.name}.html">{name}</a>' if (out / f"{o.name}.html").is_file() else name
        rows.append(
            f'<tr class="c{o.code}"><td>{linked}<br><code>{html.escape(o.command)}</code></td><td>{told_of(o)}</td>'
            f'<td>{o.seconds:.0f} s</td><td><a href="{o.log}">{o.log}</a></td></tr>'
        )
    return f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>GPU checks</title>
<style>{STYLE}</style>
<h1>GPU checks: {SAID[code]}</h1><p>{html.escape(", ".join(told.values()))}</p><table>{"".join(rows)}</table></html>
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--model", default="tiny", help="of the comparisons (default: tiny)")
    parser.add_argument("--scale", default="", help="caps/N,prompts/N: a smaller ladder")
    parser.add_argument("--only", metavar="PART", action="append", help="only this part; repeatable")
    parser.add_argument(
        "--limit", type=float, default=1800, metavar="S", help="seconds of one part (default: 1800)"
    )
    parser.add_argument(
        "--wheels", type=Path, metavar="DIR", help="packages that this machine lacks, as wheels"
    )
    parser.add_argument("--list", action="store_true", help="say what would be run")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "gpu")
    chosen = parser.parse_args(arguments)
    every = parts(chosen.device, chosen.model, chosen.scale, chosen.out)
    unknown = sorted(set(chosen.only or ()) - {part.name for part in every})
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(part.name for part in every)}")
    asked = [part for part in every if not chosen.only or part.name in chosen.only]
    if chosen.list:
        for part in asked:
            print(f"{part.name}: {part.title}\n    python {' '.join(part.arguments)}")
        return 0
    if chosen.wheels:
        unpack(chosen.wheels, chosen.out / "site")
    missing = lacking(chosen.device)
    if missing:
        print("make gpu: this machine lacks", file=sys.stderr)
        for line in missing:
            print(f"  - {line}", file=sys.stderr)
        return LACKING
    chosen.out.mkdir(parents=True, exist_ok=True)
    told, outcomes = machine(chosen.device), []
    for number, part in enumerate(asked, 1):
        print(f"==> {number} of {len(asked)}: {part.title}", flush=True)
        if not part.here:
            command = " ".join(("python", *part.arguments))
            outcomes.append(Outcome(part.name, part.title, command, LACKING, 0.0, ""))
        else:
            outcomes.append(done(part, chosen.out, chosen.limit))
        print(f"    {told_of(outcomes[-1])} ({outcomes[-1].seconds:.0f} s)", flush=True)
        # After each part: what is there stays, should a later one take the machine down.
        code = worst([outcome.code for outcome in outcomes])
        report = {
            "schema": 1,
            "machine": told,
            "code": code,
            "parts": [asdict(outcome) for outcome in outcomes],
        }
        (chosen.out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        (chosen.out / "report.md").write_text(markdown(told, outcomes, code), encoding="utf-8")
        (chosen.out / "index.html").write_text(page(told, outcomes, code, chosen.out), encoding="utf-8")
    print(f"{SAID[code]}; reports in {chosen.out}")
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("make gpu: interrupted; the parts that ended are in the report", file=sys.stderr)
        sys.exit(130)
