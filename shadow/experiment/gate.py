"""The gate that a migrated method calls: legacy body, handler, or both with the legacy result served."""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shadow.experiment import intercept
from shadow.experiment.effects import Effect, Skip
from shadow.experiment.flags import FlagError, Flags, Route
from shadow.experiment.intercept import ACTIVE
from shadow.experiment.ledger import Divergence, Ledger, Summary, Verdict, worst
from shadow.experiment.outcome import Raised, Returned
from shadow.experiment.storage import is_a, on_class

if TYPE_CHECKING:
    from shadow.experiment.laboratory import Laboratory, Running

_gates: weakref.WeakSet[Gate] = weakref.WeakSet()


class Gate:
    """Routes the gated methods of one slice.

    `on` is what a call site tests; while it is False nothing else here is run.

    Args:
        prefix: of the environment variables, such as "BATCHGEN_WORKER_KV" (see `Flags.from_env`).
        handler: the handler class. `handler.for_worker(worker)` makes one for a worker, or for a view of it.
        effects: for each gated method, by its name in the handler, what running it twice would do.
        taped: worker attributes whose objects are never copied, but called once and answered from the record.
        callbacks: worker attributes that hold callables of the caller: called once and answered from the record.
        shared: classes, as "package.module.Name", whose attributes the methods set, and which no other thread reads
            while a gated method runs: the handler gets them as they were before, and they are compared.
        parts: names of parts with their methods: `<prefix>_<part>_NATIVE` and `_COMPARE`, where set, decide for them.
        on_divergence: called with each divergence, beside the log and the report.

    Raises:
        FlagError: an environment variable has a value that means nothing.
        ValueError: a part names a method that has no gate, or that another part has.
    """

    __shadow_inside__ = True

    def __init__(
        self,
        prefix: str,
        handler: Any,
        effects: Mapping[str, Effect],
        *,
        taped: Iterable[str] = (),
        callbacks: Iterable[str] = (),
        shared: Iterable[str] = (),
        parts: Mapping[str, Iterable[str]] | None = None,
        on_divergence: Callable[[Divergence], None] | None = None,
    ) -> None:
        self.prefix = prefix
        self._handler, self._effects = handler, dict(effects)
        self._taped, self._callbacks, self._shared = tuple(taped), tuple(callbacks), tuple(shared)
        self._on_divergence = on_divergence
        self._declared_skips = frozenset(n for n, effect in self._effects.items() if isinstance(effect, Skip))
        self._part_of: dict[str, str] = {}
        for part, names in (parts or {}).items():
            for name in names:
                if name not in self._effects or name in self._part_of:
                    raise ValueError(f"{prefix}: part {part}: {name} has no gate, or another part has it")
                self._part_of[name] = part
        #: Names of the parts.
        self.parts = tuple(dict.fromkeys(self._part_of.values()))
        #: Whether anything but the legacy body is to run.
        self.on = False
        self._default_report: str | None = None
        self._ledger = Ledger(prefix, None)
        self.reload()
        _gates.add(self)

    def reload(self, env: Mapping[str, str] | None = None) -> None:
        """Reads the environment variables anew and forgets all counts."""
        flags = Flags.from_env(self.prefix, env, self.parts)
        self._ledger.close()
        self._ledger = Ledger(self.prefix, None)
        #: Whether calls have been compared, or are, since the counts began.
        self.has_compared = False
        self._set(flags)

    def configure(self, flags: Flags) -> None:
        """Routes by other flags from now on; the counts stay. On several ranks: `configure_all`.

        Raises:
            FlagError: the gate has no such part.
        """
        self.check(flags)
        self._set(flags)

    def check(self, flags: Flags) -> None:
        """Raises FlagError where `configure` would."""
        for part, _ in flags.parts:
            if part not in self.parts:
                raise FlagError(f"{self.prefix} has no part {part}; it has {', '.join(self.parts) or 'none'}")

    def report_to(self, path: str) -> None:
        """Where divergences and the summary are written while no flag says where."""
        self._default_report = path
        self._ledger.report_to(self._flags.report or path)

    def _set(self, flags: Flags) -> None:
        self._flags = flags
        self._laboratory: Laboratory | None = None
        self._ledger.report_to(flags.report or self._default_report)
        self._route: Route = flags
        routes = dict(flags.parts)
        self._routes = {name: routes[part] for name, part in self._part_of.items() if part in routes}
        self.has_compared |= flags.compares
        self.on = flags.any_on

    @property
    def flags(self) -> Flags:
        """How it routes now."""
        return self._flags

    def settings(self, flags: Flags | None = None) -> dict[str, str]:
        """What must be equal on all ranks of a job: variables and their texts, as they are or by other flags."""
        return dict((flags or self._flags).settings(self.prefix, self.parts))

    def callable(self, owner: Any, name: str, /) -> Callable[..., Any]:
        """What a call of the gated method comes to as the flags are now: while the gate is off, the legacy body itself.

        For a loop that looks its callables up before it begins. Arguments as for `run`.
        """
        control: Callable[..., Any] = getattr(owner, f"_legacy_{name}")
        if not self._routes.get(name, self._route).on:
            return control
        gated = self.run_async if inspect.iscoroutinefunction(control) else self.run
        return functools.partial(gated, owner, name)

    def run(self, owner: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """The call of a gated method.

        Args:
            owner: self; the class in a static or class method.
            name: the method's name in the handler; its legacy body is `_legacy_<name>`.
        """
        route = self._routes.get(name, self._route)
        if route.native and not _is_candidate():
            return self._target(owner, name)(*args, **kwargs)
        control = getattr(owner, f"_legacy_{name}")
        running = self._begin(route, owner, name, args, kwargs)
        if running is None:
            return control(*args, **kwargs)
        try:
            with running, running.uninterrupted:
                value = control(*args, **kwargs)
        except BaseException as error:
            running.end(Raised(error))
            raise
        running.end(Returned(value))
        return value

    async def run_async(self, owner: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """`run` for a coroutine method."""
        route = self._routes.get(name, self._route)
        if route.native and not _is_candidate():
            return await self._target(owner, name)(*args, **kwargs)
        control = getattr(owner, f"_legacy_{name}")
        running = self._begin(route, owner, name, args, kwargs)
        if running is None:
            return await control(*args, **kwargs)
        waiting = _Waiting(control(*args, **kwargs), running.uninterrupted)
        try:
            with running:
                value = await waiting
        except BaseException as error:
            running.end(Raised(error), interleaved=waiting.suspended)
            raise
        running.end(Returned(value), interleaved=waiting.suspended)
        return value

    def _target(self, owner: Any, name: str) -> Any:
        if is_a(owner, type):
            legacy = on_class(owner, f"_legacy_{name}")
            if legacy is None or isinstance(legacy[1], staticmethod):
                return getattr(self._handler, name)
        return getattr(self._handler.for_worker(owner), name)

    def _begin(
        self, route: Route, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Running | None:
        """None where the legacy body alone is to run. Never raises, KeyboardInterrupt apart."""
        if not route.compare or _is_candidate():
            return None
        try:
            if self._laboratory is None:
                from shadow.experiment.laboratory import Laboratory

                self._laboratory = Laboratory(
                    self._handler,
                    self._effects,
                    self._taped,
                    self._callbacks,
                    self._shared,
                    self._flags,
                    self._ledger,
                    self._on_divergence,
                )
            return self._laboratory.begin(owner, name, args, kwargs, route.rate)
        except KeyboardInterrupt:
            raise
        except BaseException as fault:
            with contextlib.suppress(Exception):
                self._ledger.fault(name, fault)
            return None

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        """The first few of each kind; `summary` has the exact counts."""
        return tuple(self._ledger.divergences)

    @property
    def faults(self) -> tuple[str, ...]:
        """What went wrong in the harness itself."""
        return tuple(self._ledger.faults)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of the comparisons beside divergences, each said once."""
        return tuple(self._ledger.notes)

    def verdict(self, required: Iterable[str] = ()) -> Verdict:
        """0 all compared and equal; 1 divergence; 2 the harness failed; 3 nothing compared of some method.

        Args:
            required: methods that must have been compared even if they were never called.
        """
        return self._ledger.verdict(tuple(required), self._declared_skips)

    def summary(self, required: Iterable[str] = ()) -> Summary:
        """Counts by method and by reason, with the verdict."""
        summary = self._ledger.summary(tuple(required), self._declared_skips)
        methods = dict(summary.methods)
        never = (
            name
            for name in self._effects.keys() - self._declared_skips - methods.keys()
            if self._routes.get(name, self._route).compare
        )
        return replace(summary, unreached=tuple(sorted(never)))

    def close(self, summary: Summary | None = None, *, write: bool = True) -> Summary:
        """Writes the summary to the report; the gate is off afterwards, its report is closed.

        Args:
            summary: instead of its own, such as that of all ranks.
        """
        summary = summary or self.summary()
        if write:
            self._ledger.write("summary", summary.record())
        self._ledger.close()
        self.has_compared = False
        self._set(Flags())
        return summary


def live_gates() -> list[Gate]:
    """All gates of the process, by their prefixes."""
    return sorted(_gates, key=lambda gate: gate.prefix)


def verdict() -> Verdict:
    """Of all gates of the process that compare, the worst: 2, 1, 3, 0. COVERAGE_SHORT when none does."""
    return worst(gate.verdict() for gate in _gates if gate.flags.compares)


def _is_candidate() -> bool:
    active = ACTIVE.get()
    return active is not None and active.answers


class _Waiting:
    """Awaits a coroutine and knows whether it ever let others run; `around` is entered for each stretch."""

    def __init__(self, coroutine: Any, around: contextlib.AbstractContextManager[None]) -> None:
        self.suspended, self._around = False, around
        self._inner: Any = coroutine.__await__()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self)

    def __iter__(self) -> _Waiting:
        return self

    def __next__(self) -> Any:
        with self._around:
            value = next(self._inner)
        return self._note(value)

    def send(self, value: Any) -> Any:
        with self._around:
            yielded = self._inner.send(value)
        return self._note(yielded)

    def throw(self, *error: Any) -> Any:
        with self._around:
            yielded = self._inner.throw(*error)
        return self._note(yielded)

    def close(self) -> None:
        self._inner.close()

    def _note(self, yielded: Any) -> Any:
        self.suspended = True
        return yielded


@atexit.register
def _report_all() -> None:
    """One line for each gate that compared, on the standard error stream: logging may be closed by now."""
    for gate in live_gates():
        if gate.flags.compares and gate._ledger.methods:
            try:
                line = gate.close().line()
                print(line, file=sys.stderr)
            except Exception as fault:
                with contextlib.suppress(Exception):
                    print(f"shadow {gate.prefix}: no summary: {type(fault).__name__}", file=sys.stderr)
    intercept.remove_all()
