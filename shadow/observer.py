"""Watches a live worker by wrapping its methods on the instance; the worker's source stays as it is.

Loaded only in the process that runs a worker, after `batchgen` has been imported from the tree to observe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from shadow.digest import page_digests, position_digests
from shadow.messages import HarnessError
from shadow.observation import Digests, Event, Key, Kind, Observed, Point, Row, Tokens
from shadow.plain import Plain, plain

HOOKS = ("_select_tokens", "_decode_forward_step", "_compute_boundary_decisions", "_page_boundary_fast")
Values = dict[Key, Observed]


class Names:
    """Labels of sequences: the request's custom_id, else the uuid."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._by_index: dict[int, str] = {}
        self.by_uuid: dict[str, str] = {}

    @staticmethod
    def label(entry: Any) -> str:
        return str(getattr(entry, "custom_id", None) or entry.uuid)

    def refresh(self) -> list[Any]:
        """All sequences of the worker's batch, in its order."""
        batch = getattr(self._worker, "global_batch", None)
        entries = [] if batch is None else list(batch)
        self._by_index = {entry.global_idx: self.label(entry) for entry in entries}
        self.by_uuid = {entry.uuid: self.label(entry) for entry in entries}
        return entries

    def of_index(self, global_idx: int) -> str:
        return self._by_index.get(int(global_idx), f"global index {global_idx}")


def _pools(worker: Any) -> Iterator[tuple[str, Any]]:
    """(name, single pool) of the worker's live manager: looked up every time, for the worker replaces it."""
    manager = getattr(worker, "gpu_paged_kv_cache_manager", None)
    if manager is None or not manager.is_initialized:
        return
    for pool in (getattr(manager, "primary", manager), getattr(manager, "auxiliary", None)):
        if pool is not None:
            yield pool.config.name, pool


def _caches(pool: Any) -> Iterator[tuple[str, torch.Tensor]]:
    yield "k", pool.k_cache
    if pool.v_cache is not None:
        yield "v", pool.v_cache


def _field_names(entry: Any) -> list[str]:
    slots = [name for cls in type(entry).__mro__ for name in getattr(cls, "__slots__", ())]
    return sorted({*slots, *getattr(entry, "__dict__", {})})


def _sequence_fields(entry: Any, names: Mapping[str, str]) -> Iterator[tuple[str, Plain]]:
    for name in _field_names(entry):
        value = getattr(entry, name, None)
        if name == "decoded_tokens" and isinstance(value, torch.Tensor):
            value = value[..., : entry.decoded_length]  # what lies behind is uninitialised memory
        yield name, plain(value, names)


