"""One step of a pull request: a command, how it ended, and what it said."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import DONE, FOUND, REFUSED, SHORT

#: Where the packages are that this one came with.
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Ran:
    """`code` is 0, 1, 2 or 3, as in all commands; `processor` are seconds of processor time, `seconds` of the clock."""

    name: str
    command: str
    code: int
    output: str
    seconds: float
    processor: float

    @property
    def last_line(self) -> str:
        return next((line.strip() for line in reversed(self.output.splitlines()) if line.strip()), "")


def migrate(name: str, folder: Path, *arguments: str) -> Ran:
    """`migrate` of these packages, run in `folder`."""
    command = [sys.executable, "-P", "-c", "from migration.cli import main; main()", *arguments]
    return _run(name, command, folder, ROOT, f"migrate {shlex.join(arguments)}")


def shadow(name: str, folder: Path, *arguments: str) -> Ran:
    command = [sys.executable, "-P", "-m", "shadow.cli", *arguments]
    return _run(name, command, folder, ROOT, f"shadow {shlex.join(arguments)}")


def pytest(name: str, tree: Path, paths: Sequence[str]) -> Ran:
    """The tests of a tree on the code of that tree. No test at all is a short coverage, not a success."""
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=short"]
    command = [sys.executable, "-P", "-m", "pytest", *options, *paths]
    return _run(name, command, tree, tree, f"pytest {shlex.join(paths)}", {0: DONE, 1: FOUND, 5: SHORT})


def module(name: str, tree: Path, words: Sequence[str], environment: Mapping[str, str]) -> Ran:
    """A module of a tree on the code of that tree."""
    command = [sys.executable, "-P", "-m", *words]
    return _run(name, command, tree, tree, f"python -m {shlex.join(words)}", {0: DONE}, environment)


def _run(
    name: str,
    argv: Sequence[str],
    folder: Path,
    packages: Path,
    shown: str,
    codes: Mapping[int, int] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Ran:
    """A code that is none of ours is a failure of the step itself (2)."""
    environment = {**os.environ, "PYTHONPATH": str(packages), "COLUMNS": "160", **(variables or {})}
    clock, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        argv,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
    known = codes or {code: code for code in (DONE, FOUND, REFUSED, SHORT)}
    code = known.get(done.returncode, REFUSED)
    return Ran(name, shown, code, done.stdout, time.monotonic() - clock, processor)
