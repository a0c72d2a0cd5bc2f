"""The world in which a candidate runs: a view of the worker on copied state, and answers for everything else.

Nothing that the candidate does reaches the live process.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any

from shadow.experiment.answers import Answers
from shadow.experiment.audit import accessors
from shadow.experiment.copies import Ref
from shadow.experiment.differ import Differ
from shadow.experiment.intercept import Stop
from shadow.experiment.outcome import Returned
from shadow.experiment.stage import Stage
from shadow.experiment.storage import MISSING, class_data, held, on_class, stored
from shadow.experiment.views import view_of


class World(Answers):
    """One candidate's world.

    Raises:
        Unviewable: the worker's class would notice a view of it.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._worker = stage.worker
        self._checked: dict[str, str | None] = {}
        #: Attributes of the worker not yet asked for.
        self.pending: dict[str, Any] = dict(stage.attributes)
        #: What the candidate gets in the place of the worker; None for a static method.
        self.view: Any = None if stage.worker is None else view_of(type(stage.worker), self)

    def shown(self, value: Any) -> Any:
        return self._worker if value is self.view else super().shown(value)

    def _stand_in(self, real: Any) -> Any:
        return self.view if real is self._worker else super()._stand_in(real)

    def view_get(self, name: str, plain: Callable[[], Any]) -> Any:
        if self.stopped is not None:
            raise Stop
        if name in self.pending:
            self._load(name)
        elif name == "__dict__":
            for pending in list(self.pending):
                self._load(pending)
        self._check(name)
        return plain()

    def view_set(self, name: str, plain: Callable[[], None]) -> None:
        self._check(name)
        self.pending.pop(name, None)
        plain()

    def view_delete(self, name: str, plain: Callable[[], None]) -> None:
        if name in self.pending:
            self._load(name)
        self._check(name)
        plain()

    def _load(self, name: str) -> None:
        """Gives the view an attribute that the worker, or its class, holds."""
        stage, pristine = self.stage, self.pending.pop(name)
        if name in stage.unavailable:
            self.stop(f"reads self.{name}: {stage.unavailable[name]}")
        if pristine is MISSING:
            live = (class_data(type(self._worker)) | stored(self._worker)).get(name, MISSING)
            if live is MISSING:
                return
            if not stage.lazy:
                stage.lessons.attributes.add(name)
                self.unsure(f"reads self.{name}, which was not copied beforehand")
            pristine = stage.snapshot.take(live)
            stage.attributes[name] = pristine
        object.__setattr__(self.view, name, self.thaw(pristine))

    def _check(self, name: str) -> None:
        """Stops before a method or property of the worker runs that must not run twice."""
        if name not in self._checked:
            self._checked[name] = self._why_not(name)
        if (reason := self._checked[name]) is not None:
            self.stop(reason)

    def _why_not(self, name: str) -> str | None:
        found = on_class(type(self._worker), name)
        if found is None or found[0] is object:
            return None
        value = found[1]
        if isinstance(value, classmethod):
            return f"calls the class method {name}"
        for function in accessors(value):
            if (reason := self.stage.auditor.function(function)) is not None:
                return reason
        if accessors(value) or isinstance(value, MemberDescriptorType) or not hasattr(type(value), "__get__"):
            return None
        return f"uses {name}, a {type(value).__name__} of the class"

    def compare_state(self, differ: Differ) -> None:
        """What both sides left behind: the worker, the objects around it, and what calls handed out."""
        if self._worker is not None:
            live = class_data(type(self._worker)) | stored(self._worker)
            left = self._left()
            for name in [*live, *(name for name in left if name not in live)]:
                theirs = left.get(name, MISSING)
                if theirs is MISSING and name in self.pending:
                    continue  # never copied, never asked for
                differ.compare(live.get(name, MISSING), theirs, f"self.{name}")
        for (_, name), value in self.stage.recorder.written.items():
            if not self.set_last(value, name):
                differ.compare(held(value, name), MISSING, f"{type(value).__qualname__}.{name}")
        for (_, name), (real, value, _) in self.overlay.items():
            if self.set_last(real, name):
                differ.compare(held(real, name), value, f"{type(real).__qualname__}.{name}")
        for live_value, where, copied, thawed in self.loaded.values():
            if type(copied) is not Ref and self._changed(copied, thawed):
                differ.compare(live_value, thawed, where)
        for index, (op, answer) in enumerate(self.given):
            # Floating-point tensors are parts of a pool, which others write to, and so is memory that
            # a later call handed out as another view: only what the candidate wrote counts.
            wrote = isinstance(op.outcome, Returned) and self._changed(op.outcome.value, answer)
            apart = frozenset() if wrote else self.stage.recorder.refills.superseded
            path = f"result of call {index + 1} {op.label}"
            differ.compare(op.result, answer, path, floats=wrote, apart=apart)

    def _left(self) -> dict[str, Any]:
        """The worker's attributes as the candidate left them; copies where it did not ask for them."""
        own = stored(self.view)
        own.pop("_shadow_world_", None)
        return {name: value for name, value in self.pending.items() if value is not MISSING} | own

    def _changed(self, copied: Any, thawed: Any) -> bool:
        return not Differ(self.shown).compare(copied, thawed, "")
