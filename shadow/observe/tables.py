"""Who owns which page, how much of it is live, and how many pages are free."""

from __future__ import annotations

from typing import Any

from shadow.observation import Key, Kind, Point, Rows
from shadow.observe.probe import PlainProbe, Subject, Values, key, keys


def live_rows(subject: Subject, pool: Any, kv_len: dict[str, int]) -> dict[str, list[int]]:
    """By label of the rows that attention is bound to, the pages that hold its tokens: the live prefix, in order."""
    table, size = subject.table(pool), pool.config.page_size
    order = subject.names.of_indices(pool.slot_to_seq_id)
    live = {label: max(0, -(-length // size)) for label, length in kv_len.items()}
    rows = table[: len(order), : max(live.values(), default=0)].tolist()
    return {label: row[: live[label]] for label, row in zip(order, rows, strict=False) if label in live}


class PageTables(PlainProbe):
    kind = Kind.PAGE_TABLE
    points = frozenset((Point.DECODE, Point.BOUNDARY, Point.END))
    structural = True

    def values(self, subject: Subject, point: Point) -> Values:
        if point is not Point.DECODE:
            return _owned(subject)
        kv_len = subject.attended()
        lengths = subject.wrapper.cache_seqlens
        values: Values = {
            key(Kind.PAGE_TABLE, None, "rows"): Rows(tuple(kv_len)),
            key(Kind.PAGE_TABLE, None, "num_lengths"): 0 if lengths is None else len(lengths),
        }
        values.update(zip(keys(Kind.PAGE_TABLE, tuple(kv_len), ("kv_len",)), kv_len.values(), strict=True))
        # In order of allocation: a sequence that takes one page too many moves the pages of all after it.
        values.update(_owned(subject))
        for name, pool in subject.pools():
            values[key(Kind.PAGE_TABLE, None, f"{name}.slot_order")] = Rows(tuple(subject.order(pool)))
            size = pool.config.page_size
            counts = [(label, -(-length // size)) for label, length in kv_len.items()]
            made_of = subject.order(pool), counts, subject.table_bytes(pool)

            def live(name: str = name, pool: Any = pool) -> Values:
                return _live(subject, name, live_rows(subject, pool, kv_len))

            values.update(subject.again(f"{name}.live_pages", made_of, live))
        return values


def _owned(subject: Subject) -> Values:
    values: Values = {}
    for name, pool in subject.pools():
        labels = tuple(subject.names.of_indices(pool._sequences))
        held = list(map(tuple, pool._sequences.values()))
        places = keys(Kind.PAGE_TABLE, labels, (f"{name}.owned_pages",))

        def owned(name: str = name, places: tuple[Key, ...] = places, held: list[Any] = held) -> Values:
            pairs = zip(places, held, strict=True)
            return {place: subject.pages(place, name, tuple(map(int, pages))) for place, pages in pairs}

        values.update(subject.again(f"{name}.owned_pages", (labels, held), owned))
    return values


def _live(subject: Subject, name: str, rows: dict[str, list[int]]) -> Values:
    places = keys(Kind.PAGE_TABLE, tuple(rows), (f"{name}.live_pages",))
    pairs = zip(places, rows.values(), strict=True)
    return {place: subject.pages(place, name, tuple(pages)) for place, pages in pairs}


class PoolCounts(PlainProbe):
    kind = Kind.PAGE_TABLE
    points = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))
    structural = True

    def values(self, subject: Subject, point: Point) -> Values:
        pools = dict(subject.pools())
        host = getattr(subject.worker, "host_paged_kv_worker_view", None)
        if host is not None:
            pools["host"] = host
        return {
            key(Kind.PAGE_TABLE, None, f"{name}.free_pages"): int(pool.get_stats().num_free_pages)
            for name, pool in pools.items()
        }
