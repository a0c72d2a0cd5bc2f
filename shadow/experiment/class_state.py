"""State that gated methods keep on classes: put back for each candidate, and compared afterwards.

Only for classes that a gate names: while a candidate runs, their attributes are its own, for every thread.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from shadow.experiment.copies import Ref, TooLarge
from shadow.experiment.differ import Differ
from shadow.experiment.snapshot import Snapshot
from shadow.experiment.storage import MISSING, class_dict
from shadow.experiment.world import World

Bindings = dict[str, Any]


def find_class(path: str) -> type:
    """The class at "package.module.Name", which must be imported.

    Raises:
        LookupError: there is none.
    """
    module, _, name = path.rpartition(".")
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    if not isinstance(found, type):
        raise LookupError(f"{path}, named as shared by the gate, is not a class of a loaded module")
    return found


class ClassState:
    """The attributes of some classes, as they were before the control; and after it, once it has ended."""

    def __init__(self, classes: Iterable[type], snapshot: Snapshot) -> None:
        self._before = {cls: {n: _taken(v, snapshot) for n, v in _data(cls).items()} for cls in classes}
        self._after: dict[type, Bindings] = {}

    def control_ended(self) -> None:
        self._after = {cls: dict(class_dict(cls)) for cls in self._before}

    @contextlib.contextmanager
    def set_for(self, world: World) -> Iterator[dict[type, Bindings]]:
        """The state before the control, for a candidate; what it leaves is in the dict afterwards."""
        left: dict[type, Bindings] = {}
        try:
            for cls, names in self._before.items():
                for name in _data(cls).keys() - names.keys():
                    type.__delattr__(cls, name)
                for name, value in names.items():
                    type.__setattr__(cls, name, world.thaw(value))
            yield left
        finally:
            for cls, wanted in self._after.items():
                left[cls] = dict(class_dict(cls))
                _put_back(cls, left[cls], wanted)

    def compare(self, left: dict[type, Bindings], differ: Differ) -> None:
        """The control's state against what a candidate left."""
        for cls, after in self._after.items():
            ours, theirs = _data(cls, after), _data(cls, left[cls])
            for name in dict.fromkeys((*ours, *theirs)):
                where = f"{cls.__qualname__}.{name}"
                differ.compare(ours.get(name, MISSING), theirs.get(name, MISSING), where)


def _put_back(cls: type, now: Bindings, wanted: Bindings) -> None:
    """Each attribute on its own: nothing that goes wrong with one may keep the others from it."""
    for name in {*now, *wanted}:
        value = wanted.get(name, MISSING)
        if value is not now.get(name, MISSING):
            with contextlib.suppress(AttributeError, TypeError):
                if value is MISSING:
                    type.__delattr__(cls, name)
                else:
                    type.__setattr__(cls, name, value)


def _data(cls: type, bindings: Mapping[str, Any] | None = None) -> Bindings:
    """What is bound to the class as data: no methods, no properties; a function that was set later is data."""
    return {
        name: value
        for name, value in (class_dict(cls) if bindings is None else bindings).items()
        if not (name.startswith("__") and name.endswith("__")) and not _belongs(cls, value)
    }


def _belongs(cls: type, value: Any) -> bool:
    kind = type(value)
    if kind is FunctionType:
        return value.__qualname__.startswith(f"{cls.__qualname__}.")
    return hasattr(kind, "__get__") or issubclass(kind, type)


def _taken(value: Any, snapshot: Snapshot) -> Any:
    try:
        return snapshot.take(value)
    except TooLarge:
        return Ref(value)
