"""Parked requests come back as they left, in their order, or are told that they cannot."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import BinaryIO

import pytest

from batchgen.scheduler.errors import ForwardError, KvExhausted, SpillError
from batchgen.scheduler.file_spill import FileSpill
from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.quirks import Quirks
from batchgen.scheduler.requeue import preempt_requeue, resume_preempted_seqs
from batchgen.scheduler.sequences import (
    ActiveSeq,
    Adaptive,
    FinishReason,
    PreemptedSeq,
    RowEvent,
    RowSampling,
    SwappedSeq,
    ToolCalls,
)
from batchgen.scheduler.spilling import spill_out_sequence
from batchgen.scheduler.swap_in import swap_in
from batchgen.scheduler.sweep import sweep_parked
from tests.batchgen.scheduler.rows import admit, context, counted, device_of, inbox
from tests.batchgen.scheduler.stub_device import StubDevice


def sched_of(*, quirks: Quirks | None = None, **device: object) -> SchedCtx:
    settings = {"quirks": quirks} if quirks is not None else {}
    return context(StubDevice(**device), **settings)  # type: ignore[arg-type]


def requeued(sched: SchedCtx, name: str, prompt: list[int], **settings: object) -> PreemptedSeq:
    return preempt_requeue(sched, admit(device_of(sched), name, prompt, **settings))


def spilled(
    sched: SchedCtx, store: FileSpill, name: str, prompt: list[int], **settings: object
) -> SwappedSeq:
    return spill_out_sequence(sched, admit(device_of(sched), name, prompt, **settings), store)


# -- requeue


def test_a_requeued_row_is_prefilled_with_its_exact_history_and_samples_nothing() -> None:
    sched = sched_of()
    parked = requeued(sched, "a", [7, 8, 9, 10, 11], first=12)
    row, active = parked.a, list[ActiveSeq]()
    row.output_tokens = [3] * 6 + [12]
    resume_preempted_seqs(sched, [parked], active)
    assert active == [row] and device_of(sched).prefills[-1] == (7, 8, 9, 10, 11)
    assert (row.last_token, row.remaining, row.output_tokens) == (12, 100, [3] * 6 + [12])
    assert row.immune_until == 7 + 64 and inbox(row).events == []
    assert counted(sched) == {"requeued": 1, "resumed": 1}
    assert (row.seq.tokens, row.seq.seq_len, row.seq.prompt_len) == ([7, 8, 9, 10, 11], 5, 5)
    device_of(sched).check()


def test_the_history_has_the_tokens_that_were_dropped_but_for_the_quirk() -> None:
    for quirks, expected in (
        (Quirks.corrected(), [7, 8, 3, 4]),
        (dataclasses.replace(Quirks.corrected(), history_without_dropped=True), [7, 8, 3]),
    ):
        sched = sched_of(quirks=quirks)
        row = admit(device_of(sched), "a", [7, 8, 3, 4])
        row.prompt_tokens, row.output_tokens, row.last_token = 2, [3, 5], 5  # 4 was fed, and dropped
        assert preempt_requeue(sched, row).tokens == expected


def test_fewest_blocks_come_back_first_and_a_block_to_grow_into_must_be_free() -> None:
    sched = sched_of(total=9, block_size=2)
    waiting = [requeued(sched, "a", [7] * 6), requeued(sched, "b", [8] * 2), requeued(sched, "c", [9] * 3)]
    device = device_of(sched)
    device.reclaim(9)
    blocker = device.alloc_sequence()
    device.prefill([1] * 8, blocker)  # 5 free: b and c want 2 and a spare, a wants 4 and a spare
    active: list[ActiveSeq] = []
    resume_preempted_seqs(sched, waiting, active)
    assert [row.request_id for row in active] == ["b", "c"] and device.free_blocks == 2
    assert [parked.a.request_id for parked in waiting] == ["a"]
    device.release(blocker, cache=False)
    resume_preempted_seqs(sched, waiting, active)
    assert [row.request_id for row in active] == ["b", "c", "a"]
    device.check()


def test_the_prefix_cache_gives_way_to_a_requeued_row() -> None:
    sched = sched_of(total=4, block_size=2, ssm=False)
    waiting = [requeued(sched, "a", [7] * 4)]
    device = device_of(sched)
    other = device.alloc_sequence()
    device.prefill([8] * 4, other)
    device.release(other, cache=True)
    assert device.free_blocks == 0
    active: list[ActiveSeq] = []
    resume_preempted_seqs(sched, waiting, active)
    assert len(active) == 1 and not waiting
    device.check()


def test_a_row_that_waits_for_blocks_asks_the_cache_until_it_has_nothing() -> None:
    sched = sched_of(total=4, block_size=2)
    device = device_of(sched)
    waiting = [requeued(sched, "a", [7] * 4)]
    device.prefill([8] * 4, device.alloc_sequence())
    resume_preempted_seqs(sched, waiting, [])
    assert len(waiting) == 1 and device.cached_blocks == 0 and inbox(waiting[0].a).events == []


def test_a_requeued_row_that_can_never_fit_gets_an_error_and_the_next_is_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sched = sched_of(total=9, block_size=2)
    small = sched_of(total=3, block_size=2)
    waiting = [requeued(sched, "large", [7] * 6), requeued(sched, "larger", [7] * 8)]
    rows = [parked.a for parked in waiting]
    active: list[ActiveSeq] = []
    resume_preempted_seqs(small, waiting, active)
    assert not waiting and not active and all(row.finished and row.error for row in rows)
    assert [[event.text for event in inbox(row).events] for row in rows] == [
        ["cannot be resumed: it needs 5 KV blocks, the pool has 3"],
        ["cannot be resumed: it needs 6 KV blocks, the pool has 3"],
    ]
    assert caplog.messages[0] == "large can never be resumed: it needs 5 KV blocks of 3"


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ("alloc", "preempt-resume alloc failed: no"),
        ("prefill", "preempt-resume re-prefill failed: no"),
    ],
)
def test_a_resume_that_fails_is_told_and_the_next_comes_back(
    point: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    sched = sched_of()
    waiting = [requeued(sched, "a", [7]), requeued(sched, "b", [8])]
    first = waiting[0].a
    device_of(sched).fail(point, ForwardError("no"))
    active: list[ActiveSeq] = []
    resume_preempted_seqs(sched, waiting, active)
    assert inbox(first).events == [RowEvent("error", text=said)]
    assert len(caplog.messages) == 1 and "of a failed: no" in caplog.messages[0]
    assert [row.request_id for row in active] == ["b"] and device_of(sched).live_sequences == 1
    device_of(sched).check()


def test_no_row_comes_back_to_a_full_batch(tmp_path: Path) -> None:
    sched = sched_of()
    sched.limits = dataclasses.replace(sched.limits, max_batch=2)
    active = [admit(device_of(sched), "x", [7])]
    with FileSpill(tmp_path, 10_000) as store:
        waiting = [requeued(sched, "a", [7]), requeued(sched, "b", [8])]
        swapped = [spilled(sched, store, "c", [9])]
        resume_preempted_seqs(sched, waiting, active)
        swap_in(sched, store, swapped, active)
    assert [row.request_id for row in active] == ["x", "a"] and len(waiting) == len(swapped) == 1


# -- swap-in


def test_a_spilled_row_comes_back_with_blocks_state_and_history(tmp_path: Path) -> None:
    sched = sched_of()
    history = [7, 8, 9, 10, 11]
    with FileSpill(tmp_path, 10_000) as store:
        parked = spilled(sched, store, "a", history, first=12)
        row, prompt_len = parked.a, parked.a.seq.prompt_len
        other = admit(device_of(sched), "other", [1, 2, 3])  # takes the slots that it had
        active: list[ActiveSeq] = []
        swap_in(sched, store, [parked], active)
        assert active == [row] and (row.last_token, row.remaining, row.output_tokens) == (12, 100, [12])
        assert (row.seq.tokens, row.seq.seq_len, row.seq.prompt_len) == (history, 5, prompt_len)
        assert row.immune_until == 1 + 64 and inbox(row).events == []
        assert row.seq.slot_idx != other.seq.slot_idx and row.seq.ssm_slot != other.seq.ssm_slot
        assert list(tmp_path.glob("*/*")) == [] and store.usage().bytes == 0
        assert counted(sched) == {"spilled": 1, "swapped_in": 1}
    device_of(sched).check()


def test_spilled_rows_come_back_in_their_order_as_far_as_they_fit(tmp_path: Path) -> None:
    sched = sched_of(total=8, block_size=2)
    device = device_of(sched)
    with FileSpill(tmp_path, 10_000) as store:
        swapped = [spilled(sched, store, name, [7] * size) for name, size in (("a", 8), ("b", 4), ("c", 2))]
        device.prefill([1] * 8, device.alloc_sequence())  # 4 free: a wants 5, b 3
        active: list[ActiveSeq] = []
        swap_in(sched, store, swapped, active)
        assert [row.request_id for row in active] == ["b", "c"] and device.free_blocks == 1
        assert [parked.a.request_id for parked in swapped] == ["a"]


def test_a_spilled_row_comes_back_with_a_block_to_grow_into_but_for_the_quirk(tmp_path: Path) -> None:
    for quirks, back in (
        (Quirks.corrected(), 0),
        (dataclasses.replace(Quirks.corrected(), swap_in_without_growth=True), 1),
    ):
        sched = sched_of(total=4, block_size=2, quirks=quirks)
        device = device_of(sched)
        with FileSpill(tmp_path, 10_000) as store:
            swapped = [spilled(sched, store, "a", [7] * 4)]
            device.prefill([1] * 4, device.alloc_sequence())
            active: list[ActiveSeq] = []
            swap_in(sched, store, swapped, active)
            assert len(active) == back, quirks


def test_the_prefix_cache_gives_way_to_a_spilled_row(tmp_path: Path) -> None:
    sched = sched_of(total=3, block_size=2)
    device = device_of(sched)
    with FileSpill(tmp_path, 10_000) as store:
        swapped = [spilled(sched, store, "a", [7] * 4)]
        other = device.alloc_sequence()
        device.prefill([8] * 6, other)
        device.release(other, cache=True)
        active: list[ActiveSeq] = []
        swap_in(sched, store, swapped, active)
        assert len(active) == 1
    device.check()


def test_a_spilled_row_that_can_never_fit_gets_an_error_and_leaves_no_entry(tmp_path: Path) -> None:
    large, small = sched_of(total=9, block_size=2), sched_of(total=3, block_size=2)
    with FileSpill(tmp_path, 10_000) as store:
        swapped = [spilled(large, store, "a", [7] * 8)]
        row = swapped[0].a
        swap_in(small, store, swapped, [])
        assert not swapped and store.usage().entries == 0
    assert [event.text for event in inbox(row).events] == [
        "cannot be resumed: it needs 5 KV blocks, the pool has 3"
    ]


@pytest.mark.parametrize("point", ["alloc", "restore", "open", "remove"])
def test_a_swap_in_that_fails_is_told_frees_everything_and_ends_the_round(
    point: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(FileSpill):
        broken = False

        def open(self, swap_id: int):  # type: ignore[no-untyped-def]
            if self.broken and point == "open":
                raise SpillError("no")
            return super().open(swap_id)

        def remove(self, swap_id: int) -> None:
            if self.broken and point == "remove":
                self.broken = False
                raise SpillError("no")
            super().remove(swap_id)

    sched = sched_of()
    device = device_of(sched)
    with Failing(tmp_path, 10_000) as store:
        swapped = [spilled(sched, store, "a", [7]), spilled(sched, store, "b", [8])]
        first = swapped[0].a
        store.broken = True
        if point in ("alloc", "restore"):
            device.fail(point, ForwardError("no"))
        active: list[ActiveSeq] = []
        swap_in(sched, store, swapped, active)
        assert inbox(first).events == [RowEvent("error", text="swap-in failed: no")]
        assert caplog.messages == ["a: swap-in failed: no"]
        assert active == [] and [parked.a.request_id for parked in swapped] == ["b"]
        assert device.live_sequences == 0 and store.usage().entries == 1
        device.check()
        store.broken = False
        swap_in(sched, store, swapped, active)
        assert [row.request_id for row in active] == ["b"]


def test_an_entry_that_stays_behind_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sched = sched_of()
    with FileSpill(tmp_path, 10_000) as store:
        swapped = [spilled(sched, store, "a", [7])]
        swapped[0].a.cancelled = True

        def refuse(swap_id: int) -> None:
            raise SpillError("no")

        store.remove = refuse  # type: ignore[method-assign]
        assert len(sweep_parked(sched, store, swapped, [])) == 1 and not swapped
    assert caplog.messages == ["spill entry 0 is left behind: no"]


def test_an_entry_that_is_damaged_is_refused(tmp_path: Path) -> None:
    sched = sched_of()
    with FileSpill(tmp_path, 10_000) as store:
        swapped = [spilled(sched, store, "a", [7] * 9)]
        row = swapped[0].a
        swapped[0].num_blocks = 2
        swap_in(sched, store, swapped, [])
        assert [event.text for event in inbox(row).events] == [
            "swap-in failed: the entry holds 3 blocks, 2 were spilled"
        ]


# -- what a spill keeps


def laden(sched: SchedCtx) -> ActiveSeq:
    row = admit(device_of(sched), "a", [7], sampling=RowSampling(penalty_window=9, lz_penalty=0.5, seed=4))
    row.tools = ToolCalls(
        requested=True,
        tools_present=True,
        opened=True,
        completed=True,
        inside_body=True,
        inside_parameter=True,
        body_streak=5,
        content_started=True,
        content_tokens=8,
        prose_since_last=2,
    )
    row.adaptive = Adaptive(low_entropy_run=9, lz_ratio=0.3, lz_checked_at=32)
    row.guard_stop, row.cancelled, row.last_token_time = "tool_body", True, 1.5
    return row


def described(row: ActiveSeq) -> dict[str, object]:
    kept = {"tools", "adaptive", "sampling"}
    return {
        **{f"{name}.{k}": v for name in kept for k, v in dataclasses.asdict(getattr(row, name)).items()},
        "guard_stop": row.guard_stop,
        "cancelled": row.cancelled,
        "last_token_time": row.last_token_time,
    }


@pytest.mark.parametrize("way", ["spill", "requeue"])
def test_a_parked_row_keeps_all_it_knows(way: str, tmp_path: Path) -> None:
    sched = sched_of()
    row = laden(sched)
    before = described(row)
    with FileSpill(tmp_path, 10_000) as store:
        if way == "spill":
            swap_in(sched, store, [spill_out_sequence(sched, row, store)], [])
        else:
            resume_preempted_seqs(sched, [preempt_requeue(sched, row)], [])
    assert described(row) == before


def test_under_the_quirk_a_spill_forgets_what_a_requeue_keeps(tmp_path: Path) -> None:
    sched = sched_of(quirks=Quirks.faithful())
    row = laden(sched)
    before = described(row)
    with FileSpill(tmp_path, 10_000) as store:
        swap_in(sched, store, [spill_out_sequence(sched, row, store)], [])
    after = described(row)
    assert {name: after[name] for name in before if after[name] != before[name]} == {
        "tools.completed": False,
        "tools.inside_body": False,
        "tools.inside_parameter": False,
        "tools.body_streak": 0,
        "tools.content_started": False,
        "tools.content_tokens": 0,
        "tools.prose_since_last": 0,
        "adaptive.low_entropy_run": 0,
        "adaptive.lz_ratio": 1.0,
        "adaptive.lz_checked_at": 0,
        "sampling.penalty_window": 256,
        "sampling.lz_penalty": 0.0,
        "guard_stop": None,
        "cancelled": False,
        "last_token_time": sched.io.clock.time,  # type: ignore[attr-defined]
    }
    sched = sched_of(quirks=Quirks.faithful())
    row = laden(sched)
    before = described(row)
    resume_preempted_seqs(sched, [preempt_requeue(sched, row)], [])
    assert described(row) == before


# -- requests that end while they are parked


def parked_both_ways(sched: SchedCtx, store: FileSpill) -> tuple[list[SwappedSeq], list[PreemptedSeq]]:
    return (
        [spilled(sched, store, name, [7]) for name in ("a", "b", "c")],
        [requeued(sched, name, [8]) for name in ("d", "e", "f")],
    )


def test_a_parked_request_ends_at_its_deadline_or_when_it_is_cancelled(tmp_path: Path) -> None:
    sched = sched_of()
    with FileSpill(tmp_path, 10_000) as store:
        swapped, preempted = parked_both_ways(sched, store)
        rows = [parked.a for parked in swapped] + [parked.a for parked in preempted]
        rows[0].cancelled = rows[3].cancelled = True
        rows[1].timeout_at = rows[4].timeout_at = 0.0
        rows[2].timeout_at = rows[5].timeout_at = 1e9
        ended = sweep_parked(sched, store, swapped, preempted)
        assert [row.request_id for row in ended] == ["a", "b", "d", "e"]
        assert [parked.a for parked in swapped] == [rows[2]] and [p.a for p in preempted] == [rows[5]]
        assert store.usage().entries == 1
    finals = [[event.finish_reason for event in inbox(row).finals] for row in rows]
    assert finals[1] == finals[4] == [FinishReason.TIMEOUT]
    assert [len(final) for final in finals] == [1, 1, 0, 1, 1, 0]
    assert device_of(sched).live_sequences == 0 and counted(sched)["ended_parked"] == 4


def test_under_the_quirk_a_parked_request_cannot_end(tmp_path: Path) -> None:
    sched = sched_of(quirks=Quirks.faithful())
    with FileSpill(tmp_path, 10_000) as store:
        swapped, preempted = parked_both_ways(sched, store)
        for row in [parked.a for parked in swapped] + [parked.a for parked in preempted]:
            row.cancelled, row.timeout_at = True, 0.0
        assert sweep_parked(sched, store, swapped, preempted) == []
        assert len(swapped) == len(preempted) == 3


def test_a_spill_that_cannot_be_made_hands_the_row_back_as_it_was(tmp_path: Path) -> None:
    sched = sched_of()
    device = device_of(sched)
    with FileSpill(tmp_path, 10_000) as store:
        row = admit(device, "a", [7] * 5)
        writers = []
        create = store.create

        def created() -> tuple[int, BinaryIO]:
            swap_id, writer = create()
            writers.append(writer)
            return swap_id, writer

        store.create = created  # type: ignore[method-assign]
        before = dataclasses.replace(
            row.seq, tokens=list(row.seq.tokens), block_table=list(row.seq.block_table)
        )
        device.fail("save", KvExhausted("a staging page"))
        with pytest.raises(SpillError, match="cannot spill slot 0: KV cache exhausted: a staging page"):
            spill_out_sequence(sched, row, store)
        assert dataclasses.astuple(row.seq) == dataclasses.astuple(before)
        assert device.released == [] and counted(sched)["spilled"] == 0
        assert [writer.closed for writer in writers] == [True]
        assert list(tmp_path.glob("*/*")) == [] and store.usage().entries == 0
