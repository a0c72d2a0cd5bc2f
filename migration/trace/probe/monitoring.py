"""Entries and exits by `sys.monitoring` (Python 3.12 and later).

Events are switched on for the code objects of the traced classes alone: no other code gets slower.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

from .recorder import NOTHING, Recorder
from .subjects import Method, Subject, methods

_NAME = "migrate trace"


class Monitoring:
    """One tool of `sys.monitoring` with local events."""

    name = "monitoring"

    def __init__(self, recorder: Recorder, events: Any, tool: int) -> None:
        self._recorder = recorder
        self._events = events
        self._tool = tool
        self._followed: dict[CodeType, list[tuple[Subject, Method]]] = {}
        events.register_callback(tool, events.events.PY_START, self._start)
        events.register_callback(tool, events.events.PY_RETURN, self._return)

    @classmethod
    def claim(cls, recorder: Recorder) -> Monitoring | None:
        """A free tool number, None where the interpreter has no such thing or all numbers are taken."""
        events: Any = getattr(sys, "monitoring", None)
        for tool in (4, 3, 2, 0) if events is not None else ():  # 1 and 5 are coverage and the optimizer
            if events.get_tool(tool) is None:
                events.use_tool_id(tool, _NAME)
                return cls(recorder, events, tool)
        return None

    def follow(self, subject: Subject) -> None:
        kinds = self._events.events
        for method in methods(subject.kind):
            self._followed.setdefault(method.code, []).append((subject, method))
            self._events.set_local_events(self._tool, method.code, kinds.PY_START | kinds.PY_RETURN)

    def _start(self, code: CodeType, offset: int) -> Any:
        values = sys._getframe(1).f_locals
        more = False
        for subject, method in self._followed[code]:
            arguments = _arguments(method, values)
            more |= self._recorder.entered(subject, method, _first(method, values), arguments)
        return None if more else self._events.DISABLE

    def _return(self, code: CodeType, offset: int, result: Any) -> Any:
        values = sys._getframe(1).f_locals
        more = False
        for subject, method in self._followed[code]:
            more |= self._recorder.returned(subject, method, _first(method, values), result)
        return None if more else self._events.DISABLE


def _first(method: Method, values: Any) -> Any:
    return values.get(method.named[0], NOTHING) if method.has_self and method.named else NOTHING


def _arguments(method: Method, values: Any) -> Iterator[tuple[str, Any]]:
    for name in method.named[1:] if method.has_self else method.named:
        if name in values:
            yield name, values[name]
    star, double = method.gathered
    for value in values.get(star, ()):
        yield f"*{star}", value
    for value in values.get(double, {}).values():
        yield f"**{double}", value
