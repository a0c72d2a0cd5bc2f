"""Which detector alarms when: with both paths, and with the candidate alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from shadow.diff import Mismatch
from shadow.lockstep import Trouble
from shadow.messages import Done, Failed, Hello, Setup
from shadow.observation import Event, Kind
from shadow.side import Lost, Side
from shadow.tally import Tally


def detector(kind: Kind, field: str) -> str:
    """What is credited with a finding: the invariant by its name, else the kind of value."""
    return f"{kind.value}:{field}" if kind is Kind.INVARIANT else kind.value


@dataclass
class Alarms(Tally):
    """A tally that keeps the step of each detector's first alarm, in the order of the alarms."""

    strict_hygiene: bool = True
    first_step: dict[str, int] = field(default_factory=dict)

    def find(self, mismatch: Mismatch) -> None:
        super().find(mismatch)
        if self.counts(mismatch):
            self.first_step.setdefault(detector(mismatch.kind, mismatch.field), mismatch.step)


@dataclass(frozen=True)
class Alone:
    """A run of the candidate with nothing to compare it to. `first_step`: by invariant that does not hold."""

    first_step: dict[str, int]
    checked: frozenset[str]  # the invariants that were looked at
    fired: int | None = None
    trouble: Trouble | None = None


def run_alone(setup: Setup, timeout: float) -> Alone:
    """Runs one side by itself: what the invariants say when there is no second path."""
    first_step: dict[str, int] = {}
    fired: int | None = None
    checked: set[str] = set()
    with Side("candidate side", setup, timeout) as side:
        while True:
            match message := side.receive():
                case Event():
                    fired = message.fired
                    checked |= message.checked.keys()
                    for violation in message.violations:
                        first_step.setdefault(violation.invariant, message.step)
                    if message.point.selects_tokens:
                        side.reply({})
                case Done():
                    return Alone(first_step, frozenset(checked), message.fired)
                case Failed():
                    trouble = Trouble(message.message, message.traceback) if message.harness else None
                    return Alone(first_step, frozenset(checked), message.fired, trouble)
                case Lost():
                    return Alone(first_step, frozenset(checked), fired)
                case Hello():
                    pass
