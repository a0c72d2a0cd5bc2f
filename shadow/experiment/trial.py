"""One compared call: what is copied and recorded beforehand, and both sides put next to each other afterwards.

Before a method's comparisons count, its legacy body is run against itself in the same isolation. Where that
already differs (a clock, an effect of a called object that the copies do not show), the isolation does not hold,
and the method is not compared; likewise a difference of the handler that the legacy body shows too is no finding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

from shadow.experiment import intercept
from shadow.experiment.answers import spelled, unwrapped
from shadow.experiment.audit import Auditor, accessors
from shadow.experiment.callbacks import Callbacks
from shadow.experiment.candidate import Finding, compare_outcomes, handed_out, run
from shadow.experiment.class_state import ClassState
from shadow.experiment.copies import Ref, TooLarge
from shadow.experiment.differ import Differ, Difference, Nature
from shadow.experiment.effects import Isolated, Pure
from shadow.experiment.ledger import Kind
from shadow.experiment.outcome import Outcome, TimedOut
from shadow.experiment.randomness import Randomness
from shadow.experiment.snapshot import Policy, Snapshot
from shadow.experiment.stage import Lessons, Stage
from shadow.experiment.storage import MISSING, class_data, class_dict, mro, stored
from shadow.experiment.tape import Recorder
from shadow.experiment.world import World

Side = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_DEEPEST = 4


@dataclass(eq=False)
class Method:
    """What is known of one gated method."""

    name: str
    effect: Pure | Isolated
    auditor: Auditor
    #: Call a side with (view of the worker, args, kwargs).
    legacy: Side
    handler: Side
    #: The parameter that holds the key: its name, and its position or -1.
    key: tuple[str, int] | None = None
    lessons: Lessons = field(default_factory=Lessons)
    #: The legacy body was equal to itself in isolation.
    proved: bool = False
    #: Why it will not be compared any more, or None.
    never: str | None = None
    #: How often the proof was tried in vain.
    attempts: int = 0
    compared: int = 0
    #: Copy the state beforehand: it writes, or it is not known whether it does.
    isolated: bool = True


@dataclass(frozen=True)
class Examined:
    """`skipped`: why nothing was compared, or None. `note`: something to tell once."""

    findings: tuple[Finding, ...] = ()
    values: int = 0
    skipped: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class _Seen:
    findings: tuple[Finding, ...] = ()
    values: int = 0
    unusable: str | None = None


class Trial:
    """Prepares in its constructor; then `recorder` is to be active while the control runs, then `examine`.

    Args:
        owner: the worker, None for a static method.
        taped: live objects that are not to be copied.
        callbacks: to be entered, too, while the control runs.
        shared: classes whose attributes the method may set.

    Raises:
        TooLarge: the arguments are more than is worth copying.
    """

    def __init__(
        self,
        method: Method,
        policy: Policy,
        owner: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        taped: list[Any],
        callbacks: Callbacks,
        shared: Iterable[type] = (),
    ) -> None:
        self._method, self._owner = method, owner
        self._args, self._kwargs = args, kwargs
        keep = [value for value in (owner, *taped, *callbacks.held.values()) if value is not None]
        snapshot = Snapshot(policy, keep)
        # Pure methods are looked at now and then as if they were not.
        lazy = not method.isolated and method.proved and method.compared & (method.compared - 1) != 0
        self.recorder = Recorder(policy, keep, snapshot, self._watch, lazy=lazy)
        self._stage = Stage(owner, snapshot, self.recorder, method.auditor, method.lessons, lazy)
        self._stage.callbacks |= callbacks.labels
        self.callbacks = callbacks
        self._copies = snapshot.take((args, kwargs))
        if owner is not None:
            self._copy_state()
        self._classes = ClassState(shared, snapshot)
        for value, copied in snapshot.pairs():
            if type(copied) is Ref:
                self._watch(value)
        self._before = self._after = Randomness()

    def _live(self) -> dict[str, Any]:
        """What the worker and its class hold now."""
        return {} if self._owner is None else class_data(type(self._owner)) | stored(self._owner)

    def _copy_state(self) -> None:
        effect, stage = self._method.effect, self._stage
        named = effect.attributes if isinstance(effect, Isolated) else None
        wanted = (self._method.auditor.names if named is None else set(named)) | stage.lessons.attributes
        wanted |= self.callbacks.held.keys()
        for name, value in self._live().items():
            stage.attributes[name] = MISSING
            if not stage.lazy and name in wanted:
                try:
                    stage.attributes[name] = stage.snapshot.take(value)
                except TooLarge as error:
                    stage.unavailable[name] = str(error)

    def _watch(self, value: Any, depth: int = 0) -> None:
        """Follows the attributes that the code names from one object that is not copied to the next."""
        if depth > _DEEPEST or value is self._owner or self.recorder.is_watched(value):
            return
        if issubclass(type(value), FunctionType | type | ModuleType):
            return
        names, lessons = self._method.auditor.names, self._method.lessons
        self.recorder.watch(value)
        _tape_named(type(value), names)
        for name, held in stored(value).items():
            known = (type(value), name) in lessons.deep or (type(value), name) in lessons.descend
            if name in names or known:
                try:
                    copied = self._stage.snapshot.take(held)
                except TooLarge:
                    continue  # whoever asks for it will be told
                if type(copied) is Ref:
                    self._watch(held, depth + 1)

    def examine(self, control: Outcome, *, timeout: float, interleaved: bool = False) -> Examined:
        """Both sides against each other.

        Args:
            timeout: seconds after which a side is broken off.
            interleaved: other tasks ran during the control, what changed may be theirs.
        """
        self._timeout = timeout
        after = self._after = Randomness()
        self.recorder.look(own=True)
        self._classes.control_ended()
        try:
            return self._examine(control, interleaved)
        finally:
            after.restore()

    def _examine(self, control: Outcome, interleaved: bool) -> Examined:
        method, broken = self._method, self.recorder.broken
        if isinstance(broken, TooLarge):
            return Examined(skipped=f"too large: {broken}")
        if broken is not None:
            raise broken
        if what := handed_out(control):
            method.never = f"hands out {what}"
            return Examined(skipped=method.never)
        if not method.proved:
            again = self._seen(control, method.legacy, interleaved)
            if again.unusable is not None or again.findings:
                return self._doubted(again)
            method.proved = True
        note = self._note_on_purity()
        seen = self._seen(control, method.handler, interleaved)
        if seen.unusable is not None:
            return Examined(skipped=seen.unusable, note=note)
        method.compared += 1
        if not seen.findings:
            return Examined(values=seen.values, note=note)
        again = self._seen(control, method.legacy, interleaved)
        if again.unusable is not None:
            method.proved = False
            return self._doubted(again)
        noise = {(kind, difference.path) for kind, difference in again.findings}
        kept = tuple(found for found in seen.findings if (found[0], found[1].path) not in noise)
        if len(kept) < len(seen.findings) and note is None:
            path = next(found.path for kind, found in seen.findings if (kind, found.path) in noise)
            note = f"{method.name}: {path} differs between the legacy body and itself: not compared there"
        return Examined(kept, seen.values, note=note)

    def _doubted(self, seen: _Seen) -> Examined:
        """The legacy body, run against itself in isolation, was stopped or came out differently."""
        method = self._method
        method.attempts += 1
        if seen.unusable is not None:
            return Examined(skipped=f"isolation not proved: {seen.unusable}")
        kind, found = seen.findings[0]
        where = f"{found.path} ({kind}) differs between the legacy body and itself"
        detail = f"{method.name}: {where}: {found.control} against {found.candidate}"
        return Examined(
            skipped=f"isolation not proved: {where}", note=detail if method.attempts == 1 else None
        )

    def _note_on_purity(self) -> str | None:
        """A method that is declared pure is trusted when it was not seen writing, and no longer when it was."""
        method = self._method
        if not isinstance(method.effect, Pure) or self._stage.lazy:
            return None
        if wrote := self._control_wrote():
            method.isolated = True
            return f"{method.name} is declared pure, but the legacy body writes {wrote}: compared as isolated"
        if not method.compared:
            method.isolated = False
        return None

    def _control_wrote(self) -> str | None:
        """What the control changed in the state that was copied."""
        differ, live = Differ(unwrapped), self._live()
        for name in {*live, *self._stage.attributes}:
            copied = self._stage.attributes.get(name, MISSING)
            if copied is not MISSING or name not in self._stage.attributes:
                differ.compare(live.get(name, MISSING), copied, f"self.{name}")
        differ.compare((self._args, self._kwargs), self._copies, "its arguments")
        return differ.differences[0].path if differ.differences else None

    def _seen(self, control: Outcome, side: Side, interleaved: bool) -> _Seen:
        """One side run as a candidate and compared with the control."""
        world = World(self._stage)
        args, kwargs = world.thaw(self._copies)
        self._before.restore()
        with self._classes.set_for(world) as left:
            outcome = run(world, lambda: side(world.view, args, kwargs), self._timeout)
        drawn = Randomness()
        if world.unsound is not None:
            return _Seen(unusable=world.unsound)
        if world.parted:
            return _Seen(tuple((Kind.CALLS, difference) for difference in world.parted), 1)
        if world.stopped is not None:
            return _Seen(unusable=world.stopped)
        if what := handed_out(outcome):
            return _Seen(unusable=f"the handler hands out {what}")
        differ = Differ(world.real)
        findings = compare_outcomes(control, outcome, differ)
        if isinstance(outcome, TimedOut):
            return _Seen(tuple(findings), differ.compared)  # what it left half done says nothing more
        missed = self.recorder.ops[world.next : world.next + 1]
        for op in missed:
            called = spelled(op.label, op.args, op.kwargs)
            where = Difference(f"call {world.next + 1}", Nature.MISSING, called, "(no such call)")
            findings.append((Kind.CALLS, where))
        if not interleaved:
            differ.compare(self._args, args, "args")
            differ.compare(self._kwargs, kwargs, "kwargs")
            findings += [(Kind.ARGUMENT, difference) for difference in differ.taken()]
            world.compare_state(differ)
            self._classes.compare(left, differ)
            differ.compare(self._after.states(), drawn.states(), "random generators")
            findings += [(Kind.STATE, difference) for difference in differ.taken()]
        if differ.cut and not findings:
            return _Seen(unusable="more values than are worth comparing")
        return _Seen(tuple(findings), differ.compared)


def _tape_named(cls: type, names: set[str]) -> None:
    """Records calls of those methods and properties of a class that the code names, and of the special ones."""
    for klass in mro(cls):
        if klass is object:
            break
        for name, value in list(class_dict(klass).items()):
            if (name in names or name in intercept.SPECIAL) and (
                accessors(value) or inspect.isroutine(value)
            ):
                intercept.tape(klass, name)
