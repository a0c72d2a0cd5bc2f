"""Counts boundary situations from the events of a run, one side's, as they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shadow.observation import Event, Kind, Observed, Pages, Point
from shadow.plain import Plain, Record
from shadow.workloads.requests import Batch

Fields = dict[str, dict[str | None, Observed]]
"""The values of an event: by field, then by sequence."""


@dataclass(frozen=True)
class Engine:
    """What a situation may depend on. `buckets` ascending; empty where it is not known."""

    page_size: int
    max_batch: int
    buckets: Sequence[int] = ()


def by_field(event: Event, *kinds: Kind) -> Fields:
    fields: Fields = {}
    for key, value in event.values.items():
        if key.kind in kinds:
            fields.setdefault(key.field, {})[key.sequence] = value
    return fields


def record(value: Observed | None) -> dict[str, Plain]:
    return dict(value.fields) if isinstance(value, Record) else {}


def numbers(values: Mapping[str | None, Observed]) -> dict[str, int]:
    """Those by sequence, as plain integers."""
    return {str(label): value for label, value in values.items() if label is not None and type(value) is int}


def labels(value: Plain) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, tuple) else ()


class Coverage:
    """`see` every event of one side in order; `counts` says how often each situation came about."""

    def __init__(self, engine: Engine, batches: Sequence[Batch] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self._engine, self._batches = engine, batches
        self._slots: dict[int, set[Plain]] = {}
        self._stats: dict[str, int] = {}
        self._decoded = self._prefilled_since = False
        self._begin(0)

    def _begin(self, batch: int) -> None:
        self._batch = batch
        self._rows = 0
        self._shrunk = False
        self._held: set[str] = set()
        self._evictions: Counter[str] = Counter()
        self._pending_load = self._settled_by_decode = False
        self._caps: set[int] = set()

    def see(self, event: Event) -> None:
        if event.batch != self._batch:
            self._begin(event.batch)
        match event.point:
            case Point.DECODE:
                self._decode(by_field(event, Kind.PAGE_TABLE, Kind.SEQUENCE))
            case Point.PREFILL:
                self._prefill(by_field(event, Kind.SEQUENCE))
            case Point.DECISIONS:
                self._decisions(record(by_field(event, Kind.BOUNDARY)["decisions"][None]))
            case Point.BOUNDARY:
                self._boundary(by_field(event, Kind.SEQUENCE))
            case Point.END:
                self._end(by_field(event, Kind.RESULT))

    def _count(self, name: str, often: int | bool = 1) -> None:
        if often:
            self.counts[name] += int(often)

    # points

    def _decode(self, fields: Fields) -> None:
        size = self._engine.page_size
        kv_len = numbers(fields.get("kv_len", {}))
        decoded, caps = (numbers(fields.get(n, {})) for n in ("decoded_length", "original_max_decode_length"))
        self._count("kv_len at a page end", sum(n % size == 0 for n in kv_len.values()))
        self._count("kv_len just over a page", sum(n % size == 1 for n in kv_len.values()))
        self._count("kv_len just under a page", sum(n % size == size - 1 for n in kv_len.values()))
        self._count("last page live", self._last_page_live(fields))
        self._row_count(len(kv_len))
        last = [label for label in kv_len if decoded.get(label, 0) + 1 == caps.get(label)]
        # The last token itself has no KV yet: the page is full when the context is a multiple.
        self._count("ends at a page end", sum((kv_len[label] + 1) % size == 0 for label in last))
        self._count("all rows end at once", len(last) == len(kv_len) > 1)
        self._count("done row decoded again", sum(decoded[n] >= caps[n] for n in kv_len if n in decoded))
        self._caps |= set(caps.values())
        self._count(
            "short and long caps", min(self._caps, default=0) <= size < 4 * size <= max(self._caps, default=0)
        )
        self._count("held, then loaded", len(self._held & kv_len.keys()))
        self._held -= kv_len.keys()
        self._count("second batch", self._batch > 0)
        self._count("pool destroyed, then ensured", self._decoded and self._prefilled_since)
        self._decoded, self._prefilled_since = True, False
        self._settled_by_decode = self._pending_load

    def _last_page_live(self, fields: Fields) -> int:
        found = 0
        for name, owned in fields.items():
            if not name.endswith(".owned_pages"):
                continue
            pool = name.removesuffix("owned_pages")
            free = fields.get(f"{pool}free_pages", {}).get(None)
            if isinstance(free, int):
                last = free + sum(len(pages.ids) for pages in owned.values() if isinstance(pages, Pages)) - 1
                live = fields.get(f"{pool}live_pages", {}).values()
                found += any(last in pages.ids for pages in live if isinstance(pages, Pages))
        return found

    def _row_count(self, rows: int) -> None:
        self._count("batch shrinks, then grows", self._shrunk and rows > self._rows)
        self._shrunk = (self._shrunk and rows <= self._rows) or rows < self._rows
        self._rows = rows
        bucket = next((bucket for bucket in self._engine.buckets if bucket >= rows), None)
        if bucket is not None:
            self._count("bucket full" if bucket == rows else "bucket padded")

    def _prefill(self, fields: Fields) -> None:
        self._prefilled_since = True
        if self._pending_load:
            self._count("watermark break with a load pending")
            self._count("preempted in flight")
            self._pending_load = False
        rows = numbers(fields.get("prompt_length", {})).keys()
        self._count("evicted, then prefilled", len(self._evictions.keys() & rows))
        for slot in fields.get("pool_slot_index", {}).values():
            assert isinstance(slot, int)
            earlier = self._slots.setdefault(slot, set())
            self._count("slot reused", any(batch != self._batch for batch in earlier))
            earlier.add(self._batch)

    def _decisions(self, decision: dict[str, Plain]) -> None:
        held, evicted = labels(decision.get("onhold_uuids")), labels(decision.get("host_evicted_uuids"))
        loads, stay = labels(decision.get("new_load_uuids")), labels(decision.get("decode_uuids_final"))
        self._count("extension fits", bool(labels(decision.get("seqs_needing_extension"))))
        self._count("extension does not fit", bool(held))
        self._count("host grows", bool(labels(decision.get("host_growth_uuids"))))
        self._count("only loads left", bool(loads) and not stay)
        self._count("load pending at a boundary", self._settled_by_decode)
        self._count("preempted in flight", self._settled_by_decode and bool(held or evicted))
        self._held |= set(held)
        for label in evicted:
            self._evictions[label] += 1
            self._count("evicted twice", self._evictions[label] == 2)
        self._pending_load, self._settled_by_decode = bool(loads), False

    def _boundary(self, fields: Fields) -> None:
        ready = sum(
            status in ("PREFILLED", "ON_HOLD", "IN_DECODE") for status in fields.get("status", {}).values()
        )
        self._count("more candidates than rows", ready > self._engine.max_batch)

    def _end(self, fields: Fields) -> None:
        results = {str(label): record(value) for label, value in fields.get("result", {}).items()}
        for result in results.values():
            tokens, detail = result.get("token_ids"), result.get("detail")
            single = isinstance(tokens, tuple) and len(tokens) == 1
            self._count("EOS at prefill", single and detail == "eos")
            self._count("first token is last", single and detail == "max_tokens")
            self._count("ends at its cap", detail == "max_tokens")
            self._count("repetition stop", detail == "repetition")
            self._count("larger than the pool", result.get("finish_reason") == "error")
        if self._batch < len(self._batches) and results:
            for request in self._batches[self._batch].requests:
                self._count("no cap given", request.max_tokens is None and request.name in results)
                self._count("cap of zero", request.max_tokens == 0 and request.name not in results)
        stats = dict(_stats(fields))
        self._count("watermark break", self._since(stats, "watermark_breaks"))
        self._count("past the captured maximum", self._since(stats, "graph_max_seqlen_exceeds_capture"))
        made = self._since(stats, "gpu_pools_created")
        self._count("pool replaced", made - (1 if made and not self._stats.get("gpu_pools_created") else 0))
        self._stats = stats

    def _since(self, stats: dict[str, int], name: str) -> int:
        """Counters are those of the worker's whole life."""
        return stats.get(name, 0) - self._stats.get(name, 0)


def _stats(fields: Fields) -> Iterator[tuple[str, int]]:
    for name, values in fields.items():
        value = values.get(None)
        if name.startswith("stats.") and isinstance(value, int):
            yield name.removeprefix("stats."), value
