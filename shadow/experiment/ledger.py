"""What a gate has found: exact counts, a bounded number of examples, a report file, one line at the end."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any

from shadow.experiment.differ import Nature

if TYPE_CHECKING:
    from shadow.experiment.branches import Coverage

logger = logging.getLogger("shadow.experiment")
_EXAMPLES = 5
_GROUPS = 500
_REASONS = 100


class Kind(StrEnum):
    """Where the two sides part."""

    VALUE = "value"
    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    STATE = "write set"
    CALLS = "calls"
    ARGUMENT = "argument"


class Verdict(IntEnum):
    EQUAL = 0
    DIVERGED = 1
    HARNESS_FAILED = 2
    COVERAGE_SHORT = 3

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


_SEVERITY = (Verdict.HARNESS_FAILED, Verdict.DIVERGED, Verdict.COVERAGE_SHORT, Verdict.EQUAL)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """2, 1, 3, 0; of none it is COVERAGE_SHORT."""
    return min(verdicts, key=_SEVERITY.index, default=Verdict.COVERAGE_SHORT)


@dataclass(frozen=True)
class Divergence:
    """One place in which the handler did not do what the legacy body did."""

    gate: str
    method: str
    #: Which call of the method, counted from 1.
    call: int
    #: The sequence or other key that the call belongs to, "" when none is known.
    key: str
    kind: Kind
    nature: Nature
    #: Path from the result, an argument, the worker or the tape of calls down to the field.
    path: str
    control: str
    candidate: str
    rank: str
    pid: int

    def line(self) -> str:
        about = f", {self.key}" if self.key else ""
        return (
            f"{self.gate} {self.method} (call {self.call}{about}): {self.kind}: {self.path}: legacy {self.control}, "
            f"handler {self.candidate}"
        )


@dataclass
class MethodCount:
    calls: int = 0
    compared: int = 0
    diverged: int = 0
    #: Values that both sides had.
    values: int = 0
    faults: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    #: Branches of the legacy body that compared calls have taken, and how many it has.
    branches_seen: int = 0
    branches: int = 0
    #: Those that none has, as "worker.py:123 -> 125".
    unseen: tuple[str, ...] = ()
    #: Why branches of compared calls were not counted, with the number of those calls.
    uncounted: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Summary:
    gate: str
    verdict: Verdict
    calls: int
    compared: int
    diverged: int
    faults: int
    #: (reason, calls that were not compared for it), most frequent first.
    skipped: tuple[tuple[str, int], ...]
    methods: tuple[tuple[str, MethodCount], ...]
    report: str | None
    #: Methods that are to be compared and were never called.
    unreached: tuple[str, ...] = ()

    @property
    def branches(self) -> tuple[int, int]:
        """Branches that compared calls have taken, of how many; (0, 0) where none were counted."""
        counts = [count for _, count in self.methods]
        return sum(count.branches_seen for count in counts), sum(count.branches for count in counts)

    def line(self) -> str:
        """Everything in one line."""
        skipped = "; ".join(f"{count} {reason}" for reason, count in self.skipped[:6]) or "none"
        more = f"; {len(self.skipped) - 6} further reasons" if len(self.skipped) > 6 else ""
        report = f"; report: {self.report}" if self.report else ""
        seen, branches = self.branches
        taken = f"branches compared: {seen} of {branches}; " if branches else ""
        return (
            f"shadow {self.gate}: {self.calls} calls, {self.compared} compared, {self.diverged} diverged; {taken}"
            f"not compared: {skipped}{more}; harness faults: {self.faults}; "
            f"verdict {self.verdict.value} ({self.verdict.words}){report}"
        )

    def record(self) -> dict[str, Any]:
        """As it stands in the report."""
        return {
            "gate": self.gate,
            "verdict": int(self.verdict),
            "line": self.line(),
            "methods": {name: vars(count) for name, count in self.methods},
            "unreached": self.unreached,
        }


class Ledger:
    """Counts and examples of one gate. Safe to use from several threads."""

    def __init__(self, gate: str, report: str | None) -> None:
        self.gate = gate
        self.methods: dict[str, MethodCount] = {}
        self.divergences: list[Divergence] = []
        self.faults: list[str] = []
        self.notes: list[str] = []
        #: By method; filled by the laboratory.
        self.coverage: dict[str, Coverage] = {}
        self._groups: Counter[tuple[str, Kind, str]] = Counter()
        #: Where divergences and the summary go; None: nowhere, or it could not be written.
        self.report, self._file = report, -1
        self._lock = threading.RLock()

    def report_to(self, path: str | None) -> None:
        """From now on the report is another file."""
        if path != self.report:
            self.close()
            self.report = path

    def called(self, method: str) -> int:
        """Counts a call; its number."""
        with self._lock:
            count = self.methods.get(method)
            if count is None:
                count = self.methods[method] = MethodCount()
            count.calls += 1
            return count.calls

    def skipped(self, method: str, reason: str) -> None:
        with self._lock:
            reasons = self.methods[method].skipped
            reasons[reason if reason in reasons or len(reasons) < _REASONS else "other reasons"] += 1

    def compared(self, method: str, values: int, divergences: list[Divergence]) -> None:
        with self._lock:
            count = self.methods[method]
            count.compared += 1
            count.values += values
            count.diverged += bool(divergences)
        for divergence in divergences:
            self._found(divergence)

    def covered(self, method: str, uncounted: str | None) -> None:
        """After a comparison: what of the method's branches is known now."""
        with self._lock:
            count, coverage = self.methods[method], self.coverage[method]
            if uncounted is not None:
                count.uncounted[uncounted] += 1
            if (len(coverage.seen), len(coverage.labels)) != (count.branches_seen, count.branches):
                count.branches_seen, count.branches = len(coverage.seen), len(coverage.labels)
                count.unseen = coverage.unseen()

    def _found(self, divergence: Divergence) -> None:
        group = (divergence.method, divergence.kind, re.sub(r"\[[^\]]*\]|\d+", "*", divergence.path))
        with self._lock:
            self._groups[
                group if group in self._groups or len(self._groups) < _GROUPS else ("", group[1], "")
            ] += 1
            seen = self._groups[group]
            if not 0 < seen <= _EXAMPLES:
                return
            self.divergences.append(divergence)
        if seen == 1:
            logger.warning("%s", divergence.line())
        self.write("divergence", asdict(divergence))

    def note(self, text: str) -> None:
        """Something to know about a gate that is no divergence; each said once."""
        with self._lock:
            if text in self.notes or len(self.notes) >= _REASONS:
                return
            self.notes.append(text)
        logger.warning("%s: %s", self.gate, text)

    def fault(self, method: str, error: BaseException) -> None:
        """The harness itself went wrong. Never raises."""
        try:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            where = (
                f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else "?"
            )
            text = f"{method}: {type(error).__name__} at {where}: {_said(error)}"
        except Exception:
            text = f"{method}: a fault that cannot be described"
        with self._lock:
            self.methods.setdefault(method, MethodCount()).faults += 1
            if text in self.faults or len(self.faults) >= _REASONS:
                return
            self.faults.append(text)
        try:
            logger.error("%s: harness fault, the legacy result was served: %s", self.gate, text)
            self.write("fault", {"gate": self.gate, "text": text})
        except Exception:
            return  # counted above; there is nowhere left to say it

    def write(self, record: str, values: dict[str, Any]) -> None:
        """Appends one line to the report file, in one write."""
        if self.report is None:
            return
        line = json.dumps({"record": record, "schema": 1, **values}, ensure_ascii=False) + "\n"
        try:
            with self._lock:
                if self._file < 0:
                    os.makedirs(os.path.dirname(self.report) or ".", exist_ok=True)
                    self._file = os.open(self.report, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                os.write(self._file, line.encode("utf-8", "replace"))
        except OSError as error:
            path, self.report = self.report, None
            self.fault(
                "report", OSError(f"cannot write {path}: {error.strerror}; nothing more is written there")
            )

    def close(self) -> None:
        """Closes the report file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def verdict(self, required: tuple[str, ...], declared_skips: frozenset[str]) -> Verdict:
        """`required` methods must have been compared, and every called one that is not declared to be skipped."""
        counts = self.methods
        if any(count.faults for count in counts.values()):
            return Verdict.HARNESS_FAILED
        if any(count.diverged for count in counts.values()):
            return Verdict.DIVERGED
        needed = {name for name, count in counts.items() if count.calls and name not in declared_skips} | {
            *required
        }
        short = [name for name in needed if name not in counts or not counts[name].compared]
        compared = sum(count.compared for count in counts.values())
        return Verdict.COVERAGE_SHORT if short or not compared else Verdict.EQUAL

    def summary(self, required: tuple[str, ...], declared_skips: frozenset[str]) -> Summary:
        with self._lock:
            reasons: Counter[str] = Counter()
            for count in self.methods.values():
                reasons.update(count.skipped)
            counts = list(self.methods.values())
            return Summary(
                self.gate,
                self.verdict(required, declared_skips),
                sum(count.calls for count in counts),
                sum(count.compared for count in counts),
                sum(count.diverged for count in counts),
                sum(count.faults for count in counts),
                tuple(reasons.most_common()),
                tuple(sorted(self.methods.items())),
                self.report,
            )


def _said(error: BaseException) -> str:
    from shadow.experiment.brief import brief

    return error.args[0] if len(error.args) == 1 and type(error.args[0]) is str else brief(error.args)
