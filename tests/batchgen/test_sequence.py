from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from batchgen import sequence as seq_module
from batchgen.sequence import ALLOWED_TRANSITIONS, SequenceBatch, SequenceEntry, SequenceStatus

S = SequenceStatus


@pytest.fixture(autouse=True)
def _page_globals() -> Iterator[None]:
    yield
    seq_module.configure_page_buffers(page_size=64, initial=32, extension=4, decision_frequency=2)


def entry(uuid: str = "a", idx: int = 0, prompt: int = 100, decode: int = 1000) -> SequenceEntry:
    return SequenceEntry(uuid, idx, prompt, decode)


def test_statuses_have_the_wire_values() -> None:
    assert [(s.name, int(s)) for s in S] == [
        ("QUEUEING", 0),
        ("IN_PREFILL", 1),
        ("PREFILLED", 2),
        ("IN_DECODE", 3),
        ("ON_HOLD", 4),
        ("COMPLETED", 5),
        ("EVICTED", 6),
    ]


def test_every_pair_of_statuses_is_either_a_listed_transition_or_refused_without_effect() -> None:
    legal = {
        ("QUEUEING", "IN_PREFILL"),
        ("IN_PREFILL", "PREFILLED"),
        ("PREFILLED", "IN_DECODE"),
        ("PREFILLED", "COMPLETED"),
        ("IN_DECODE", "ON_HOLD"),
        ("IN_DECODE", "COMPLETED"),
        ("IN_DECODE", "EVICTED"),
        ("ON_HOLD", "IN_DECODE"),
        ("ON_HOLD", "COMPLETED"),
        ("ON_HOLD", "EVICTED"),
        ("EVICTED", "IN_PREFILL"),
    }
    assert set(ALLOWED_TRANSITIONS) == set(S)
    for before in S:
        for after in S:
            batch = SequenceBatch()
            seq = entry()
            seq.status = before
            batch.add_sequence(seq)
            if (before.name, after.name) in legal:
                batch.update_status("a", after)
                assert seq.status is after and batch.get_sequences_by_status(after) == [seq]
            else:
                with pytest.raises(
                    ValueError, match=f"Invalid status transition {before.name} → {after.name}"
                ):
                    batch.update_status("a", after)
                assert seq.status is before and batch.get_sequences_by_status(before) == [seq]
            assert batch.validate_indexes() == []


def test_a_new_sequence_is_sound_and_counts_its_budget_from_the_prompt() -> None:
    seq = entry(prompt=7, decode=5)
    assert seq.validate_metadata(owner=True) == []
    assert (seq.kv_token_budget, seq.current_context_length, seq.original_prompt_length) == (12, 7, 7)


