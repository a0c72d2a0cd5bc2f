"""A real worker on a tiny model under observation, in this process, with faults that last for one event."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchgen.attention import AttnWrapperBase
from batchgen.engine import EngineOptions, build_worker
from batchgen.requests.types import GenerationResult, TokenizedRequest
from shadow.observation import Event, Kind, Point, Tokens
from shadow.observer import Observer

# Few pages of 4 tokens and few buckets: sequences are held, evicted and loaded again, batches are padded.
PRESSURE: dict[str, Any] = {
    "model": "tiny",
    "device": "cpu",
    "page_size": 4,
    "initial_gpu_page_buffer": 3,
    "extension_gpu_page_buffer": 2,
    "decision_frequency_pages": 2,
    "max_batch_size": 8,
    "threads": 1,
    "gpu_kv_pages": 40,
    "host_kv_pages": 50,
    "host_kv_chunk_size": 4,
    "adaptive_host_kv_chunk": False,
    "cuda_graph_num_buckets": 3,
}
Change = Callable[[Any], Callable[[], None] | None]
"""Breaks something in a live worker; what it returns puts it right again. None: not possible at this step."""


@dataclass
class Run:
    results: list[GenerationResult] = field(default_factory=list)
    stats: dict[str, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    unobservable: dict[str, str] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)  # by step, the name of the change made there

    @property
    def checked(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for event in self.events:
            total.update(event.checked)
        return total

    def violated(self, step: int | None = None) -> dict[str, list[tuple[str | None, str]]]:
        """(sequence, message) by invariant, of the decode events of one step, or of all events."""
        found: dict[str, list[tuple[str | None, str]]] = {}
        for event in self.events:
            if step is None or (event.step == step and event.point is Point.DECODE):
                for violation in event.violations:
                    found.setdefault(violation.invariant, []).append((violation.sequence, violation.message))
        return found

    def kinds(self) -> set[Kind]:
        return {key.kind for event in self.events for key in event.values}


class _Breaker:
    """Makes one change after the other, each in a decode step of its own that has two rows or more."""

    def __init__(self, worker: Any, changes: Sequence[tuple[str, Change]], run: Run) -> None:
        self._worker, self._run = worker, run
        self._waiting = list(changes)
        self._undo: Callable[[], None] | None = None
        self.observer: Observer | None = None
        original = worker._select_tokens

        def select(logits: Any, sequences: Any) -> Any:
            tokens = original(logits, sequences)
            self._worker.seen_logits = logits
            decoding = self.observer is not None and self.observer._decoding
            if decoding and len(sequences) >= 2 and self._waiting and self.observer is not None:
                name, change = self._waiting[0]
                undo = change(self._worker)
                if undo is not None:
                    self._undo = undo
                    self._waiting.pop(0)
                    self._run.broken[self.observer.steps] = name
            return tokens

        if changes:
            worker._select_tokens = select

    def mend(self) -> None:
        if self._undo is not None:
            self._undo()
            self._undo = None


def sent(event: Event) -> Event:
    """As it would arrive: rows of logits are views of static buffers, which the next step overwrites."""
    arrived: Event = pickle.loads(pickle.dumps(event))
    return arrived


def generate(
    requests: Sequence[TokenizedRequest],
    *,
    observed: bool = True,
    changes: Sequence[tuple[str, Change]] = (),
    prepare: Callable[[Any], None] = lambda worker: None,
    batches: int = 1,
    layers: tuple[int, ...] = (),
    numeric: bool = False,
    **options: Any,
) -> Run:
    """One run of `requests`; `prepare` may replace methods of the worker before it is observed."""
    worker = build_worker(EngineOptions(**{**PRESSURE, **options}))
    run = Run()
    observer = None
    try:
        prepare(worker)
        breaker = _Breaker(worker, changes, run)

        def ask(event: Event) -> Tokens:
            run.events.append(sent(event))
            breaker.mend()
            return {}

        if observed:
            observer = Observer(
                worker,
                AttnWrapperBase,
                lambda event: run.events.append(sent(event)),
                ask,
                layers=layers,
                numeric=numeric,
            )
            breaker.observer = observer
            run.unobservable = dict(observer.unobservable)
        for _ in range(batches):
            run.results += worker.generate(requests)
            if observer is not None:
                observer.finish(run.results[-len(requests) :])
        run.stats = {name: value for name, value in worker.stats().items() if isinstance(value, int)}
    finally:
        if observer is not None:
            observer.close()
        worker.close()
    return run
