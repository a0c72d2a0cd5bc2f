"""The state that a candidate starts from: live data copied, and what cannot be copied told apart from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from shadow.experiment import arrays
from shadow.experiment.copies import (
    LOCKS,
    Bound,
    Copier,
    Ref,
    TooLarge,
    fresh_lock,
    kind_of,
)
from shadow.experiment.randomness import forked_generator


class _NotData(Exception):
    """Inside an object that is copied whole, something was met that cannot be copied."""


class Policy:
    """What is data and what is not, remembered over the calls of one gate.

    Args:
        runs_twice: says of a function or class why it cannot run twice, or None.
        met: called once for each class whose instances are copied.
    """

    def __init__(self, runs_twice: Callable[[Any], str | None], met: Callable[[type], None]) -> None:
        self.runs_twice = runs_twice
        self._met = met
        #: Classes that were seen to hold something that cannot be copied.
        self.collaborators: set[type] = set()
        self._kinds: dict[type, str] = {}

    def kind_of(self, kind: type) -> str:
        """As `copies.kind_of`, with what was learned since."""
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = kind_of(kind)
            if found in ("record", "object"):
                self._met(kind)
        return "collaborator" if kind in self.collaborators else found


class Snapshot(Copier):
    """Copies live state. `keep` are objects that are not to be copied whatever they are (the worker, pools)."""

    def __init__(self, policy: Policy, keep: Sequence[Any] = (), **limits: Any) -> None:
        super().__init__(**limits)
        self._policy = policy
        self._whole = 0
        self._log: list[int] = []
        self._kept = {id(value) for value in keep}
        for value in keep:
            super()._remember(value, Ref(value))

    def copy(self, value: Any) -> Any:
        copied = super().copy(value)
        if self._whole and type(copied) is Ref and id(value) not in self._kept:
            raise _NotData  # met before, and not copied then either
        return copied

    def is_ref(self, value: Any) -> bool:
        """Whether this very object was met and not copied."""
        found = self._memo.get(id(value))
        return found is not None and type(found[1]) is Ref

    def take(self, value: Any) -> Any:
        """As `copy`; when it is too large, nothing of it is remembered."""
        mark = len(self._log)
        try:
            return self.copy(value)
        except TooLarge:
            self._forget(mark)
            raise

    def _remember(self, value: Any, made: Any) -> Any:
        self._log.append(id(value))
        return super()._remember(value, made)

    def _forget(self, mark: int) -> None:
        for key in self._log[mark:]:
            self._memo.pop(key, None)
        del self._log[mark:]

    def _other(self, value: Any, kind: type) -> Any:
        if arrays.is_tensor(value) or arrays.is_ndarray(value):
            if self._whole and arrays.is_floating(value):
                raise _NotData  # a pool, a cache, weights: never used twice
            return self._array(value)
        if kind in LOCKS:
            return fresh_lock(kind)
        if (generator := forked_generator(value)) is not None:
            return generator
        if kind is MethodType:
            return Bound(value.__name__, self.copy(value.__self__))
        if issubclass(kind, type) or kind in (FunctionType, BuiltinFunctionType):
            closed = kind is FunctionType and value.__closure__ is not None
            return self._ref(value) if closed or self._policy.runs_twice(value) else value
        what = self._policy.kind_of(kind)
        if what == "shared":
            return value
        if what == "record":
            return self._object(value, kind)
        return self._whole_object(value, kind) if what == "object" else self._ref(value)

    def _ref(self, value: Any) -> Ref:
        if self._whole and id(value) not in self._kept:
            raise _NotData
        return Ref(value)

    def _whole_object(self, value: Any, kind: type) -> Any:
        """Copied whole, or not at all when something in it cannot be copied: then it is a collaborator."""
        mark = len(self._log)
        self._whole += 1
        try:
            return self._object(value, kind)
        except _NotData:
            self._policy.collaborators.add(kind)
            self._forget(mark)
        finally:
            self._whole -= 1
        return self._ref(value)
