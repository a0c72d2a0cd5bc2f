from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchgen import sequence as seq_module
from batchgen.continuous_batching import (
    AdaptiveChunkSizer,
    LoadCandidate,
    NodeHostStats,
    PageClaim,
    check_repeating_pattern,
    plan_host_kv_growth_evictions,
    select_sequences_for_eviction,
    select_sequences_for_loading,
    select_sequences_for_onhold,
    validate_boundary_payload_alignment,
)


@pytest.fixture(autouse=True)
def _page_globals() -> Iterator[None]:
    yield
    seq_module.configure_page_buffers(page_size=64, initial=32, extension=4, decision_frequency=2)


def claim(
    idx: int, *, held: int = 0, wanted: int = 0, decoded: int = 0, priority: int = 0, evictable: bool = True
) -> PageClaim:
    return PageClaim(f"s{idx}", idx, priority, decoded, held, wanted, evictable)


def test_nobody_is_held_when_all_extensions_fit() -> None:
    assert select_sequences_for_onhold([claim(i, held=5, wanted=2) for i in range(3)], 6) == ()


def test_holding_goes_by_priority_then_decoded_length_then_global_idx_until_the_rest_fits() -> None:
    claims = [
        claim(0, held=1, wanted=4, decoded=5, priority=1),
        claim(1, held=1, wanted=4, decoded=9),
        claim(2, held=1, wanted=4, decoded=3),
        claim(3, held=1, wanted=4, decoded=3),
        claim(4, held=1, wanted=4, decoded=1, priority=2),
    ]
    order = ("s2", "s3", "s1", "s0", "s4")
    for count, free in enumerate((20, 15, 10, 5, 0)):  # each one held gives 1 page and takes 4 wants away
        assert select_sequences_for_onhold(claims, free) == order[:count]


def test_a_row_that_needs_nothing_is_held_when_its_pages_are_needed() -> None:
    claims = [claim(0, held=8, wanted=0, decoded=1), claim(1, held=8, wanted=4, decoded=50)]
    assert select_sequences_for_onhold(claims, 0) == ("s0",)


def test_a_claim_with_nothing_to_give_is_left_alone_and_so_is_one_that_is_not_evictable() -> None:
    claims = [
        claim(0, held=0, wanted=0, decoded=0),
        claim(1, held=9, wanted=0, decoded=1, evictable=False),
        claim(2, held=2, wanted=0, decoded=2),
        claim(3, held=2, wanted=2, decoded=3),
    ]
    assert select_sequences_for_eviction(claims, 0) == ("s2",)


def test_host_growth_keeps_five_percent_free_by_evicting_the_shortest() -> None:
    claims = [claim(0, held=10, wanted=8, decoded=40), claim(1, held=4, wanted=8, decoded=7)]
    plan = plan_host_kv_growth_evictions(claims, NodeHostStats(0, free=25, total=100))
    assert plan.evicted_uuids == () and plan.growth_uuids == ("s0", "s1") and plan.growth_pages == (8, 8)
    tight = plan_host_kv_growth_evictions(claims, NodeHostStats(0, free=20, total=100))
    assert tight.evicted_uuids == ("s1",) and tight.growth_uuids == ("s0",) and tight.growth_pages == (8,)
    assert tight.feasible
    off = plan_host_kv_growth_evictions(claims, NodeHostStats(0, free=20, total=100), enable_eviction=False)
    assert off.evicted_uuids == () and off.feasible
    short = plan_host_kv_growth_evictions(claims, NodeHostStats(0, free=15, total=100), enable_eviction=False)
    assert not short.feasible and short.growth_pages == (8, 8)


def test_the_last_sequence_that_grows_is_not_evicted_for_the_margin() -> None:
    alone = [claim(0, held=90, wanted=8)]
    plan = plan_host_kv_growth_evictions(alone, NodeHostStats(0, free=8, total=100))
    assert plan.evicted_uuids == () and plan.growth_pages == (8,) and plan.feasible
    two = [claim(0, held=10, wanted=8, decoded=40), claim(1, held=0, wanted=8, decoded=7)]
    plan = plan_host_kv_growth_evictions(two, NodeHostStats(0, free=9, total=100))
    assert plan.evicted_uuids == ("s1",) and plan.growth_pages == (8,) and plan.feasible


