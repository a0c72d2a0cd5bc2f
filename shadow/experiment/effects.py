"""What running a method twice would do: declared per gated method, by the codemod or by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Pure:
    """Reads only. The candidate reads the worker as the control left it, through copies.

    The declaration is checked: some calls are compared as if they were `Isolated`, and a control that is seen
    writing is treated as `Isolated` from then on.
    """

    #: The parameter that holds the uuid (or several) that sampling sticks to.
    key: str | None = None


@dataclass(frozen=True)
class Isolated:
    """Writes. The candidate works on a copy of the worker's state as it was before the control ran."""

    #: Worker attributes that the method and what it calls read or write; None: all of them. Only these are
    #: copied beforehand and compared afterwards. One that the candidate reads beyond them is added.
    attributes: tuple[str, ...] | None = None
    #: As for `Pure`.
    key: str | None = None


@dataclass(frozen=True)
class Planned:
    """Writes, and the handler can tell beforehand what that comes to.

    `handler.foresee(worker, name, args, kwargs)` is asked before the control runs. It reads the live worker, which it
    must not change, and returns a `Foreseen`, or raises what the call is to raise. One picture serves both sides, and
    nothing is done twice.
    """


class Foreseen(Protocol):
    """What a call will come to."""

    @property
    def value(self) -> Any:
        """What it returns."""

    @property
    def expected(self) -> Any:
        """The state that it leaves behind, as values."""

    def found(self) -> Any:
        """The same of the worker as it is now: asked once the control has returned."""


@dataclass(frozen=True)
class Skip:
    """Never compared; the calls are counted under the reason."""

    reason: str


Effect = Pure | Isolated | Planned | Skip
