"""How a call ended. A raised exception and a time-out are outcomes like a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Returned:
    value: Any


@dataclass(frozen=True, eq=False)
class Raised:
    error: BaseException


@dataclass(frozen=True, eq=False)
class TimedOut:
    seconds: float


Outcome = Returned | Raised | TimedOut


class History:
    """What raising an exception object again would change in it, and in those that led to it."""

    def __init__(self, error: BaseException) -> None:
        self._kept: list[tuple[BaseException, Any, Any, bool, Any]] = []
        todo: list[BaseException | None] = [error]
        seen: set[int] = set()
        while todo and len(seen) < 100:
            one = todo.pop()
            if one is not None and id(one) not in seen:
                seen.add(id(one))
                fields = (one.__context__, one.__cause__, one.__suppress_context__, one.__traceback__)
                self._kept.append((one, *fields))
                todo += [one.__context__, one.__cause__]

    def restore(self) -> None:
        """Gives all of them their fields of that moment."""
        for one, context, cause, suppressed, trace in self._kept:
            one.__context__, one.__cause__ = context, cause
            one.__suppress_context__, one.__traceback__ = suppressed, trace
