"""Why a run of several ranks had to be stopped: what comes first of all that followed from it."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from shadow.diff import Mismatch, Nature
from shadow.lockstep import Trouble
from shadow.observation import Kind, Point
from shadow.ranks.side import DONE, End

_BROKEN = ("Connection closed by peer", "Connection reset by peer", "DistNetworkError", "Broken pipe")


@dataclass(frozen=True)
class Blame:
    """`trouble`: there is no verdict. `found`: how the candidate of a rank ended, where that is a divergence.

    `traceback`: of what the first of these raised.
    """

    trouble: Trouble | None = None
    found: tuple[tuple[int, Mismatch], ...] = ()
    traceback: str = ""


def blame(ends: tuple[End, ...], *, parted: bool) -> Blame:
    """`parted`: the comparison of some rank ended because its sides went different ways: that explains the rest.

    A process that was killed explains broken connections, and those explain nothing. Of sides that merely wait,
    the candidates are guilty where the comparison waits for one of them: their controls had already answered.
    """
    raised = [end for end in ends if end.failed is not None]
    broken = [end for end in raised if _connection(end)]
    gone = [end for end in ends if end.code is not None and end.failed is None]
    causes = gone + [end for end in raised if end not in broken]
    if not causes and not parted:
        causes = _waiting(ends) or broken
    return _judged(causes, {end.rank: end for end in ends if end.control})


def _connection(end: End) -> bool:
    failed = end.failed
    return failed is not None and any(word in f"{failed.type_name}: {failed.message}" for word in _BROKEN)


def _waiting(ends: tuple[End, ...]) -> list[End]:
    if not any(end.silent for end in ends):
        return []
    wanted = [end for end in ends if end.wanted and end.code is None]
    guilty = [end for end in wanted if not end.control] or wanted
    # One that waits in a collective waits for another rank; whoever waits elsewhere comes first.
    return sorted(guilty, key=lambda end: end.waits.startswith("in dist."))


def _judged(causes: list[End], controls: dict[int, End]) -> Blame:
    troubles = [end for end in causes if _no_verdict(end)]
    found = [end for end in causes if not _no_verdict(end)]
    traceback = next((end.failed.traceback for end in found if end.failed is not None), "")
    trouble = None
    if troubles:
        first = troubles[0]
        detail = first.failed.traceback if first.failed is not None else first.said
        trouble = Trouble(f"the {first.name} {how(first)}", detail)
    return Blame(trouble, tuple((end.rank, _finding(end, controls[end.rank])) for end in found), traceback)


def _no_verdict(end: End) -> bool:
    """A failure of the control, of the harness, or of whoever killed a process from outside."""
    if end.control or (end.failed is not None and end.failed.harness):
        return True
    return end.failed is None and end.code == -signal.SIGKILL


def _finding(end: End, control: End) -> Mismatch:
    step = end.step if end.failed is None or end.failed.step is None else end.failed.step
    ours = f"goes on: it {control.doing}"
    return Mismatch(Kind.OUTCOME, Nature.VALUE, Point.DECODE, step, None, None, "outcome", ours, how(end))


def how(end: End) -> str:
    """How a side ended or stands, in words."""
    if end.failed is not None:
        return f"raised {end.failed.type_name}: {end.failed.message}"
    if end.code is not None and end.code < 0:
        return f"was killed by {signal.Signals(-end.code).name}; it {end.doing}"
    if end.code is not None:
        return f"ended with exit code {end.code} before its run was over; it {end.doing}"
    if end.doing == DONE:
        return "is done"
    at = f"; it waits {end.waits}" if end.waits else ""
    if end.silent:
        return f"{end.silent}; it {end.doing}{at}"
    return f"was stopped; it {end.doing}{at}"