@pytest.mark.parametrize(("prompt", "decode"), [(0, 5), (5, 0), (-1, 5)])
def test_an_empty_prompt_or_no_decode_length_is_refused(prompt: int, decode: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        SequenceEntry("a", 0, prompt, decode)


def test_an_entry_takes_no_ad_hoc_attribute() -> None:
    with pytest.raises(AttributeError):
        entry().debug = 1  # type: ignore[attr-defined]


def test_two_page_buffer_uses_the_initial_buffer_once_then_the_extension_buffer() -> None:
    seq = entry(prompt=100, decode=10_000)
    assert seq.get_gpu_pages_for_two_page_buffer() == -(-(100 + 32 * 64) // 64)
    seq.mark_initial_gpu_reservation()
    assert seq.get_gpu_pages_for_two_page_buffer() == -(-(100 + 4 * 64) // 64)
    seq.gpu_pages_allocated = 9
    seq.reset_gpu_allocation()
    assert seq.gpu_pages_allocated == 0
    assert seq.get_gpu_pages_for_two_page_buffer() == -(-(100 + 32 * 64) // 64)


def test_two_page_buffer_is_capped_by_host_pages_too_but_the_extension_only_by_the_budget() -> None:
    seq = entry(prompt=100, decode=20)
    assert seq.get_gpu_pages_for_two_page_buffer() == 2  # ceil(120 / 64)
    assert seq.get_additional_gpu_pages_needed() == 2
    long = entry(prompt=640, decode=10_000)
    long.host_pages_allocated = 11
    assert long.get_gpu_pages_for_two_page_buffer() == 11
    long.gpu_pages_allocated = 11
    assert long.get_additional_gpu_pages_needed() == 3  # ceil((640 + 256) / 64) - 11
    long.gpu_pages_allocated = 40
    assert long.get_additional_gpu_pages_needed() == 0


def test_host_growth_starts_at_the_extension_buffer_and_is_capped_by_the_budget() -> None:
    seq = entry(prompt=100, decode=1000)
    seq.host_pages_allocated, seq.host_token_capacity = 6, 384
    assert not seq.needs_host_kv_growth()  # headroom 284 > 256
    seq.current_context_length = 128
    assert seq.needs_host_kv_growth()  # headroom 256
    assert seq.get_host_growth_pages(200) == 4
    assert seq.get_host_growth_pages(8192) == -(-(1100 - 384) // 64)
    seq.host_pages_allocated, seq.host_token_capacity = 18, 18 * 64
    assert seq.get_host_growth_pages(8192) == 0


def test_initial_host_chunk_covers_chunk_or_gpu_reservation_within_the_budget() -> None:
    seq = entry(prompt=100, decode=100_000)
    assert seq.get_host_pages_for_initial_chunk(8192) == -(-(100 + 8192) // 64)
    assert seq.get_host_pages_for_initial_chunk(64) == 2 + 32
    assert entry(prompt=64, decode=100_000).get_host_pages_for_initial_chunk(64) == 2 + 32
    assert entry(prompt=100, decode=28).get_host_pages_for_initial_chunk(8192) == 2


@given(
    prompt=st.integers(1, 5000),
    decode=st.integers(1, 5000),
    decoded=st.integers(0, 5000),
    page=st.sampled_from([4, 16, 64]),
    chunk=st.integers(1, 9000),
)
def test_reservations_always_cover_the_next_token_and_never_pass_the_budget(
    prompt: int, decode: int, decoded: int, page: int, chunk: int
) -> None:
    seq_module.configure_page_buffers(page_size=page)
    seq = SequenceEntry("a", 0, prompt, decode)
    seq.decoded_length = min(decoded, decode - 1)
    seq.current_context_length = prompt + seq.decoded_length
    budget_pages = -(-seq.kv_token_budget // page)
    first = seq.get_gpu_pages_for_two_page_buffer()
    seq.mark_initial_gpu_reservation()
    again = seq.get_gpu_pages_for_two_page_buffer()
    assert first >= again and again * page >= seq.current_context_length + 1
    assert first <= budget_pages
    seq.gpu_pages_allocated = again
    assert seq.get_additional_gpu_pages_needed() == 0
    host = seq.get_host_pages_for_initial_chunk(chunk)
    assert prompt + 1 <= host * page and host <= budget_pages
    seq.host_pages_allocated, seq.host_token_capacity = host, host * page
    assert host + seq.get_host_growth_pages(chunk) <= budget_pages


def _break(seq: SequenceEntry, **values: object) -> SequenceEntry:
    for name, value in values.items():
        setattr(seq, name, value)
    return seq


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"current_context_length": 101}, "current_context_length 101"),
        ({"decoded_length": 1}, "decoded_length 1"),
        ({"kv_token_budget": 7}, "kv_token_budget 7"),
        ({"host_pages_allocated": 1}, "1 host pages"),
        ({"status": S.IN_DECODE, "gpu_pages_allocated": 1}, "IN_DECODE with 1 GPU pages"),
        ({"status": S.ON_HOLD, "gpu_pages_allocated": 1}, "ON_HOLD with 1 GPU pages"),
        (
            {"status": S.EVICTED, "gpu_pages_allocated": 1, "evicted_token_ids": torch.ones(1)},
            "EVICTED with 1",
        ),
        (
            {
                "status": S.EVICTED,
                "host_pages_allocated": 1,
                "host_token_capacity": 64,
                "evicted_token_ids": torch.ones(1),
            },
            "EVICTED with 0 GPU pages and 1 host",
        ),
        ({"status": S.EVICTED}, "no evicted_token_ids"),
    ],
)
def test_each_broken_invariant_is_named_with_its_sequence(broken: dict[str, object], said: str) -> None:
    problems = _break(entry("q7"), **broken).validate_metadata(owner=True)
    assert len(problems) == 1 and "q7" in problems[0] and said in problems[0]


def test_only_the_owner_must_hold_the_evicted_tokens() -> None:
    seq = _break(entry(), status=S.EVICTED)
    assert seq.validate_metadata(owner=False) == []


def test_page_size_is_read_at_call_time_and_bad_buffers_change_nothing() -> None:
    seq = entry(prompt=100, decode=10_000)
    seq_module.configure_page_buffers(page_size=16, initial=3, extension=2, decision_frequency=1)
    assert seq.get_gpu_pages_for_two_page_buffer() == -(-(100 + 48) // 16)
    assert seq_module.pages_for_tokens(33) == 3
    for bad in (
        {"initial": 1},
        {"extension": 4},
        {"decision_frequency": 3},
        {"decision_frequency": 0},
        {"page_size": 0},
    ):
        with pytest.raises(ValueError, match="page"):
            seq_module.configure_page_buffers(**bad)
        assert (
            seq_module.PAGE_SIZE,
            seq_module.INITIAL_GPU_PAGE_BUFFER,
            seq_module.EXTENSION_GPU_PAGE_BUFFER,
            seq_module.DECISION_FREQUENCY_PAGES,
        ) == (16, 3, 2, 1)


def test_a_batch_refuses_a_second_sequence_of_one_uuid_and_names_an_unknown_one() -> None:
    batch = SequenceBatch()
    batch.add_sequence(entry("a"))
    with pytest.raises(ValueError, match="already"):
        batch.add_sequence(entry("a", 1))
    for call in (batch.get_sequence, batch.remove_sequence):
        with pytest.raises(KeyError, match="no sequence zz"):
            call("zz")
    with pytest.raises(KeyError):
        batch.assign_rank("zz", 0)


def test_all_completed_means_every_sequence() -> None:
    batch = SequenceBatch()
    assert batch.all_completed()
    for i, uuid in enumerate("ab"):
        seq = entry(uuid, i)
        seq.status = S.PREFILLED
        batch.add_sequence(seq)
    batch.update_status("a", S.COMPLETED)
    assert not batch.all_completed() and batch.has_status(S.COMPLETED)
    batch.update_status("b", S.COMPLETED)
    assert batch.all_completed() and not batch.has_status(S.PREFILLED)


def test_direct_writes_to_status_and_rank_are_reported() -> None:
    batch = SequenceBatch()
    for i, uuid in enumerate("abc"):
        batch.add_sequence(entry(uuid, i))
    batch.assign_rank("a", 1)
    assert batch.validate_indexes() == []
    batch.get_sequence("a").assigned_rank = 0
    batch.get_sequence("b").status = S.COMPLETED
    batch.get_sequence("c").assigned_rank = 2
    batch.get_sequence("c").global_idx = 1
    text = "\n".join(batch.validate_indexes())
    assert "sequence a has rank 0" in text and "sequence b has status" in text
    assert "sequence c is missing from the rank index" in text and "share global_idx 1" in text
    del batch.sequences["a"]
    assert any("a is gone" in problem for problem in batch.validate_indexes())


def test_the_status_history_is_kept_where_it_is_switched_on() -> None:
    batch = SequenceBatch()
    seq = entry()
    batch.add_sequence(seq)
    batch.update_status("a", S.IN_PREFILL)
    assert seq._lifespan_log is None
    seq._lifespan_log = []
    batch.update_status("a", S.PREFILLED)
    batch.update_status("a", S.COMPLETED)
    assert seq._lifespan_log == [S.PREFILLED, S.COMPLETED]


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "status", "rank"]), st.integers(0, 7), st.integers(0, 6)),
        max_size=60,
    )
)
def test_indexes_and_sorted_queries_agree_with_a_scan_after_any_calls(
    ops: list[tuple[str, int, int]],
) -> None:
    batch = SequenceBatch()
    for op, who, value in ops:
        uuid = f"s{who}"
        if op == "add" and not batch.has_sequence(uuid):
            batch.add_sequence(entry(uuid, 100 - who))
        elif op != "add" and batch.has_sequence(uuid):
            if op == "remove":
                assert batch.remove_sequence(uuid).uuid == uuid
            elif op == "rank":
                batch.assign_rank(uuid, value % 3)
            elif S(value) in ALLOWED_TRANSITIONS[batch.get_sequence(uuid).status]:
                batch.update_status(uuid, S(value))
    assert batch.validate_indexes() == []
    everyone = sorted(batch, key=lambda seq: seq.global_idx)
    assert len(everyone) == len(batch)
    for status in S:
        assert batch.get_sequences_by_status(status) == [s for s in everyone if s.status == status]
        for rank in range(3):
            assert batch.get_sequences_for_rank_with_status(rank, status) == [
                s for s in everyone if s.status == status and s.assigned_rank == rank
            ]
    for rank in range(3):
        assert batch.get_sequences_for_rank(rank) == [s for s in everyone if s.assigned_rank == rank]