def test_growth_that_no_eviction_can_make_room_for_is_infeasible() -> None:
    stuck = [claim(0, held=50, wanted=8, evictable=False), claim(1, held=4, decoded=1)]
    plan = plan_host_kv_growth_evictions(stuck, NodeHostStats(0, free=2, total=100))
    assert plan.evicted_uuids == ("s1",) and not plan.feasible


claims_strategy = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 5), st.integers(0, 2), st.booleans()),
    max_size=12,
).map(
    lambda rows: [
        claim(i, held=h, wanted=w, decoded=d, priority=p, evictable=e)
        for i, (h, w, d, p, e) in enumerate(rows)
    ]
)


@given(claims_strategy, st.integers(0, 40), st.integers(0, 100))
def test_an_eviction_plan_fits_or_has_nobody_left_and_never_evicts_more_than_it_must(
    claims: list[PageClaim], free: int, total: int
) -> None:
    margin = int(total * 0.05)
    chosen = select_sequences_for_eviction(claims, free, margin=margin)
    by_uuid = {c.uuid: c for c in claims}
    ranks = [(by_uuid[u].priority, by_uuid[u].decoded_length, by_uuid[u].global_idx) for u in chosen]
    assert ranks == sorted(ranks) and all(by_uuid[u].evictable for u in chosen)

    def rest_and_room(gone: tuple[str, ...]) -> tuple[int, int]:
        return (
            sum(c.wanted for c in claims if c.uuid not in gone),
            free + sum(by_uuid[u].held for u in gone),
        )

    wanted, room = rest_and_room(chosen)
    useful = [c for c in claims if c.evictable and c.held + c.wanted > 0 and c.uuid not in chosen]
    assert wanted <= room or not useful
    for k in range(len(chosen)):  # every proper prefix was not yet enough
        wanted, room = rest_and_room(chosen[:k])
        assert wanted > room - margin and wanted > 0


def candidate(idx: int, pages: int, decoded: int, group: int = 0) -> LoadCandidate:
    return LoadCandidate(f"s{idx}", idx, group, pages, decoded)


def test_loading_takes_the_longest_first_and_passes_over_what_does_not_fit() -> None:
    candidates = [candidate(0, 3, 5), candidate(1, 9, 50), candidate(2, 3, 20), candidate(3, 2, 20)]
    loads, free = select_sequences_for_loading(candidates, {0: 8})
    assert loads == ("s2", "s3", "s0") and free == {0: 0}


def test_loading_leaves_out_excluded_sequences_and_unknown_groups() -> None:
    candidates = [candidate(0, 1, 9), candidate(1, 1, 8), candidate(2, 1, 7, group=5)]
    assert select_sequences_for_loading(candidates, {0: 8}, exclude_uuids=["s0"]) == (("s1",), {0: 7})


def test_slots_cap_each_group_and_only_admitted_sequences_take_one() -> None:
    candidates = [
        candidate(0, 100, 90),  # too big: must not use up the only slot
        candidate(1, 1, 80),
        candidate(2, 1, 70),
        candidate(3, 1, 60, group=1),
        candidate(4, 1, 50, group=2),
    ]
    free = {0: 10, 1: 10, 2: 10}
    loads, left = select_sequences_for_loading(candidates, free, (), {0: 1, 1: 1})
    assert loads == ("s1", "s3") and left == {0: 9, 1: 9, 2: 10}
    assert free == {0: 10, 1: 10, 2: 10}, "the caller's mapping must not change"


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(0, 2)), max_size=14),
    st.lists(st.integers(0, 12), min_size=3, max_size=3),
    st.lists(st.integers(0, 4), min_size=3, max_size=3),
)
def test_a_load_plan_never_passes_pages_or_slots_and_refuses_only_what_does_not_fit(
    rows: list[tuple[int, int, int]], pages: list[int], slots: list[int]
) -> None:
    candidates = [candidate(i, p, d, g) for i, (p, d, g) in enumerate(rows)]
    loads, free = select_sequences_for_loading(candidates, dict(enumerate(pages)), (), dict(enumerate(slots)))
    for group in range(3):
        taken = [c for c in candidates if c.group == group and c.uuid in loads]
        assert free[group] == pages[group] - sum(c.pages_needed for c in taken) >= 0
        assert len(taken) <= slots[group]
        for refused in (c for c in candidates if c.group == group and c.uuid not in loads):
            assert refused.pages_needed > free[group] or len(taken) == slots[group]


