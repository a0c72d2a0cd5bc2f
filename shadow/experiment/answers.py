"""Answers a candidate from the control's tape, for everything that is not copied.

What cannot be answered stops the candidate; nothing is compared then, and the reason is kept.
"""

from __future__ import annotations

import inspect
from types import CoroutineType, FunctionType, MemberDescriptorType, MethodType
from typing import Any

from shadow.experiment import arrays, intercept
from shadow.experiment.brief import brief
from shadow.experiment.copies import Bound, Ref, Thaw
from shadow.experiment.differ import Differ, Difference, Nature
from shadow.experiment.intercept import Call, Stop
from shadow.experiment.outcome import Raised, Returned
from shadow.experiment.stage import Stage
from shadow.experiment.storage import MISSING, held, is_a, on_class
from shadow.experiment.tape import Op, exception_copy
from shadow.experiment.transplant import Transplant
from shadow.experiment.views import Remote, RemoteCall, is_remote, real_of, remote_for


class Answers:
    """The side of a candidate's world that stands in for live objects."""

    answers = True

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        #: Why the candidate was stopped.
        self.stopped: str | None = None
        #: The candidate went on, but what it was shown was not certain to be what the control saw.
        self.unsound: str | None = None
        #: Where it left the control's calls.
        self.parted: list[Difference] = []
        #: How many of the control's calls it has made.
        self.next = 0
        self._thaw = Thaw(self._stand_in, self._bound)
        self._remotes: dict[int, Any] = {}
        self._reached: dict[int, tuple[type, str]] = {}
        #: Objects that nobody knew of while the control ran: their calls are not on the tape.
        self._unheard: set[int] = set()
        #: (object, attribute) -> the object, what the candidate set the attribute to, after how many calls.
        self.overlay: dict[tuple[int, str], tuple[Any, Any, int]] = {}
        #: (object, attribute) -> live value, shown name, copy, and what the candidate was given.
        self.loaded: dict[tuple[int, str], tuple[Any, str, Any, Any]] = {}
        #: Calls whose answers the candidate was given.
        self.given: list[tuple[Op, Any]] = []

    def thaw(self, pristine: Any) -> Any:
        """The candidate's own copy of something in the snapshot; the same one each time."""
        return self._thaw.copy(pristine)

    def real(self, value: Any) -> Any:
        """What a stand-in stands for, and this candidate's own copy for one in the snapshot."""
        return self.shown(self._thaw.copy_of(value))

    def shown(self, value: Any) -> Any:
        """What a stand-in stands for, in the candidate's world or in the snapshot."""
        kind = type(value)
        if kind in (list, dict, tuple, set):
            return value
        return unwrapped(real_of(value) if issubclass(kind, Remote) else value)

    def stop(self, reason: str) -> Any:
        self.stopped = self.stopped or reason
        raise Stop

    def unsure(self, reason: str) -> None:
        self.unsound = self.unsound or reason

    def _stand_in(self, real: Any) -> Any:
        if id(real) not in self._remotes:
            self._remotes[id(real)] = remote_for(real, self)
        return self._remotes[id(real)]

    def _bound(self, owner: Any, name: str) -> Any:
        return RemoteCall(self, real_of(owner), name) if is_remote(owner) else getattr(owner, name)

    # attributes

    def read(self, real: Any, name: str) -> Any:
        """An attribute of a remote: its data as it was at this point of the tape, or something to call."""
        if self.stopped is not None:
            raise Stop
        cls = type(real)
        if name == "__class__":
            return cls
        if self.set_last(real, name):
            return self.overlay[id(real), name][1]
        found = on_class(cls, name)
        if found is not None and is_a(found[1], property):
            return self.call(real, name, (), {})
        value = self._held(real, name)
        if value is not MISSING:
            return value
        if found is None:
            if on_class(cls, "__getattr__") is not None:
                self.stop(f"reads {cls.__qualname__}.{name} through __getattr__")
            raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}", name=name, obj=None)
        member = found[1]
        if is_a(member, FunctionType | staticmethod) or (callable(member) and not is_a(member, type)):
            return RemoteCall(self, real, name)
        if hasattr(type(member), "__get__"):
            self.stop(f"reads {cls.__qualname__}.{name}, a {type(member).__name__}")
        return self.thaw(self.stage.snapshot.take(member))

    def _held(self, real: Any, name: str) -> Any:
        """What the instance itself holds under a name, after the calls made so far."""
        snapshot, where = self.stage.snapshot, f"{type(real).__qualname__}.{name}"
        live = held(real, name) if self.stage.lazy else self._held_then(real, name, where)
        if live is MISSING:
            return MISSING
        known = self.loaded.get((id(real), name))
        if known is not None and known[0] is live:
            return known[3]
        was_known = self.stage.lazy or snapshot.knows(live)
        copied = snapshot.take(live)
        if type(copied) is Ref:
            self._reached.setdefault(id(copied.real), (type(real), name))
            if not was_known:
                self._unheard.add(id(copied.real))
        elif copied is not live and not was_known:
            self.stage.lessons.deep.add((type(real), name))
            self.unsure(f"reads {where}, which was not copied beforehand")
        thawed = self.thaw(copied)
        self.loaded[id(real), name] = (live, where, copied, thawed)
        return thawed

    def _held_then(self, real: Any, name: str, where: str) -> Any:
        recorder = self.stage.recorder
        if recorder.is_watched(real):
            return recorder.binding(real, name, self.next)[1]
        live = held(real, name)
        if live is not MISSING:
            if id(real) not in self._reached:
                self.stop(f"reads {where}, whose earlier values were not recorded")
            self.stage.lessons.descend.add(self._reached[id(real)])
            self.unsure(f"reads {where}, which was not watched")
        return live

    def write(self, real: Any, name: str, value: Any) -> None:
        """An attribute of a remote is set: only for this candidate to see."""
        found = on_class(type(real), name)
        if found is not None and not is_a(found[1], MemberDescriptorType):
            if hasattr(type(found[1]), "__set__"):
                self.stop(f"sets {type(real).__qualname__}.{name}, a {type(found[1]).__name__}")
        self.overlay[id(real), name] = (real, value, self.next)

    def set_last(self, real: Any, name: str) -> bool:
        """Whether what an attribute is bound to now was set by the candidate, and not by a later call."""
        if (id(real), name) not in self.overlay:
            return False
        after, recorder = self.overlay[id(real), name][2], self.stage.recorder
        return not recorder.is_watched(real) or recorder.binding(real, name, self.next)[0] <= after

    def hand_out(self, real: Any, name: str) -> Any:
        return self.stop(f"uses {name} of {type(real).__qualname__}, which cannot be recorded")

    # calls

    def call(self, real: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a method, or a read of a property, of a remote."""
        if name == "__call__" and id(real) in self.stage.callbacks:
            return self._answer(real, self.stage.callbacks[id(real)], None, args, kwargs)
        cls = type(real)
        if id(real) in self._unheard:
            self.stage.lessons.descend.add(self._reached[id(real)])
            self.stop(f"calls {cls.__qualname__}.{name}, which was not listened to")
        found = on_class(cls, name)
        if found is None or not intercept.is_taped(cls, name):
            self._tape_from_now_on(real, name)
        owner, member = found if found is not None else (cls, None)
        label = intercept.label_of(owner, name)
        if is_a(member, staticmethod):
            return self._replay(label, None, args, kwargs)
        return self._answer(member, label, real, args, kwargs)

    def _answer(
        self, member: Any, label: str, receiver: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if inspect.iscoroutinefunction(member):

            async def answer() -> Any:
                return self._replay(label, receiver, args, kwargs)

            return answer()
        return self._replay(label, receiver, args, kwargs)

    def _tape_from_now_on(self, real: Any, name: str) -> None:
        what = f"{type(real).__qualname__}.{name}"
        if is_a(real, FunctionType):
            self.stop(f"calls the function {real.__qualname__}, which cannot be recorded")
        intercept.tape_class(type(real))
        if not intercept.tape(type(real), name):
            self.stop(f"calls {what}, which cannot be recorded")
        self.unsure(f"calls {what}, which is recorded from now on")
        self.stop(f"calls {what}, which is recorded from now on")

    def through(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that a wrapper caught while this candidate ran."""
        if self.stopped is not None:
            raise Stop
        if not call.receives or not args:
            return self._replay(call.label, None, args, kwargs)
        receiver = args[0]
        if is_remote(receiver):
            return self._replay(call.label, real_of(receiver), args[1:], kwargs)
        if self.stage.snapshot.is_ref(receiver):  # reached past its stand-in
            return self._replay(call.label, receiver, args[1:], kwargs)
        if call.fenced is not None and self._thaw.is_own(receiver):
            return self._replay(call.label, None, args, kwargs)
        reason = call.fenced or self.stage.auditor.function(call.original)
        return call.original(*args, **kwargs) if reason is None else self.stop(reason)

    async def through_async(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = self.through(call, args, kwargs)
        return await answer if is_a(answer, CoroutineType) else answer

    def _replay(self, label: str, receiver: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The control's answer to the next call on the tape, if it is this one."""
        ops, where = self.stage.recorder.ops, f"call {self.next + 1}"
        if self.next >= len(ops):
            self._part(where, Nature.EXTRA, "(no further call)", spelled(label, args, kwargs))
        op = ops[self.next]
        if op.label != label or op.receiver is not receiver:
            self._part(
                where, Nature.VALUE, spelled(op.label, op.args, op.kwargs), spelled(label, args, kwargs)
            )
        differ = Differ(self.real)
        self._compare_bindings(differ, where)
        differ.compare(op.args, args, f"{where} {label}")
        differ.compare(op.kwargs, kwargs, f"{where} {label}")
        copies = [self.thaw(self.stage.snapshot.copy(change.live)) for change in op.changes]
        for change, copy in zip(op.changes, copies, strict=True):
            differ.compare(change.before, copy, change.where)
        if differ.differences:
            self.parted += differ.differences
            self.stop("parted from the control's calls")
        self.next += 1
        if op.after is not None:
            Transplant(self._thaw, self.stage.snapshot, op.originals).apply((args, kwargs), op.after)
        for change, copy in zip(op.changes, copies, strict=True):
            Transplant(self._thaw, self.stage.snapshot, change.originals).apply(copy, change.after)
        self._refill(op, where)
        if isinstance(op.outcome, Raised):
            raise exception_copy(op.outcome.error)
        if op.alias is not None:
            return args[op.alias]
        if not isinstance(op.outcome, Returned):
            return self.stop(f"calls {label}, of which the control did not see the end")
        answer = self.thaw(op.outcome.value)
        self.given.append((op, answer))
        return answer

    def _refill(self, op: Op, where: str) -> None:
        """Gives the buffers in an answer the numbers that the control found in them."""
        for refill in op.refills:
            copy = self.thaw(self.stage.snapshot.copy(refill.live))
            if arrays.same(copy, refill.after):
                continue
            differ = Differ(self.real)
            if not differ.compare(refill.before, copy, f"what was handed out before {where} {op.label}"):
                self.parted += differ.taken()
                self.stop("parted from the control's calls")
            arrays.overwrite(copy, refill.after)

    def _compare_bindings(self, differ: Differ, where: str) -> None:
        """Attributes of collaborators that either side has set since the last call: the next one may read them."""
        recorder = self.stage.recorder
        touched = {(id(real), name): real for real, name in recorder.own_bindings(self.next)}
        touched |= {key: real for key, (real, _, after) in self.overlay.items() if after == self.next}
        for (key, name), real in touched.items():
            if not recorder.is_watched(real):
                continue
            ours = recorder.binding(real, name, self.next, own=True)[1]
            theirs = (
                self.overlay[key, name][1]
                if self.set_last(real, name)
                else recorder.binding(real, name, self.next)[1]
            )
            differ.compare(ours, theirs, f"{type(real).__qualname__}.{name} before {where}")

    def _part(self, path: str, nature: Nature, control: str, candidate: str) -> None:
        self.parted.append(Difference(path, nature, control, candidate))
        self.stop("parted from the control's calls")


def unwrapped(value: Any) -> Any:
    """The live object that a `Ref` stands for; bound methods by name."""
    if type(value) is Ref:
        value = value.real
    if type(value) in (MethodType, RemoteCall):
        return ("bound method", value.__name__)
    return ("bound method", value.name) if type(value) is Bound else value


def spelled(label: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A call as one would write it."""
    parts = [brief(arg, 40) for arg in args] + [f"{name}={brief(arg, 40)}" for name, arg in kwargs.items()]
    return f"{label}({', '.join(parts)})"
