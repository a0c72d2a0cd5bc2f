"""What a launch that fails does to the rows: one is parked and the rest go on, or all end."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchgen.scheduler.errors import EffectError, ForwardError, KvExhausted, LaunchError, ReadbackError
from batchgen.scheduler.file_spill import FileSpill
from batchgen.scheduler.ports import SpillIo
from batchgen.scheduler.sequences import ActiveSeq, RowEvent
from batchgen.scheduler.trace import Victim
from tests.batchgen.scheduler.rows import admit, context, counted, inbox
from tests.batchgen.scheduler.stepping import Batch
from tests.batchgen.scheduler.stub_device import StubDevice

EXHAUSTED = KvExhausted("injected")


def batch_of(outputs: list[int], device: StubDevice | None = None, spill: SpillIo | None = None) -> Batch:
    """Rows of two full blocks each, with so many tokens generated, in slot order."""
    device = device or StubDevice(ssm=False)
    rows = []
    for index, count in enumerate(outputs):
        row = admit(device, f"r{index}", [7 + index] * 8, first=20 + index)
        row.output_tokens = [9] * (count - 1) + [row.last_token]
        rows.append(row)
    return Batch(context(device), rows, spill)


def device_of(batch: Batch) -> StubDevice:
    assert isinstance(batch.sched.io.device, StubDevice)
    return batch.sched.io.device


def test_the_row_with_least_progress_is_requeued_and_the_others_keep_their_order() -> None:
    batch = batch_of([5, 3, 4, 6])
    device, victim = device_of(batch), batch.active[1]
    device.fail("reserve", EXHAUSTED)
    trace = batch.step()
    assert len(device.launches) == 2 and trace.outcome == "stepped"
    assert batch.names == ["r0", "r2", "r3"]
    assert trace.tokens == tuple(row.last_token for row in batch.active)
    [parked] = batch.preempted
    assert parked.a is victim and parked.tokens == [8] * 8 and victim.last_token == 21
    assert inbox(victim).events == [] and len(victim.output_tokens) == 3
    assert device.released == [(1, True)] and device.cached_blocks == 2  # offered to the prefix cache, once
    assert trace.victims == [Victim("r1", "requeue", 2)]
    assert counted(batch.sched) == {"preempted": 1, "requeued": 1}
    device.check()


def test_the_row_with_least_progress_is_spilled_where_there_is_a_store(tmp_path: Path) -> None:
    with FileSpill(tmp_path, 10_000) as spill:
        batch = batch_of([5, 3, 4], spill=spill)
        device = device_of(batch)
        device.fail("reserve", EXHAUSTED)
        trace = batch.step()
        [parked] = batch.swapped
        assert (parked.a.request_id, parked.tokens, parked.seq_len, parked.num_blocks) == (
            "r1",
            [8] * 8,
            8,
            2,
        )
        assert trace.victims == [Victim("r1", "spill", 2)] and not batch.preempted
        assert device.released == [(1, False)] and device.cached_blocks == 0
        assert spill.usage().entries == 1 and inbox(parked.a).events == []
        assert counted(batch.sched) == {"preempted": 1, "spilled": 1}
        device.check()


def test_a_warning_says_who_was_parked_and_why(caplog: pytest.LogCaptureFixture) -> None:
    batch = batch_of([5, 3])
    device_of(batch).fail("reserve", EXHAUSTED)
    batch.step()
    assert caplog.messages == [
        "KV cache exhausted during decode: preempting slot=1 (2 blocks, 3 tokens generated) "
        "for later RESUME so the other 1 sequence(s) can continue"
    ]


@pytest.mark.parametrize("point", ["create", "save", "record"])
def test_a_spill_that_fails_is_a_requeue_and_leaves_nothing_behind(
    point: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(FileSpill):
        def create(self):  # type: ignore[no-untyped-def]
            if point == "create":
                raise OSError(28, "No space left on device")
            return super().create()

        def record_usage(self, swap_id: int) -> None:
            if point == "record":
                raise OSError(28, "No space left on device")
            super().record_usage(swap_id)

    with Failing(tmp_path, 10_000) as spill:
        batch = batch_of([5, 3], spill=spill)
        device = device_of(batch)
        device.fail("reserve", EXHAUSTED)
        if point == "save":
            device.fail("save", OSError(28, "No space left on device"))
        trace = batch.step()
        assert not batch.swapped and [parked.a.request_id for parked in batch.preempted] == ["r1"]
        [victim] = trace.victims
        assert victim.route == "requeue" and "No space left" in (victim.spill_error or "")
        assert list(tmp_path.glob("*/*")) == [] and spill.usage().entries == 0
        assert counted(batch.sched) == {"preempted": 1, "spill_failed": 1, "requeued": 1}
        assert caplog.messages[-1] == f"{victim.spill_error}; slot=1 is requeued for a prefill"
        device.check()


def test_a_store_that_is_full_requeues(tmp_path: Path) -> None:
    with FileSpill(tmp_path, 60) as spill:  # two blocks of four cells take more
        batch = batch_of([5, 3], spill=spill)
        device_of(batch).fail("reserve", EXHAUSTED)
        [victim] = batch.step().victims
        assert victim.route == "requeue" and "do not fit the spill budget" in (victim.spill_error or "")
        assert spill.usage().bytes == 0 and list(tmp_path.glob("*/*")) == []


def errors(rows: list[ActiveSeq]) -> list[list[RowEvent]]:
    return [inbox(row).events for row in rows]


@pytest.mark.parametrize(
    "error",
    [
        ReadbackError("KV cache exhausted: so it says"),
        EffectError("KV cache exhausted: so it says"),
    ],
)
@pytest.mark.parametrize("point", ["readback", "wait"])
def test_a_result_that_is_lost_ends_all_rows_and_parks_none(error: LaunchError, point: str) -> None:
    batch = batch_of([5, 3])
    device, rows = device_of(batch), list(batch.active)
    device.lost = True  # not looked at: the rows are lost, not the device
    device.fail(point, error)
    trace = batch.step()
    said = RowEvent("error", text="argmax_batch error: KV cache exhausted: so it says")
    assert errors(rows) == [[said], [said]] and batch.active == [] and not batch.preempted
    assert sorted(device.released) == [(0, False), (1, False)] and device.cached_blocks == 0
    assert trace.outcome == "failed" and trace.drained == ("r0", "r1")
    assert all(row.finished and row.error == said.text for row in rows)
    assert not batch.sched.shutdown_requested
    device.check()


@pytest.mark.parametrize("lost", [False, True])
def test_a_forward_that_fails_ends_all_rows_and_a_lost_device_the_engine(lost: bool) -> None:
    batch = batch_of([5, 3])
    device, rows = device_of(batch), list(batch.active)
    device.lost = lost
    device.fail("forward", ForwardError("illegal memory access"))
    batch.step()
    said = RowEvent("error", text="decode_batch error: illegal memory access")
    assert errors(rows) == [[said], [said]] and batch.active == []
    assert batch.sched.shutdown_requested is lost
    assert device.released == [(0, False), (1, False)] and len(device.launches) == 1


def test_a_row_alone_is_never_parked() -> None:
    batch = batch_of([5])
    [row] = batch.active
    device_of(batch).fail("reserve", EXHAUSTED)
    trace = batch.step()
    assert [event.text for event in inbox(row).events] == ["decode_batch error: KV cache exhausted: injected"]
    assert (
        batch.active == []
        and not batch.preempted
        and [launch.result for launch in trace.launches] == ["kv_exhausted"]
    )


def test_rows_parked_before_the_last_one_failed_stay_parked() -> None:
    batch = batch_of([5, 3, 4])
    device, rows = device_of(batch), list(batch.active)
    device.fail("reserve", EXHAUSTED, times=3)
    trace = batch.step()
    assert [parked.a.request_id for parked in batch.preempted] == ["r1", "r2"] and trace.drained == ("r0",)
    assert [len(events) for events in errors(rows)] == [1, 0, 0]
    assert len(device.released) == 3 and len(device.launches) == 3


def test_exhaustion_is_known_by_its_text_anywhere_among_the_causes() -> None:
    batch = batch_of([5, 3])
    error = ForwardError("layer 3 failed")
    error.__cause__ = RuntimeError("allocator: KV cache exhausted (0 free)")
    device_of(batch).fail("reserve", error)
    batch.step()
    assert batch.names == ["r0"] and len(batch.preempted) == 1


def test_rows_under_a_grammar_are_not_parked_and_end_where_there_is_no_other() -> None:
    batch = batch_of([5, 3])
    rows = list(batch.active)
    for row in rows:
        row.grammar = Free()
    device_of(batch).fail("reserve", EXHAUSTED)
    batch.step()
    assert batch.active == [] and not batch.preempted and [len(events) for events in errors(rows)] == [1, 1]


class Free:
    """A grammar that allows everything."""

    def accept(self, token: int) -> None: ...
    def blocks_stop(self) -> bool:
        return False

    def is_terminated(self) -> bool:
        return False

    def only_token(self) -> int | None:
        return None

    def allows(self, token: int) -> bool:
        return True


def test_a_release_that_fails_is_logged_and_the_other_rows_are_still_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batch = batch_of([5, 3])
    rows = list(batch.active)
    device_of(batch).fail("forward", ForwardError("boom"))
    device_of(batch).fail("release", EffectError("stuck"))
    batch.step()
    assert [len(events) for events in errors(rows)] == [1, 1]
    assert "release of slot=0 failed: stuck" in caplog.messages
    assert counted(batch.sched)["release_failed"] == 1
