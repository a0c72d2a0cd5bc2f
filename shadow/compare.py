"""`shadow compare` as a function: the worker of two source trees on the same requests, to a report."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from reports import Fact, Report
from shadow.lockstep import run_lockstep
from shadow.messages import Setup
from shadow.side import Side
from shadow.tally import Tally
from shadow.verdict import Circumstances, build_report


def code_digest(tree: Path) -> str:
    """One digest of every Python file of the tree's `batchgen`, names and contents."""
    digest = hashlib.sha256()
    for path in sorted((tree / "batchgen").rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(tree)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def compare_trees(
    legacy: Path,
    candidate: Path,
    requests: Path,
    options: Mapping[str, object],
    *,
    threads: int,
    timeout: float,
    on_step: Callable[[int, int], None] = lambda step, differing: None,
    facts: tuple[Fact, ...] = (),
) -> Report:
    """Runs both trees (folders that hold `batchgen/`) and reports; `options` are fields of EngineOptions.

    `on_step` is told the decode step just compared and how many values differ so far.
    """
    started = time.monotonic()
    tally = Tally()

    def setup(tree: Path) -> Setup:
        return Setup(str(tree), str(requests), threads, dict(options))

    with (
        Side("legacy side", setup(legacy), timeout) as control,
        Side("candidate side", setup(candidate), timeout) as subject,
    ):
        outcome = run_lockstep(control, subject, tally, lambda step: on_step(step, tally.total))
    circumstances = Circumstances(
        legacy=str(legacy),
        candidate=str(candidate),
        same_code=code_digest(legacy) == code_digest(candidate),
        facts=(*facts, Fact("requests file", str(requests)), Fact("threads per side", str(threads))),
        seconds=time.monotonic() - started,
    )
    return build_report(circumstances, tally, outcome)