def test_payloads_that_report_each_sequence_once_by_its_rank_are_accepted() -> None:
    validate_boundary_payload_alignment([{"a": 1}, {"b": 1, "c": 1}, {}], {"a": 0, "b": 1, "c": 1})
    validate_boundary_payload_alignment([], {})


@pytest.mark.parametrize(
    ("payloads", "said"),
    [
        ([{"a": 1}, {}], "b is assigned to rank 1 but reported by no rank"),
        ([{"a": 1, "b": 1}, {}], "b is assigned to rank 1 but reported by ranks 0"),
        ([{"a": 1, "b": 1}, {"b": 1}], "b is assigned to rank 1 but reported by ranks 0, 1"),
        ([{"a": 1}, {"b": 1, "x": 1}], "x is not being decoded but reported by ranks 1"),
    ],
)
def test_misaligned_payloads_name_the_sequence_and_the_ranks(
    payloads: list[dict[str, int]], said: str
) -> None:
    with pytest.raises(RuntimeError) as caught:
        validate_boundary_payload_alignment(payloads, {"a": 0, "b": 1})
    assert str(caught.value).startswith("[SCHED_INVARIANT]") and said in str(caught.value)


def test_a_run_of_32_identical_tokens_is_a_repetition_and_31_is_not() -> None:
    assert check_repeating_pattern([1, 2] + [7] * 32)
    assert not check_repeating_pattern([1, 2] + [7] * 31)
    assert not check_repeating_pattern([7] * 40 + [8])
    assert not check_repeating_pattern([])


@pytest.mark.parametrize("period", [2, 3, 17, 100])
def test_a_pattern_32_times_over_is_a_repetition_and_one_token_less_is_not(period: int) -> None:
    pattern = list(range(period))
    assert check_repeating_pattern([-1, *pattern * 32])
    assert not check_repeating_pattern([-1, *pattern * 32][2:])
    broken = pattern * 32
    broken[period // 2] = -5
    assert not check_repeating_pattern(broken)


def test_a_period_above_the_limit_is_not_a_repetition() -> None:
    assert not check_repeating_pattern(list(range(101)) * 40)


@given(st.lists(st.integers(0, 1), max_size=40), st.integers(1, 5), st.integers(2, 4))
def test_repetition_agrees_with_the_definition(tokens: list[int], max_period: int, repeats: int) -> None:
    expected = any(
        len(tokens) >= p * repeats and tokens[len(tokens) - p * repeats :] == tokens[-p:] * repeats
        for p in range(1, max_period + 1)
    )
    assert check_repeating_pattern(tokens, max_period=max_period, repeats=repeats) == expected


def test_the_chunk_sizer_waits_for_ten_completions_then_follows_their_average() -> None:
    sizer = AdaptiveChunkSizer(default_chunk=8192)
    for _ in range(9):
        sizer.record_completion(4000)
        assert not sizer.active and sizer.chunk_size() == 8192
    sizer.record_completion(4000)
    assert sizer.active and sizer.chunk_size() == -(-6000 // 64) * 64
    sizer.record_completion(8000)  # ema 4000 + 0.1 * 4000
    assert sizer.chunk_size() == -(-6600 // 64) * 64


@pytest.mark.parametrize(("decoded", "chunk"), [(1, 1024), (10**6, 65536)])
def test_the_chunk_stays_within_its_limits(decoded: int, chunk: int) -> None:
    sizer = AdaptiveChunkSizer()
    for _ in itertools.repeat(None, 10):
        sizer.record_completion(decoded)
    assert sizer.chunk_size() == chunk


def test_the_chunk_is_whole_pages_of_the_page_size_of_now() -> None:
    sizer = AdaptiveChunkSizer(default_chunk=100)
    assert sizer.chunk_size() == 128
    seq_module.configure_page_buffers(page_size=48)
    assert sizer.chunk_size() == 144


@pytest.mark.parametrize(
    "bad", [{"min_chunk": 0}, {"max_chunk": 10}, {"ema_alpha": 0.0}, {"multiplier": 0}, {"default_chunk": 0}]
)
def test_a_sizer_that_could_give_no_chunk_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="chunk sizer"):
        AdaptiveChunkSizer(**bad)  # type: ignore[arg-type]
