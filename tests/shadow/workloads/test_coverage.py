"""Each boundary situation is counted where it comes about, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shadow.observation import Event, Key, Kind, Pages, Point
from shadow.plain import Plain, Record
from shadow.workloads import Batch, Coverage, Engine, Request
from shadow.workloads.situations import REACHABLE

ENGINE = Engine(page_size=4, max_batch=3, buckets=(1, 3))


def record(name: str, **fields: Plain) -> Record:
    return Record(name, tuple(fields.items()))


def decode(rows: Mapping[str, int], *, batch: int = 0, free: int = 9, **fields: Mapping[str, Any]) -> Event:
    """kv_len by label; `fields`: of sequences, by name then label."""
    values: dict[Key, Any] = {Key(Kind.PAGE_TABLE, label, "kv_len"): n for label, n in rows.items()}
    page = 0
    for label, length in rows.items():
        pages = tuple(range(page, page + -(-length // 4)))
        page += len(pages)
        for name in ("owned_pages", "live_pages"):
            values[Key(Kind.PAGE_TABLE, label, f"primary.{name}")] = Pages("primary", pages)
    values[Key(Kind.PAGE_TABLE, None, "primary.free_pages")] = free
    for name, of in fields.items():
        values.update({Key(Kind.SEQUENCE, label, name): value for label, value in of.items()})
    return Event(Point.DECODE, 0, values, batch=batch)


def lengths(done: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, int]]:
    """(decoded, cap) by label."""
    return {
        "decoded_length": {label: pair[0] for label, pair in done.items()},
        "original_max_decode_length": {label: pair[1] for label, pair in done.items()},
    }


def prefill(*labels: str, slot: int = 0, batch: int = 0) -> Event:
    values: dict[Key, Any] = {}
    for number, label in enumerate(labels):
        values[Key(Kind.SEQUENCE, label, "prompt_length")] = 5
        values[Key(Kind.SEQUENCE, label, "pool_slot_index")] = slot + number
    return Event(Point.PREFILL, 0, values, batch=batch)


def decisions(**fields: tuple[str, ...]) -> Event:
    fields.setdefault("decode_uuids_final", ("a",))
    return Event(
        Point.DECISIONS, 0, {Key(Kind.BOUNDARY, None, "decisions"): record("BoundaryDecisions", **fields)}
    )


def boundary(**status: str) -> Event:
    return Event(Point.BOUNDARY, 0, {Key(Kind.SEQUENCE, n, "status"): value for n, value in status.items()})


def end(results: Mapping[str, Record] | None = None, batch: int = 0, **stats: int) -> Event:
    values: dict[Key, Any] = {
        Key(Kind.RESULT, label, "result"): value for label, value in (results or {}).items()
    }
    values |= {Key(Kind.RESULT, None, f"stats.{name}"): value for name, value in stats.items()}
    return Event(Point.END, 0, values, batch=batch)


def result(tokens: int, detail: str, reason: str = "length") -> Record:
    return record("GenerationResult", token_ids=(7,) * tokens, detail=detail, finish_reason=reason)


REQUESTS = (Batch("first", (Request("none", (1,), None), Request("zero", (1,), 0), Request("one", (1,), 1))),)
LOADS = decisions(new_load_uuids=("b",))
CASES: list[tuple[str, list[Event], list[Event]]] = [
    # situation, events that come to it once, the nearest ones that do not
    ("kv_len at a page end", [decode({"a": 8})], [decode({"a": 7}), decode({"a": 9})]),
    ("kv_len just over a page", [decode({"a": 9})], [decode({"a": 8}), decode({"a": 10})]),
    ("kv_len just under a page", [decode({"a": 7})], [decode({"a": 6}), decode({"a": 8})]),
    ("last page live", [decode({"a": 6}, free=0)], [decode({"a": 6}, free=1)]),
    (
        "batch shrinks, then grows",
        [decode({"a": 2, "b": 2}), decode({"a": 3}), decode({"a": 4, "b": 3})],
        [decode({"a": 2}), decode({"a": 3, "b": 2}), decode({"a": 4})],
    ),
    ("bucket padded", [decode({"a": 2, "b": 2})], [decode({"a": 2})]),
    ("bucket full", [decode({"a": 2})], [decode({"a": 2, "b": 2})]),
    ("past the captured maximum", [end(graph_max_seqlen_exceeds_capture=1)], [end(graph_ok=1)]),
    (
        "preempted in flight",
        [LOADS, decode({"a": 2}), decisions(onhold_uuids=("a",))],
        [LOADS, decode({"a": 2}), decisions(), decode({"a": 3}), decisions(onhold_uuids=("a",))],
    ),
    (
        "short and long caps",
        [decode({"a": 2, "b": 2}, **lengths({"a": (1, 4), "b": (1, 16)}))],
        [decode({"a": 2, "b": 2}, **lengths({"a": (1, 5), "b": (1, 16)}))],
    ),
    ("extension fits", [decisions(seqs_needing_extension=("a",))], [decisions()]),
    ("extension does not fit", [decisions(onhold_uuids=("a",))], [decisions(onhold_uuids=())]),
    (
        "held, then loaded",
        [
            decisions(onhold_uuids=("b",)),
            decode({"a": 2}),
            decode({"a": 3, "b": 2}),
            decode({"a": 4, "b": 3}),
        ],
        [decisions(onhold_uuids=("b",)), decode({"a": 2})],
    ),
    ("load pending at a boundary", [LOADS, decode({"a": 2}), decisions()], [LOADS, decisions()]),
    (
        "only loads left",
        [decisions(new_load_uuids=("b",), decode_uuids_final=())],
        [decisions(decode_uuids_final=()), LOADS],
    ),
    ("EOS at prefill", [end({"a": result(1, "eos", "stop")})], [end({"a": result(2, "eos", "stop")})]),
    ("first token is last", [end({"a": result(1, "max_tokens")})], [end({"a": result(1, "eos")})]),
    ("ends at its cap", [end({"a": result(5, "max_tokens")})], [end({"a": result(5, "eos", "stop")})]),
    ("repetition stop", [end({"a": result(5, "repetition", "stop")})], [end({"a": result(5, "max_tokens")})]),
    (
        "larger than the pool",
        [end({"a": result(0, "too long", "error")})],
        [end({"a": result(5, "max_tokens")})],
    ),
    (
        "ends at a page end",
        [decode({"a": 7}, **lengths({"a": (3, 4)}))],
        [decode({"a": 7}, **lengths({"a": (2, 4)})), decode({"a": 8}, **lengths({"a": (3, 4)}))],
    ),
    (
        "done row decoded again",
        [decode({"a": 8}, **lengths({"a": (4, 4)}))],
        [decode({"a": 7}, **lengths({"a": (3, 4)}))],
    ),
    (
        "all rows end at once",
        [decode({"a": 7, "b": 5}, **lengths({"a": (3, 4), "b": (6, 7)}))],
        [
            decode({"a": 7, "b": 5}, **lengths({"a": (3, 4), "b": (5, 7)})),
            decode({"a": 7}, **lengths({"a": (3, 4)})),
        ],
    ),
    ("host grows", [decisions(host_growth_uuids=("a",))], [decisions(host_growth_uuids=())]),
    (
        "evicted, then prefilled",
        [decisions(host_evicted_uuids=("b",)), prefill("b")],
        [decisions(host_evicted_uuids=("b",)), prefill("a")],
    ),
    (
        "evicted twice",
        [decisions(host_evicted_uuids=("b",))] * 3,
        [decisions(host_evicted_uuids=("b",)), decisions(host_evicted_uuids=("a",))],
    ),
    (
        "watermark break",
        [end(watermark_breaks=1), end(batch=1, watermark_breaks=1)],
        [end(watermark_breaks=0)],
    ),
    ("watermark break with a load pending", [LOADS, boundary(), prefill("a")], [decisions(), prefill("a")]),
    ("second batch", [decode({"a": 2}), decode({"c": 2}, batch=1)], [decode({"a": 2}), decode({"a": 3})]),
    (
        "slot reused",
        [prefill("a", slot=3), prefill("b", slot=3, batch=1)],
        [prefill("a", slot=3), prefill("b", slot=4, batch=1), prefill("c", slot=4, batch=1)],
    ),
    (
        "pool destroyed, then ensured",
        [prefill("a"), decode({"a": 2}), prefill("b"), decode({"b": 2}), decode({"b": 3})],
        [prefill("a"), decode({"a": 2}), decode({"a": 3}), prefill("b")],
    ),
    (
        "pool replaced",
        [end(gpu_pools_created=1), end(batch=1, gpu_pools_created=2)],
        [end(gpu_pools_created=1), end(batch=1, gpu_pools_created=1)],
    ),
    ("no cap given", [end({"none": result(5, "eos")})], [end({"one": result(5, "eos")})]),
    ("cap of zero", [end({"one": result(1, "eos")})], [end({"zero": result(1, "eos")}), end()]),
    (
        "more candidates than rows",
        [boundary(a="IN_DECODE", b="IN_DECODE", c="ON_HOLD", d="PREFILLED")],
        [boundary(a="IN_DECODE", b="IN_DECODE", c="ON_HOLD", d="QUEUEING", e="COMPLETED")],
    ),
]


def counted(events: list[Event]) -> Coverage:
    coverage = Coverage(ENGINE, REQUESTS)
    for event in events:
        coverage.see(event)
    return coverage


@pytest.mark.parametrize(("name", "reaching", "near"), CASES, ids=[case[0] for case in CASES])
def test_a_situation_is_counted_where_it_comes_about(
    name: str, reaching: list[Event], near: list[Event]
) -> None:
    assert counted(reaching).counts[name] == 1
    assert counted(near).counts[name] == 0


def test_every_situation_has_a_case() -> None:
    assert sorted(case[0] for case in CASES) == sorted(REACHABLE)


def test_only_situations_are_counted() -> None:
    for _, reaching, near in CASES:
        assert set(counted([*reaching, *near]).counts) <= REACHABLE
