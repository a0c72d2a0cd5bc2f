"""Delete the bodies of sampled worker methods, one at a time, and see which test notices.

    python scripts/sample_deletions.py --sample 10 --seed 1
    python scripts/sample_deletions.py --method _release_gpu_kv_pages

Each deletion is made in a copy of the tree; the worker's tests run there until the first failure. A method that no
test misses is dead or untested, and fails the run. The first of two definitions of one name is shadowed and left out.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent))
from section_coverage import ROOT, WORKER, live_methods

TESTS = ["test_generate.py", "test_boundary.py", "test_kv_section.py", "test_multirank.py"]
FOLDER = "tests/batchgen/worker"


def without_body(source: str, method: ast.FunctionDef) -> str:
    """`source` with the method's statements replaced by one `pass`."""
    lines = source.splitlines(keepends=True)
    first, last = method.body[0].lineno - 1, method.end_lineno or method.lineno
    indent = re.match(r"\s*", lines[first])
    assert indent is not None
    return "".join([*lines[:first], f"{indent.group()}pass\n", *lines[last:]])


def first_failing_test(tree: Path) -> str | None:
    """The first test of the worker that fails in `tree`, or None."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    for test in TESTS:
        command = [sys.executable, "-m", "pytest", "-x", "--timeout", "180", f"{FOLDER}/{test}"]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
            return named.group(1) if named else f"{test} (did not finish)"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", action="append", help="these instead of a sample")
    options = parser.parse_args()
    source = WORKER.read_text(encoding="utf-8")
    methods = {method.name: method for method in live_methods(source)}
    names = options.method or random.Random(options.seed).sample(sorted(methods), options.sample)
    console = Console()
    unnoticed = []
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        for name in ("batchgen", "tests", "pyproject.toml"):
            origin = ROOT / name
            copy = shutil.copytree if origin.is_dir() else shutil.copy
            copy(origin, tree / name)
        for name in names:
            mutated = without_body(source, methods[name])
            compile(mutated, name, "exec")
            (tree / WORKER.relative_to(ROOT)).write_text(mutated, encoding="utf-8")
            noticed = first_failing_test(tree)
            console.print(f"{name}: {noticed or '[bold red]no test noticed[/bold red]'}")
            if noticed is None:
                unnoticed.append(name)
    console.print(f"{len(names) - len(unnoticed)} of {len(names)} deletions noticed")
    return int(bool(unnoticed))


if __name__ == "__main__":
    sys.exit(main())
