"""Callables of the caller that the worker holds, such as one that takes each result: called once, for real.

A function has no class on which its calls could be wrapped, and it may do anything. So while a compared control runs,
the worker's attribute is bound to a wrapper that hands on each call and records it; the candidate's calls are
answered from that record. Outside of that time, and for every other thread and task, the caller's own is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MemberDescriptorType
from typing import Any

from shadow.experiment.intercept import Call, label_of, wrapper_of
from shadow.experiment.storage import held, on_class, store


class Callbacks:
    """Those that one worker holds at the moment. A context manager: entered while a control runs.

    Args:
        worker: None for a static method.
        names: attributes. What holds nothing callable (nobody listens), or is computed by the class, is left as it is.
    """

    def __init__(self, worker: Any, names: Iterable[str]) -> None:
        self._worker = worker
        self.held: dict[str, Any] = {
            name: value
            for name in names
            if worker is not None
            and _is_bound_plainly(worker, name)
            and callable(value := held(worker, name))
        }
        #: By the callable's identity: the name that its calls have on the tape.
        self.labels: dict[int, str] = {}
        for name, value in self.held.items():
            self.labels.setdefault(id(value), label_of(type(worker), name))
        self._wrappers = {
            name: wrapper_of(Call(self.labels[id(value)], value, receives=False, fenced=None))
            for name, value in self.held.items()
        }

    def __enter__(self) -> None:
        for name, wrapper in self._wrappers.items():
            store(self._worker, name, wrapper)

    def __exit__(self, *_: object) -> None:
        for name, wrapper in self._wrappers.items():
            if held(self._worker, name) is wrapper:  # what the control has bound stays
                store(self._worker, name, self.held[name])


def _is_bound_plainly(worker: Any, name: str) -> bool:
    found = on_class(type(worker), name)
    return found is None or type(found[1]) is MemberDescriptorType or not hasattr(type(found[1]), "__set__")
