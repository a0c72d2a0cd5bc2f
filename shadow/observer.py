"""Watches a live worker by wrapping its methods on the instance; the worker's source stays as it is.

Loaded only in the process that runs a worker, after `batchgen` has been imported from the tree to observe.
"""

from __future__ import annotations

import inspect
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch

from shadow.invariants import INVARIANTS, Invariant
from shadow.messages import HarnessError
from shadow.observation import Event, Key, Kind, Point, Row, Rows, Tokens, Violation
from shadow.observe import PROBES, Probe, Subject, Values
from shadow.observe.names import Names
from shadow.observe.probe import key
from shadow.plain import plain

HOOKS = ("_select_tokens", "_decode_forward_step", "_compute_boundary_decisions", "_page_boundary_fast")
_ALWAYS = frozenset((Kind.SCHEDULE, Kind.BOUNDARY, Kind.TOKENS, Kind.RESULT, Kind.OUTCOME))


class EnoughSteps(BaseException):
    """The decode steps that were asked for are done. Not an Exception: no worker may take it for an error."""


class Observer:
    """Installs the hooks and turns what they see into events.

    `send` delivers an event; `ask` does and returns the tokens to go on with (empty: the worker's own).
    `structural`: integers only; `content_every`: content of each so many-th decode step only. After `max_steps`
    decode steps the next one raises EnoughSteps. `only`: what to look at. `kinds`: what can be observed of
    this worker, `unobservable`: what cannot, and why. `fired` is told by a planted fault when it strikes first.
    """

    def __init__(
        self,
        worker: Any,
        wrapper: Any,
        send: Callable[[Event], None],
        ask: Callable[[Event], Tokens],
        *,
        structural: bool = False,
        content_every: int = 1,
        max_steps: int | None = None,
        only: frozenset[Kind] | None = None,
        layers: tuple[int, ...] = (),
        numeric: bool = False,
        probes: Sequence[Probe] = PROBES,
        invariants: Sequence[Invariant] = INVARIANTS,
    ) -> None:
        missing = [name for name in HOOKS if not callable(getattr(worker, name, None))]
        if missing:
            raise HarnessError(
                f"{type(worker).__name__} has no method {', '.join(missing)}: shadow has to observe it there"
            )
        self.subject = Subject(
            worker,
            wrapper,
            Names(worker),
            [],
            observing=self._observing,
            layers=layers,
            numeric=numeric,
            shows_content=self._shows_content,
        )
        self.worker, self.names = worker, self.subject.names
        self._send, self._ask, self._structural = send, ask, structural
        self._content_every, self._max_steps = content_every, max_steps
        self.unobservable: dict[str, str] = {}
        wanted = frozenset(Kind) if only is None else only
        self._probes = [
            p
            for p in probes
            if p.kind in wanted and self._usable(p.kind.value, p) and (p.structural or not structural)
        ]
        self._invariants = [i for i in invariants if Kind.INVARIANT in wanted and self._usable(i.name, i)]
        self._with_logits = Kind.LOGITS in wanted and not structural
        self.steps = self.batch = 0
        self.fired: int | None = None
        self.forward_seconds = self.observe_seconds = self.wait_seconds = 0.0
        self._decoding = False
        watchers: tuple[Probe | Invariant, ...] = (*self._probes, *self._invariants)
        for watcher in watchers:
            watcher.install(self.subject)
        for name in HOOKS:
            self.subject.hooks.wrap(worker, name, getattr(self, f"hook{name}"))

    def close(self) -> None:
        """Takes every hook back. Idempotent."""
        self.subject.hooks.undo()

    def _usable(self, name: str, watcher: Probe | Invariant) -> bool:
        why = watcher.missing(self.subject)
        if why is not None:
            self.unobservable[name] = why
        return why is None

    @property
    def kinds(self) -> frozenset[Kind]:
        """What a run of this worker must have shown for its comparison to count."""
        kinds = {*_ALWAYS, *(probe.kind for probe in self._probes)}
        if self._invariants:
            kinds.add(Kind.INVARIANT)
        return frozenset(kinds | {Kind.LOGITS} if self._with_logits else kinds)

    # hooks

    def hook_select_tokens(self, original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def hook(logits: torch.Tensor, batch_sequences: Sequence[Any]) -> torch.Tensor:
            labels = [self.names.label(entry) for entry in batch_sequences]
            try:
                tokens = original(logits, batch_sequences)
            except Exception:
                # What led to it is the finding: shown before the run ends with the exception.
                if len(set(labels)) == len(labels) == logits.shape[0]:
                    with self._observing():
                        self.names.refresh()
                        self.subject.logits = logits
                        event = self._selection(logits, None, batch_sequences, labels)
                    self._ask(event)
                raise
            if not len(set(labels)) == len(labels) == logits.shape[0] == tokens.shape[0]:
                raise RuntimeError(
                    f"{logits.shape[0]} rows of logits and {tokens.shape[0]} tokens for sequences {labels}: "
                    "each sequence must have one row"
                )
            with self._observing():
                self.names.refresh()
                self.subject.logits = logits
                event = self._selection(logits, tokens, batch_sequences, labels)
            started = time.perf_counter()
            forced = self._ask(event)
            self.wait_seconds += time.perf_counter() - started
            if forced:
                tokens = tokens.clone()
                for row, label in enumerate(labels):
                    tokens[row] = forced.get(label, tokens[row])
            return tokens

        return hook

    def hook_decode_forward_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def hook(*args: Any, **kwargs: Any) -> Any:
            if self._max_steps is not None and self.steps >= self._max_steps:
                self._break_off()
            started, others = time.perf_counter(), self.observe_seconds + self.wait_seconds
            self._decoding = True
            try:
                outcome = original(*args, **kwargs)
            finally:
                self._decoding = False
                nested = self.observe_seconds + self.wait_seconds - others
                self.forward_seconds += time.perf_counter() - started - nested
            self.steps += 1  # one that raises is not over: what it raised is of this step
            return outcome

        return hook

    def hook_compute_boundary_decisions(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def hook(*args: Any, **kwargs: Any) -> Any:
            with self._observing():
                entries = self.names.refresh()
                given = signature.bind(*args, **kwargs).arguments
                values: Values = {  # before the call: what it decides from must not be what it left behind
                    Key(Kind.BOUNDARY, None, f"inputs.{name}"): plain(self._named(value), self.names.by_uuid)
                    for name, value in given.items()
                }
            decisions = original(*args, **kwargs)
            with self._observing():
                values[Key(Kind.BOUNDARY, None, "decisions")] = plain(decisions, self.names.by_uuid)
                self._send(self._event(Point.DECISIONS, entries, values))
            return decisions

        return hook

    def _named(self, value: Any) -> Any:
        """Sequences in a list by their labels: they are looked at by the probe that knows them."""
        if isinstance(value, list | tuple) and value and all(hasattr(item, "uuid") for item in value):
            return [self.names.label(item) for item in value]
        return value

    def hook_page_boundary_fast(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def hook(*args: Any, **kwargs: Any) -> Any:
            outcome = original(*args, **kwargs)
            with self._observing():
                self._send(self._event(Point.BOUNDARY, self.names.refresh()))
            return outcome

        return hook

    @contextmanager
    def _observing(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            raise HarnessError(f"cannot observe the worker: {type(error).__name__}: {error}") from error
        finally:
            self.observe_seconds += time.perf_counter() - started

    # events

    def finish(self, results: Sequence[Any]) -> None:
        """Sends the last event of a batch: what generate() returned, and the state that it left behind."""
        values: Values = {Key(Kind.RESULT, None, "order"): Rows(tuple(str(r.custom_id) for r in results))}
        for result in results:
            values[Key(Kind.RESULT, str(result.custom_id), "result")] = plain(result)
        for name, value in self.worker.stats().items():
            if isinstance(value, int):  # floats are times and rates
                values[Key(Kind.RESULT, None, f"stats.{name}")] = value
        self._send(self._event(Point.END, self.names.refresh(), values))
        self.batch += 1

    def _break_off(self) -> NoReturn:
        """The last event of a batch in the middle of it: nothing is cleaned up, and nothing has to be."""
        with self._observing():
            values: Values = {Key(Kind.RESULT, None, "broken off after"): self.steps}
            self._send(self._event(Point.END, self.names.refresh(), values, held_to_it=False))
        raise EnoughSteps

    def _shows_content(self) -> bool:
        return not self._structural and (not self._decoding or self.steps % self._content_every == 0)

    def _selection(
        self, logits: torch.Tensor, tokens: torch.Tensor | None, entries: Sequence[Any], labels: list[str]
    ) -> Event:
        """What the forward read, then what it made: the probes' values before logits before tokens.

        No `tokens`: none could be selected.
        """
        made: Values = {key(Kind.LOGITS, None, "rows"): Rows(tuple(labels))}
        if self._with_logits and self._shows_content():
            for label, row in zip(labels, logits.detach().float().cpu().numpy(), strict=True):
                made[key(Kind.LOGITS, label, "logits")] = Row(row)
        for label, token in zip(labels, [] if tokens is None else tokens.tolist(), strict=tokens is not None):
            made[key(Kind.TOKENS, label, "token")] = int(token)
        return self._event(Point.DECODE if self._decoding else Point.PREFILL, list(entries), made)

    def _event(
        self, point: Point, entries: list[Any], made: Values | None = None, *, held_to_it: bool = True
    ) -> Event:
        """What the probes of this point see, then `made`; and what must hold on this side alone."""
        self.subject.entries = entries
        self.subject.memo.clear()
        values: Values = {}
        checked: Counter[str] = Counter()
        violations: list[Violation] = []
        for probe in self._probes:
            if point in probe.points and (probe.structural or self._shows_content()):
                try:
                    values.update(probe.values(self.subject, point))
                except Exception as error:
                    violations.append(_unreadable(probe.kind.value, error))
        values.update(made or {})
        for invariant in self._invariants:
            if held_to_it and point in invariant.points:
                try:
                    count, found = invariant.check(self.subject, point)
                except Exception as error:
                    count, found = 1, [_unreadable(invariant.name, error)]
                checked[invariant.name] += count
                violations += found
        return Event(point, self.steps, values, tuple(violations), dict(checked), self.batch, self.fired)


def _unreadable(what: str, error: Exception) -> Violation:
    """State that cannot even be read is a finding about the worker; the comparison goes on."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = (
        f"{what} cannot be read: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    )
    return Violation("readable", text)
