"""One compared call of a method whose handler says beforehand what it comes to."""

from __future__ import annotations

from typing import Any

from shadow.experiment.candidate import compare_outcomes
from shadow.experiment.deadline import Deadline, Overdue
from shadow.experiment.differ import Differ
from shadow.experiment.effects import Foreseen
from shadow.experiment.ledger import Kind
from shadow.experiment.outcome import Outcome, Raised, Returned, TimedOut
from shadow.experiment.randomness import Randomness
from shadow.experiment.trial import Examined


class Foresight:
    """Asks in its constructor; `examine` once the control has ended. `seconds`: after which it is broken off."""

    recorder = None

    def __init__(
        self,
        handler: Any,
        worker: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        seconds: float,
    ) -> None:
        before = Randomness()
        self._seen: Foreseen | None = None
        try:
            with Deadline(seconds):
                self._seen = handler.foresee(worker, name, args, kwargs)
            self._outcome: Outcome = Returned(self._seen.value)
        except Overdue:
            self._outcome = TimedOut(seconds)
        except Exception as error:
            self._outcome = Raised(error)
        finally:
            before.restore()

    def examine(self, control: Outcome, *, timeout: float, interleaved: bool = False) -> Examined:
        """A control that raises may have stopped half-way: then only what it raised is compared."""
        differ = Differ()
        findings = compare_outcomes(control, self._outcome, differ)
        if isinstance(control, Returned) and self._seen is not None and not interleaved:
            differ.compare(self._seen.found(), self._seen.expected, "worker")
            findings += [(Kind.STATE, difference) for difference in differ.taken()]
        return Examined(tuple(findings), differ.compared)
