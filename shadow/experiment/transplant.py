"""Does to the candidate's arguments what a recorded call did to the control's."""

from __future__ import annotations

from collections import deque
from typing import Any

from shadow.experiment import arrays
from shadow.experiment.copies import Ref, Thaw
from shadow.experiment.snapshot import Snapshot
from shadow.experiment.storage import store, stored

_LEAVES = (bool, int, float, complex, str, bytes, type(None))


class Transplant:
    """Gives objects of one world the content of copies taken after a call.

    Args:
        originals: id of a copy -> the live object that it is a copy of.
    """

    def __init__(self, thaw: Thaw, snapshot: Snapshot, originals: dict[int, Any]) -> None:
        self._thaw, self._snapshot, self._originals = thaw, snapshot, originals
        self._done: set[int] = set()

    def apply(self, target: Any, after: Any) -> Any:
        """`target` with the content of `after`, changed in place where it can be; else what to put there instead."""
        kind = type(after)
        if kind in _LEAVES or kind is Ref:
            return self._thaw.copy(after)
        target = self._counterpart(target, after)
        if id(after) in self._done:
            return target
        self._done.add(id(after))
        if type(target) is not kind:
            return self._thaw.copy(after)
        if arrays.is_tensor(target) or arrays.is_ndarray(target):
            return target if arrays.overwrite(target, after) else self._thaw.copy(after)
        if issubclass(kind, list | deque):
            old = list(target)
            target.clear()
            target.extend(self._pairwise(old, after))
        elif issubclass(kind, tuple):
            items = self._pairwise(list(target), after)
            if any(new is not old for new, old in zip(items, target, strict=False)) or len(items) != len(
                target
            ):
                return kind(items) if kind is tuple else self._thaw.copy(after)
        elif issubclass(kind, dict):
            old_items = dict(target)
            target.clear()
            for key, item in after.items():
                target[self._thaw.copy(key)] = self.apply(old_items.get(key), item)
        elif issubclass(kind, set):
            target.clear()
            target.update(map(self._thaw.copy, after))
        elif not stored(after):
            return self._thaw.copy(after)
        for name, item in stored(after).items():
            store(target, name, self.apply(stored(target).get(name), item))
        return target

    def _pairwise(self, old: list[Any], after: Any) -> list[Any]:
        return [self.apply(old[i] if i < len(old) else None, item) for i, item in enumerate(after)]

    def _counterpart(self, target: Any, after: Any) -> Any:
        """The candidate's own copy of the object that `after` shows, where it has one."""
        real = self._originals.get(id(after))
        if real is not None and self._snapshot.knows(real):
            return self._thaw.copy(self._snapshot.copy(real))
        return target
