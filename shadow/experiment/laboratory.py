"""Everything that one comparing gate knows and needs; loaded with the first call that is compared."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import Token
from dataclasses import dataclass
from time import perf_counter  # the function itself: a candidate's clock is another
from typing import Any

from shadow.experiment import intercept
from shadow.experiment.audit import FOR_NOW, Auditor, accessors, written_in
from shadow.experiment.branches import WATCH, Coverage, Unwatched, Watch
from shadow.experiment.callbacks import Callbacks
from shadow.experiment.class_state import find_class
from shadow.experiment.copies import TooLarge
from shadow.experiment.effects import Effect, Isolated, Planned, Pure, Skip
from shadow.experiment.flags import Flags
from shadow.experiment.foresight import Foresight
from shadow.experiment.intercept import ACTIVE, Watcher
from shadow.experiment.ledger import Divergence, Ledger
from shadow.experiment.outcome import History, Outcome, Raised
from shadow.experiment.sampling import Sampler, place_of
from shadow.experiment.snapshot import Policy
from shadow.experiment.storage import MISSING, held, is_a, mro, on_class
from shadow.experiment.tape import Recording
from shadow.experiment.trial import Method, Trial
from shadow.experiment.views import Unviewable, view_of

_SLOWER = 5  # times as long as the control a candidate may always take
_DOUBTED = 8  # calls in a row whose isolation is tried to be proved; afterwards ever fewer are
_NOTHING = contextlib.nullcontext()


@dataclass(eq=False)
class Running:
    """A call that is under way; `trial` is None where it is not compared."""

    laboratory: Laboratory
    name: str
    number: int
    key: str
    trial: Trial | Foresight | None
    recording: Recording | None
    started: float
    spent: float
    elsewhere: float
    watch: Watch | None = None
    #: Around each stretch of the control that this thread runs without a break: `watch`, where there is one.
    uninterrupted: contextlib.AbstractContextManager[None] = _NOTHING
    #: Recorded while it runs.
    callbacks: Callbacks | None = None
    #: Why its branches are not counted.
    unwatched: str | None = None
    _token: Token[Watcher | None] | None = None
    _watching: Token[Watch | None] | None = None

    def __enter__(self) -> None:
        """From here on the control's calls are recorded. Never raises, KeyboardInterrupt apart."""
        if self.recording is not None:
            self._token = ACTIVE.set(self.recording)
        if self.callbacks is not None:
            try:
                self.callbacks.__enter__()
            except KeyboardInterrupt:
                raise
            except BaseException as fault:
                self._give_up(self.callbacks, fault)
        if self.watch is not None or WATCH.get() is not None:
            self._watching = WATCH.set(self.watch)

    def __exit__(self, *_: object) -> None:
        if self._watching is not None:
            WATCH.reset(self._watching)
        if self.callbacks is not None:
            try:
                self.callbacks.__exit__()
            except KeyboardInterrupt:
                raise
            except BaseException as fault:
                self._give_up(self.callbacks, fault)
        if self._token is not None:
            ACTIVE.reset(self._token)

    def _give_up(self, callbacks: Callbacks, fault: BaseException) -> None:
        """The caller's own callables are put back, and nothing is compared."""
        self.trial = None
        with contextlib.suppress(Exception):
            callbacks.__exit__()
        self.laboratory.fault(self.name, fault)

    def end(self, outcome: Outcome, *, interleaved: bool = False) -> None:
        """The control has ended. Never raises, KeyboardInterrupt apart."""
        self.laboratory.end(self, outcome, interleaved=interleaved)


