"""What the control did to objects that cannot be copied: its calls, in order, with arguments and answers.

Only calls that the code under comparison makes itself are recorded, not those that the called objects make in
turn. Beside them, each rebinding of an attribute of such an object is noted, with the call after which it held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shadow.experiment.copies import Ref
from shadow.experiment.differ import Differ
from shadow.experiment.intercept import Call
from shadow.experiment.live_data import Change, LiveData
from shadow.experiment.outcome import Outcome, Raised, Returned
from shadow.experiment.refills import Refill, Refills
from shadow.experiment.snapshot import Policy, Snapshot
from shadow.experiment.storage import MISSING, stored


@dataclass(eq=False)
class Op:
    """One call. Arguments and results are copies of that moment; `Ref`s stand for what is not copied."""

    label: str
    #: The object that was called, None for functions and for data objects (then it is the first argument).
    receiver: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outcome: Outcome | None = None
    #: Copies of args and kwargs after the call, where the call changed them, and whose copies they are.
    after: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    originals: dict[int, Any] = field(default_factory=dict)
    #: What it changed of containers that earlier properties handed out.
    changes: list[Change] = field(default_factory=list)
    #: Buffers in its answer that earlier answers held with other numbers.
    refills: list[Refill] = field(default_factory=list)
    is_property: bool = False
    #: Which argument the result is, or None.
    alias: int | None = None
    #: The live result, to be looked at again when the control is done.
    result: Any = None


class Recorder:
    """The tape of one control run.

    Args:
        keep: live objects that are never copied, the worker among them.
        snapshot: the state that the candidate will start from; results are added to it.
        met: told of each object in an answer that is not copied.
        lazy: nothing was copied beforehand.
    """

    def __init__(
        self,
        policy: Policy,
        keep: list[Any],
        snapshot: Snapshot,
        met: Callable[[Any], None] = lambda value: None,
        *,
        lazy: bool = False,
    ) -> None:
        self.lazy = lazy
        self.ops: list[Op] = []
        #: What went wrong while recording; the tape is then worth nothing.
        self.broken: BaseException | None = None
        self.depth = 0
        self.snapshot = snapshot
        self._policy, self._keep, self._met = policy, keep, met
        self._handed = LiveData(self._fresh)
        self.refills = Refills()
        #: (object, attribute) that the control bound itself, between calls.
        self.written: dict[tuple[int, str], Any] = {}
        self._watched: dict[int, Any] = {}
        self._start: dict[int, dict[str, Any]] = {}
        self._last: dict[int, dict[str, Any]] = {}
        #: (object, attribute) -> (calls made before, whether the control itself did it, what it was bound to).
        self._history: dict[tuple[int, str], list[tuple[int, bool, Any]]] = {}

    def watch(self, value: Any) -> None:
        """Notes from now on how the attributes of a collaborator are bound."""
        if id(value) not in self._watched:
            self._watched[id(value)] = value
            self._start[id(value)] = self._last[id(value)] = stored(value)

    def is_watched(self, value: Any) -> bool:
        return id(value) in self._watched

    def binding(self, value: Any, name: str, calls: int, *, own: bool = False) -> tuple[int, Any]:
        """(calls made before it was bound, what to) as of that many calls.

        Bindings by the control itself count only with `own`: the candidate has to make them, too.
        """
        found = (0, self._start[id(value)].get(name, MISSING))
        for after, was_own, bound in self._history.get((id(value), name), ()):
            if after <= calls and (own or not was_own):
                found = (after, bound)
        return found

    def own_bindings(self, calls: int) -> list[tuple[Any, str]]:
        """What the control itself bound between that many calls and the next."""
        return [
            (self._watched[key], name)
            for (key, name), history in self._history.items()
            if any(was_own and after == calls for after, was_own, _ in history)
        ]

    def look(self, *, own: bool) -> None:
        """Notes rebindings since the last look; `own`: by the control itself, not by something it called."""
        for key, value in self._watched.items():
            now, last = stored(value), self._last[key]
            if now.keys() == last.keys() and all(now[name] is last[name] for name in now):
                continue
            self._last[key] = now
            for name in {*now, *last}:
                bound = now.get(name, MISSING)
                if bound is last.get(name, MISSING):
                    continue
                self._history.setdefault((key, name), []).append((len(self.ops), own, bound))
                if own:
                    self.written[key, name] = value
                else:
                    self.written.pop((key, name), None)

    def wants(self, call: Call, args: tuple[Any, ...]) -> bool:
        """Whether a call belongs on the tape: what it is made on is not copied, or it must not run twice."""
        if self.depth or self.broken:
            return False
        if not call.receives or not args:
            return True
        if self.lazy:
            self.snapshot.take(args[0])  # nothing was looked at beforehand
        elif not self.snapshot.knows(args[0]):
            return False  # made by the control itself: the candidate makes and calls its own
        return self.snapshot.is_ref(args[0]) or call.fenced is not None

    def begin(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Op:
        self.look(own=True)
        receiver = None
        if call.receives and args and self.snapshot.is_ref(args[0]):
            receiver, args = args[0], args[1:]
        fresh = self._fresh()
        op = Op(call.label, receiver, fresh.take(args), fresh.take(kwargs), is_property=call.is_property)
        self.ops.append(op)
        self._handed.call_begins()
        return op

    def finish(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], outcome: Outcome) -> None:
        if op.receiver is not None:
            args = args[1:]
        fresh = self._fresh()
        after = (fresh.take(args), fresh.take(kwargs))
        check = Differ(real=lambda value: value.real if type(value) is Ref else value)
        check.compare((op.args, op.kwargs), after, "")
        if check.differences:
            op.after = after
            op.originals = {id(copy): real for real, copy in fresh.pairs()}
        op.changes = self._handed.call_ended()
        if isinstance(outcome, Raised):
            op.outcome = Raised(exception_copy(outcome.error))
        elif isinstance(outcome, Returned):
            op.result = outcome.value
            op.alias = next((i for i, arg in enumerate(args) if arg is op.result and arg is not None), None)
            known = len(self.snapshot.pairs())
            op.outcome = Returned(self.snapshot.take(op.result))
            if op.is_property and not self.snapshot.is_ref(op.result):
                self._handed.follow(op.result, f"result of call {len(self.ops)} {op.label}")
            op.refills = [one for one in self.refills.look(op.result) if not self.snapshot.is_ref(one.live)]
            for _, copied in self.snapshot.pairs()[known:]:
                if type(copied) is Ref:
                    self._met(copied.real)
        self.look(own=False)

    def _fresh(self) -> Snapshot:
        return Snapshot(self._policy, self._keep)


def exception_copy(error: BaseException) -> BaseException:
    """Another exception of the same class and arguments: raising one changes it."""
    made = type(error).__new__(type(error), *error.args)
    made.args = error.args
    vars(made).update(vars(error))
    return made


class Recording:
    """The recorders that see the calls of a control: its own and those of the controls that it runs within."""

    answers = False

    def __init__(self, recorders: tuple[Recorder, ...]) -> None:
        self.recorders = recorders

    def through(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        begun = self._begin(call, args, kwargs)
        try:
            value = call.original(*args, **kwargs)
        except BaseException as error:
            self._finish(begun, args, kwargs, Raised(error))
            raise
        self._finish(begun, args, kwargs, Returned(value))
        return value

    async def through_async(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        begun = self._begin(call, args, kwargs)
        try:
            value = await call.original(*args, **kwargs)
        except BaseException as error:
            self._finish(begun, args, kwargs, Raised(error))
            raise
        self._finish(begun, args, kwargs, Returned(value))
        return value

    def _begin(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Recorder, Op]]:
        begun: list[tuple[Recorder, Op]] = []
        for recorder in self.recorders:

            def note(recorder: Recorder = recorder) -> None:
                if recorder.wants(call, args):
                    begun.append((recorder, recorder.begin(call, args, kwargs)))

            _harmless(recorder, note)
        for recorder, _ in begun:
            recorder.depth += 1
        return begun

    def _finish(
        self,
        begun: list[tuple[Recorder, Op]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outcome: Outcome,
    ) -> None:
        for recorder, op in begun:
            recorder.depth -= 1
            _harmless(recorder, lambda r=recorder, o=op: r.finish(o, args, kwargs, outcome))  # type: ignore[misc]


def _harmless(recorder: Recorder, note: Callable[[], None]) -> None:
    """Whatever goes wrong in noting a call must not reach the code that makes it."""
    try:
        note()
    except KeyboardInterrupt:
        raise
    except BaseException as fault:
        recorder.broken = fault
