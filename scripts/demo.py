"""`make demo`: one slice carried end to end on a scratch copy, with the real model.

Generates text, takes the worker as it was before its slices, ports what its KV code decides, shows that nothing
changed, plants a fault and shows that it is caught. Every step must end as expected, or the demo fails.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

from pipeline.copies import copy_before

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "demo"
BIN = Path(sys.executable).parent
console = Console()
# Small pages and pools, so that the short answers cross page boundaries, go on hold and come back.
POOLS = ["--page-size", "16", "--gpu-pages", "40", "--host-pages", "160", "--max-batch", "8"]


class DemoError(RuntimeError):
    pass


def step(number: int, title: str) -> None:
    console.print(Rule(f"{number}. {title}", align="left"))


def run(*command: str, expect: int = 0, to: Path | None = None) -> None:
    shown = " ".join(command).replace(f"{ROOT}/", "")
    console.print(f"[dim]$ {shown}[/dim]" + (f" [dim]> {to.relative_to(ROOT)}[/dim]" if to else ""))
    sys.stdout.flush()
    argv = [str(BIN / command[0]), *command[1:]]
    if to is None:
        code = subprocess.run(argv, cwd=ROOT, check=False).returncode
    else:
        with to.open("wb") as stream:
            code = subprocess.run(argv, cwd=ROOT, check=False, stdout=stream).returncode
    if code != expect:
        raise DemoError(f"`{shown}` ended with {code}, expected {expect}")


def engine_before_its_slices(name: str) -> Path:
    return copy_before(ROOT, OUT / name)


def show_answers(results: Path, count: int = 4) -> None:
    for line in results.read_text(encoding="utf-8").splitlines()[:count]:
        record = json.loads(line)
        choice = record["response"]["body"]["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        console.print(f"  [bold]{record['custom_id']}[/bold]: {text.strip()[:150]!r}")


def main() -> None:
    started = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    requests = "examples/requests.jsonl"

    step(1, "generate text with SmolLM2-135M-Instruct, through the monolithic worker")
    run("batchgen", "run", requests, "-o", "out/demo/results.jsonl", "--model", "smollm2")
    show_answers(OUT / "results.jsonl")

    step(2, "look at the worker: one class, its sections, what each touches")
    before, after = engine_before_its_slices("before"), engine_before_its_slices("after")
    run("migrate", "inventory", str(after / "batchgen" / "batchgen_worker.py"))

    step(3, "port the KV section behind typed handles, on the copy; the patch can be reviewed")
    run("migrate", "port", "kv", "--cut", "--repo", str(after), "--diff", to=OUT / "port.patch")
    run("migrate", "port", "kv", "--cut", "--repo", str(after))
    run("migrate", "verify", "kv", "--repo", str(after))

    step(4, "run the worker before and after the port in lockstep: nothing may differ")
    compare = [
        "shadow",
        "compare",
        "--legacy",
        str(before),
        "--requests",
        requests,
        "--model",
        "smollm2",
        *POOLS,
    ]
    run(*compare, "--candidate", str(after), "--json", str(OUT / "compare.json"))

    step(5, "plant a fault of one page beside the handler: it must be found, with step, sequence and field")
    faulty = OUT / "faulty"
    shutil.copytree(after, faulty)
    run("python", "-m", "shadow.demo_fault", str(faulty))
    run(*compare, "--candidate", str(faulty), "--json", str(OUT / "compare-faulty.json"), expect=1)

    step(6, "the same slice in three pull requests: port, gate, cleanup; each with its proof")
    phases = engine_before_its_slices("phases")
    for phase in ("port", "gate"):
        run("migrate", phase, "kv", "--repo", str(phases))
    run("migrate", "verify", "--repo", str(phases))
    shutil.copytree(phases, OUT / "gated")
    run("migrate", "cleanup", "kv", "--repo", str(phases))
    run("migrate", "verify", "--repo", str(phases))

    step(7, "the edit that a reviewer must not miss: verify names the method")
    handler = phases / "batchgen" / "worker" / "kv_manager.py"
    handler.write_text(
        handler.read_text(encoding="utf-8").replace("need > free", "need >= free", 1), encoding="utf-8"
    )
    run("migrate", "verify", "--repo", str(phases), expect=2)

    console.print(Rule("done", align="left"))
    console.print(
        f"[bold green]The port changed nothing, and the planted fault was caught[/bold green] "
        f"({time.monotonic() - started:.0f} s)."
    )
    console.print("Look at:")
    for name, what in (
        ("results.jsonl", "the generated answers, in the OpenAI batch format"),
        ("port.patch", "the port as a patch"),
        ("after/batchgen/worker/kv_manager.py", "the handler that came out of it"),
        ("after/.migrate/kv.proof.json", "its proof: `migrate verify --repo out/demo/after` checks it again"),
        ("gated/batchgen/batchgen_worker.py", "the worker with its gates"),
        ("compare.json", "the comparison before/after"),
        ("compare-faulty.json", "the comparison that found the fault"),
    ):
        if not (OUT / name).is_file():
            raise DemoError(f"out/demo/{name} is missing")
        console.print(f"  out/demo/{name:<40} {what}")


if __name__ == "__main__":
    try:
        main()
    except DemoError as error:
        console.print(f"[bold red]demo failed:[/bold red] {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