class Laboratory:
    """Decides which calls are compared, runs them and books the outcome.

    No method raises, KeyboardInterrupt apart: whatever goes wrong is a harness fault in the ledger.
    """

    #: Seconds spent on comparing by all gates of the process, so that nested ones are not counted twice.
    overhead = 0.0

    def __init__(
        self,
        handler: Any,
        effects: Mapping[str, Effect],
        taped: Iterable[str],
        callbacks: Iterable[str],
        shared: Iterable[str],
        flags: Flags,
        ledger: Ledger,
        on_divergence: Callable[[Divergence], None] | None,
    ) -> None:
        self._handler, self._effects, self._taped = handler, effects, tuple(taped)
        self._flags, self._ledger, self._on_divergence = flags, ledger, on_divergence
        self.sampler = Sampler(flags.rate, flags.budget)
        self._callbacks, self._shared = tuple(callbacks), tuple(shared)
        self._auditor = Auditor(intercept.tape_function, self._shared)
        self._policy = Policy(self._runs_twice, self._fence)
        self._methods: dict[tuple[type | None, str], Method | str] = {}
        intercept.watch_logging()
        intercept.watch_unraisable()

    def _runs_twice(self, value: Any) -> str | None:
        return self._auditor.cls(value) if is_a(value, type) else self._auditor.function(value)

    def _fence(self, cls: type) -> None:
        """Methods of copied objects that must not run twice are recorded like those of a collaborator."""
        for klass in mro(cls):
            for name, function in written_in(klass).items() if klass is not object else ():
                if (reason := self._auditor.function(function)) is not None:
                    intercept.tape(klass, name.partition("#")[0], fenced=reason)

    def begin(
        self, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], rate: float
    ) -> Running:
        """What to do before the control runs."""
        started = perf_counter()
        running = Running(self, name, 0, "", None, None, started, 0.0, Laboratory.overhead)
        outer = ACTIVE.get()
        token = ACTIVE.set(None)
        unwatched = Unwatched()
        unwatched.__enter__()
        try:
            running.number = self._ledger.called(name)
            reason = self._prepare(running, owner, args, kwargs, rate)
            if reason is not None:
                self._ledger.skipped(name, reason)
            if running.trial is not None:
                recorders = outer.recorders if isinstance(outer, Recording) else ()
                if running.trial.recorder is not None:
                    running.recording = Recording((*recorders, running.trial.recorder))
                    running.callbacks = running.trial.callbacks
                running.watch = self._watch(running, owner)
                running.uninterrupted = running.watch or _NOTHING
        except KeyboardInterrupt:
            raise
        except BaseException as fault:
            running.trial = running.recording = running.watch = running.callbacks = None
            running.uninterrupted = _NOTHING
            self.fault(name, fault)
        finally:
            unwatched.__exit__()
            ACTIVE.reset(token)
        running.spent = perf_counter() - started
        Laboratory.overhead += running.spent
        running.started = perf_counter()
        return running

    def _prepare(
        self, running: Running, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any], rate: float
    ) -> str | None:
        """Makes the trial; or says why there is none."""
        effect = self._effects.get(running.name)
        if effect is None:
            return "no effect is declared"
        if isinstance(effect, Skip):
            return effect.reason
        if isinstance(effect, Planned):
            return self._foresee(running, owner, args, kwargs, rate)
        method = self._method(owner, running.name, effect)
        if isinstance(method, str) or method.never is not None:
            return method if isinstance(method, str) else method.never
        value = _argument(method.key, args, kwargs)
        place, running.key = place_of(value, f"{running.name}#{running.number}")
        if (reason := self.sampler.why_not(place, rate)) is not None:
            return reason
        tries = method.attempts - _DOUBTED
        if not method.proved and tries >= 0 and running.number & (running.number - 1):
            return "isolation not proved; tried again ever less often"
        if _is_capturing():
            return "a CUDA graph is being captured"
        worker = None if is_a(owner, type) else owner
        taped = [held(worker, name) for name in self._taped] if worker is not None else []
        try:
            running.trial = Trial(
                method,
                self._policy,
                worker,
                args,
                kwargs,
                taped=[value for value in taped if value is not None and value is not MISSING],
                callbacks=Callbacks(worker, self._callbacks),
                shared=[find_class(path) for path in self._shared],
            )
        except TooLarge as error:
            return f"too large: {error}"
        return None

    def _foresee(
        self, running: Running, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any], rate: float
    ) -> str | None:
        if is_a(owner, type):
            return "a class method: there is no worker to foresee it for"
        place, running.key = place_of(None, f"{running.name}#{running.number}")
        if (reason := self.sampler.why_not(place, rate)) is not None:
            return reason
        if _is_capturing():
            return "a CUDA graph is being captured"
        if on_class(self._handler, "foresee") is None:
            raise LookupError(
                f"{self._handler.__name__}.foresee is missing: {running.name} is declared Planned"
            )
        running.trial = Foresight(self._handler, owner, running.name, args, kwargs, self._flags.timeout)
        return None

    def _method(self, owner: Any, name: str, effect: Pure | Isolated) -> Method | str:
        cls = owner if is_a(owner, type) else type(owner)
        key = (cls, name)
        if key not in self._methods:
            known = self._known(owner, cls, name, effect)
            if isinstance(known, str) and FOR_NOW in known:
                return known
            self._methods[key] = known
        return self._methods[key]

    def _known(self, owner: Any, cls: type, name: str, effect: Pure | Isolated) -> Method | str:
        """A method with what its code shows, or why it can never be compared."""
        found, moved = on_class(cls, f"_legacy_{name}"), on_class(self._handler, name)
        if found is None or moved is None:
            raise LookupError(f"{cls.__name__}._legacy_{name} or {self._handler.__name__}.{name} is missing")
        if is_a(owner, type) and not isinstance(found[1], staticmethod):
            return "a class method: the state of a class cannot be copied"
        auditor = Auditor(intercept.tape_function, self._shared)
        reason = auditor.function(found[1], cls) or auditor.function(moved[1], self._handler)
        if reason is not None:
            return f"cannot run twice: {reason}"
        for helper in auditor.through.copy():  # what the handler calls on the worker names attributes too
            for function in accessors((on_class(cls, helper) or (None, None))[1]):
                auditor.function(function, cls)
        handler, legacy = self._handler, f"_legacy_{name}"
        if is_a(owner, type):
            return Method(
                name,
                effect,
                auditor,
                legacy=lambda _, args, kwargs: found[1].__func__(*args, **kwargs),
                handler=lambda _, args, kwargs: getattr(handler, name)(*args, **kwargs),
                key=_key_of(found[1], effect.key),
            )
        try:
            view_of(cls, None)
        except Unviewable as error:
            return str(error)
        return Method(
            name,
            effect,
            auditor,
            legacy=lambda view, args, kwargs: getattr(view, legacy)(*args, **kwargs),
            handler=lambda view, args, kwargs: getattr(handler.for_worker(view), name)(*args, **kwargs),
            key=_key_of(found[1], effect.key),
        )

    def end(self, running: Running, outcome: Outcome, *, interleaved: bool = False) -> None:
        """What to do when the control has ended."""
        ended = perf_counter()
        control = ended - running.started - (Laboratory.overhead - running.elsewhere - running.spent)
        if running.trial is not None:
            token = ACTIVE.set(None)
            unwatched = Unwatched()
            unwatched.__enter__()
            history = None
            try:
                if running.watch is not None:
                    running.watch.end()
                history = History(outcome.error) if isinstance(outcome, Raised) else None
                self._book(running, outcome, max(self._flags.timeout, _SLOWER * control), interleaved)
            except KeyboardInterrupt:
                raise
            except BaseException as fault:
                self.fault(running.name, fault)
            finally:
                unwatched.__exit__()
                ACTIVE.reset(token)
                if history is not None:
                    with contextlib.suppress(Exception):
                        history.restore()
        spent = perf_counter() - ended
        Laboratory.overhead += spent
        try:
            self.sampler.spent(max(control, 0.0), running.spent + spent)
        except Exception as fault:
            self.fault(running.name, fault)

    def _book(self, running: Running, outcome: Outcome, timeout: float, interleaved: bool) -> None:
        assert running.trial is not None
        if isinstance(outcome, Raised) and not isinstance(outcome.error, Exception):
            self._ledger.skipped(running.name, f"the control was ended by {type(outcome.error).__name__}")
            return
        examined = running.trial.examine(outcome, timeout=timeout, interleaved=interleaved)
        if examined.note is not None:
            self._ledger.note(examined.note)
        if examined.skipped is not None:
            self._ledger.skipped(running.name, examined.skipped)
            return
        divergences = [
            Divergence(
                self._ledger.gate,
                running.name,
                running.number,
                running.key,
                kind,
                found.nature,
                found.path,
                found.control,
                found.candidate,
                os.environ.get("RANK", ""),
                os.getpid(),
            )
            for kind, found in examined.findings
        ]
        self._ledger.compared(running.name, examined.values, divergences)
        self._count_branches(running)
        for divergence in divergences if self._on_divergence is not None else ():
            self._on_divergence(divergence)  # type: ignore[misc]

    def _watch(self, running: Running, owner: Any) -> Watch | None:
        """Follows the branches of a call that is to be compared."""
        if not self._flags.branches:
            return None
        coverage = self._ledger.coverage.setdefault(running.name, Coverage())
        found = on_class(owner if is_a(owner, type) else type(owner), f"_legacy_{running.name}")
        try:
            watch = coverage.watch(found[1] if found is not None else None)
        except Exception as error:  # the comparison does not depend on it
            watch = f"its branches cannot be read: {type(error).__name__}"
        if isinstance(watch, str):
            running.unwatched = watch
            return None
        return watch

    def _count_branches(self, running: Running) -> None:
        """Only now: a call that came out as not compared has not shown that its branches are equal."""
        if running.watch is not None:
            running.watch.count()
        if self._flags.branches:
            self._ledger.covered(running.name, running.unwatched)

    def fault(self, name: str, fault: BaseException) -> None:
        try:
            self._ledger.fault(name, fault)
        except KeyboardInterrupt:
            raise
        except BaseException:
            return  # a ledger that cannot even count; the caller's result comes first


def _is_capturing() -> bool:
    """Nothing may be copied on the device then."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _key_of(legacy: Any, name: str | None) -> tuple[str, int] | None:
    """A parameter's name and its position among the arguments of a call, -1 where it is keyword-only."""
    if name is None:
        return None
    is_static = isinstance(legacy, staticmethod)
    function = inspect.unwrap(legacy.__func__ if is_static else legacy)
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    return name, positional.index(name) - (not is_static) if name in positional else -1


def _argument(key: tuple[str, int] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if key is None:
        return None
    name, position = key
    return args[position] if 0 <= position < len(args) else kwargs.get(name)