class Observer:
    """Installs the hooks and turns what they see into events.

    `send` delivers an event; `ask` does and returns the tokens to go on with (empty: the worker's own).
    """

    def __init__(
        self, worker: Any, wrapper: Any, send: Callable[[Event], None], ask: Callable[[Event], Tokens]
    ) -> None:
        missing = [name for name in HOOKS if not callable(getattr(worker, name, None))]
        if missing:
            raise HarnessError(
                f"{type(worker).__name__} has no method {', '.join(missing)}: shadow has to observe it there"
            )
        self.worker, self.wrapper = worker, wrapper
        self._send, self._ask = send, ask
        self.names = Names(worker)
        self.steps = 0
        self.forward_seconds = self.observe_seconds = self.wait_seconds = 0.0
        self._decoding = False
        for name in HOOKS:
            setattr(worker, name, getattr(self, f"hook{name}")(getattr(worker, name)))

    # hooks

    def hook_select_tokens(self, original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def hook(logits: torch.Tensor, batch_sequences: Sequence[Any]) -> torch.Tensor:
            tokens = original(logits, batch_sequences)
            labels = [self.names.label(entry) for entry in batch_sequences]
            if not len(set(labels)) == len(labels) == logits.shape[0] == tokens.shape[0]:
                raise RuntimeError(
                    f"{logits.shape[0]} rows of logits and {tokens.shape[0]} tokens for sequences {labels}: "
                    "each sequence must have one row"
                )
            with self._observing():
                self.names.refresh()
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
            started, others = time.perf_counter(), self.observe_seconds + self.wait_seconds
            self._decoding = True
            try:
                return original(*args, **kwargs)
            finally:
                self._decoding = False
                nested = self.observe_seconds + self.wait_seconds - others
                self.forward_seconds += time.perf_counter() - started - nested
                self.steps += 1

        return hook

    def hook_compute_boundary_decisions(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def hook(*args: Any, **kwargs: Any) -> Any:
            decisions = original(*args, **kwargs)
            with self._observing():
                self.names.refresh()
                key = Key(Kind.BOUNDARY, None, "decisions")
                self._send(Event(Point.DECISIONS, self.steps, {key: plain(decisions, self.names.by_uuid)}))
            return decisions

        return hook

    def hook_page_boundary_fast(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def hook(*args: Any, **kwargs: Any) -> Any:
            outcome = original(*args, **kwargs)
            with self._observing():
                self._send(Event(Point.BOUNDARY, self.steps, self._state(self.names.refresh())))
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
        """Sends the last event: what generate() returned, and the state that it left behind."""
        values = self._state(self.names.refresh())
        values[Key(Kind.RESULT, None, "order")] = tuple(str(result.custom_id) for result in results)
        for result in results:
            values[Key(Kind.RESULT, str(result.custom_id), "result")] = plain(result)
        for name, value in self.worker.stats().items():
            if isinstance(value, int):  # floats are times and rates
                values[Key(Kind.RESULT, None, f"stats.{name}")] = value
        self._send(Event(Point.END, self.steps, values))

    def _selection(
        self, logits: torch.Tensor, tokens: torch.Tensor, entries: Sequence[Any], labels: list[str]
    ) -> Event:
        """What the forward read, then what it made: tables, sequences, KV before logits before tokens."""
        values: Values = {Key(Kind.LOGITS, None, "rows"): tuple(labels)}
        content: Values = {}
        if self._decoding:
            tables, content = self._attention()
            values.update(tables)
        values.update(self._sequences(entries))
        values.update(self._pool_counts())
        values.update(content)
        for label, row in zip(labels, logits.detach().float().cpu().numpy(), strict=True):
            values[Key(Kind.LOGITS, label, "logits")] = Row(row)
        for label, token in zip(labels, tokens.tolist(), strict=True):
            values[Key(Kind.TOKENS, label, "token")] = int(token)
        return Event(Point.DECODE if self._decoding else Point.PREFILL, self.steps, values)

    def _state(self, entries: Sequence[Any]) -> Values:
        """Everything that outlives a step: page ownership, pool counts, every sequence."""
        return {**self._owned_pages(), **self._sequences(entries), **self._pool_counts()}

    # parts of events

    def _attention(self) -> tuple[Values, Values]:
        """(lengths and tables, KV content) of the rows that attention has just worked on."""
        indices = [int(index) for index in self.wrapper.cur_batch or ()]
        lengths = [] if self.wrapper.cache_seqlens is None else self.wrapper.cache_seqlens.tolist()
        labels = [self.names.of_index(index) for index in indices]
        values: Values = {
            Key(Kind.PAGE_TABLE, None, "rows"): tuple(labels),
            Key(Kind.PAGE_TABLE, None, "num_lengths"): len(lengths),
        }
        kv_len = dict(zip(labels, map(int, lengths), strict=False))
        for label, length in kv_len.items():
            values[Key(Kind.PAGE_TABLE, label, "kv_len")] = length
        # In order of allocation: a sequence that takes one page too many moves the pages of all after it.
        values.update(self._owned_pages())
        content: Values = {}
        for name, pool in _pools(self.worker):
            order = [self.names.of_index(index) for index in pool.slot_to_seq_id]
            values[Key(Kind.PAGE_TABLE, None, f"{name}.slot_order")] = tuple(order)
            rows = {label: row for row, label in enumerate(order) if label in kv_len}
            live = {label: _live_pages(pool, row, kv_len[label]) for label, row in rows.items()}
            for label, pages in live.items():
                values[Key(Kind.PAGE_TABLE, label, f"{name}.live_pages")] = tuple(pages)
            content.update(_kv_content(name, pool, live, kv_len))
        return values, content

    def _owned_pages(self) -> Values:
        return {
            Key(Kind.PAGE_TABLE, self.names.of_index(index), f"{name}.owned_pages"): plain(pages)
            for name, pool in _pools(self.worker)
            for index, pages in pool._sequences.items()
        }

    def _pool_counts(self) -> Values:
        pools = dict(_pools(self.worker))
        host = getattr(self.worker, "host_paged_kv_worker_view", None)
        if host is not None:
            pools["host"] = host
        return {
            Key(Kind.PAGE_TABLE, None, f"{name}.free_pages"): int(pool.get_stats().num_free_pages)
            for name, pool in pools.items()
        }

    def _sequences(self, entries: Sequence[Any]) -> Values:
        return {
            Key(Kind.SEQUENCE, self.names.label(entry), name): value
            for entry in entries
            for name, value in _sequence_fields(entry, self.names.by_uuid)
        }


def _live_pages(pool: Any, row: int, kv_len: int) -> list[int]:
    return [int(page) for page in pool.gpu_table[row, : -(-kv_len // pool.config.page_size)].tolist()]


def _kv_content(
    name: str, pool: Any, live: Mapping[str, list[int]], kv_len: Mapping[str, int]
) -> Iterator[tuple[Key, Observed]]:
    """Digests of every live page, and apart from them those of the position that this step has written.

    The pages are read without that position: what was there before the step comes first, by page; what the
    step added comes after it, by layer.
    """
    size = pool.config.page_size
    readable = {
        label: pages
        for label, pages in live.items()
        if len(pages) * size >= kv_len[label] and all(0 <= page < pool.config.num_pages for page in pages)
    }
    for part, cache in _caches(pool):
        for label, pages in readable.items():
            digests = page_digests(cache, pages, kv_len[label] - 1).numpy()
            yield Key(Kind.KV, label, f"{name}.{part}"), Digests(digests, "page", tokens=size)
    last = {label: kv_len[label] - 1 for label in readable}
    places = [(pages[last[label] // size], last[label] % size) for label, pages in readable.items()]
    for part, cache in _caches(pool):
        digests = position_digests(cache, places).numpy()
        for column, label in enumerate(readable):
            written = Digests(digests[:, column : column + 1], "position", first=last[label])
            yield Key(Kind.KV, label, f"{name}.{part}.written"), written
