"""`step_decode_only` in its order: sort, debug line, staging buffer, launch, tokens."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from typing import Any

import pytest

from batchgen.scheduler.errors import ForwardError, ReadbackError
from batchgen.scheduler.sequences import ActiveSeq
from batchgen.scheduler.step import step_decode_only
from batchgen.scheduler.trace import Launch, Order, StepTrace
from tests.batchgen.scheduler.rows import admit, bare_row, context, inbox
from tests.batchgen.scheduler.stepping import Batch
from tests.batchgen.scheduler.stub_device import StubDevice

DIAGNOSIS = "batchgen.scheduler.diagnosis"


def batch_of(*prompts: list[int], ssm: bool = True, total: int = 64) -> Batch:
    device = StubDevice(ssm=ssm, total=total)
    rows = [admit(device, f"r{i}", prompt, first=10 + i) for i, prompt in enumerate(prompts)]
    return Batch(context(device), rows)


def test_the_parameters_are_those_of_the_engine_studied_in_their_order() -> None:
    signature = inspect.signature(step_decode_only)
    assert list(signature.parameters) == [
        "active",
        "think_end_token",
        "think_start_token",
        "code_fence_token",
        "tool_call_start_token",
        "tool_call_end_token",
        "adaptive_sampling",
        "sched",
        "spill",
        "swapped",
        "preempted",
    ]


def test_rows_are_sorted_by_ssm_slot_before_the_launch_and_move_as_a_whole() -> None:
    batch = batch_of([7], [8, 9], [7, 8])
    rows = list(batch.active)
    assert [row.seq.ssm_slot for row in rows] == [63, 62, 61]  # the stub numbers them the other way round
    trace = batch.step()
    assert batch.active == rows[::-1]
    assert trace.order == Order(("r2", "r1", "r0"), (61, 62, 63), contiguous=True)
    assert trace.launches == [Launch(("r2", "r1", "r0"), (12, 11, 10), "host", "ok")]
    assert trace.tokens == tuple(row.last_token for row in batch.active)
    assert [row.output_tokens[-1] for row in batch.active] == list(trace.tokens)


def test_a_row_without_ssm_slot_is_sorted_by_its_kv_slot_among_the_others() -> None:
    device = StubDevice(slots=4)
    rows = [admit(device, f"r{i}", [7, 8]) for i in range(3)]  # SSM slots 3, 2, 1; KV slots 0, 1, 2
    rows[2].seq.ssm_slot = None
    batch = Batch(context(device), rows)
    assert batch.step().order == Order(("r1", "r2", "r0"), (2, 2, 3), contiguous=False)


def test_a_step_of_no_rows_launches_nothing_and_leaves_the_buffer() -> None:
    batch = batch_of()
    lent = batch.sched.scratch.host_bytes
    trace = batch.step()
    assert trace == StepTrace(1, Order((), (), True), outcome="empty", buffer="untouched")
    assert batch.sched.scratch.host_bytes is lent


def test_nothing_is_recorded_where_nobody_asks() -> None:
    batch = batch_of([7], [8])
    batch.sched.record = None
    step_decode_only(batch.active, None, None, None, None, None, False, batch.sched, None, [], [])
    assert batch.traces == [] and [len(row.output_tokens) for row in batch.active] == [2, 2]


# -- the debug line


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == DIAGNOSIS]


def test_the_debug_line_says_which_rows_go_into_the_step(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, DIAGNOSIS)
    batch = batch_of([7, 7, 7, 7, 7], [8])
    batch.step()
    assert lines(caplog) == [
        "CONC_DIAG n=2: [0: slot=1 seq_len=1 bt=2/1 last=11 out_n=1] "
        "[1: slot=0 seq_len=5 bt=0/2 last=10 out_n=1]"
    ]


def test_the_first_block_of_an_empty_table_is_printed_as_the_largest_u32(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, DIAGNOSIS)
    device = StubDevice()
    device.fail("reserve", ForwardError("the rows hold nothing"))
    Batch(context(device), [bare_row("a", 4), bare_row("b", 5)]).step()
    assert lines(caplog) == [
        "CONC_DIAG n=2: [0: slot=4 seq_len=0 bt=4294967295/0 last=1 out_n=0] "
        "[1: slot=5 seq_len=0 bt=4294967295/0 last=1 out_n=0]"
    ]


def test_one_row_has_no_debug_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, DIAGNOSIS)
    batch_of([7]).step()
    assert lines(caplog) == []


class Watched(list[int]):
    """A block table that notes when one of its blocks is looked at."""

    looked = 0

    def __getitem__(self, index: Any) -> Any:
        self.looked += 1
        return super().__getitem__(index)


@pytest.mark.parametrize(("level", "looks"), [(logging.INFO, 0), (logging.DEBUG, 1)])
def test_the_debug_line_is_not_built_unless_it_is_logged(
    level: int, looks: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(level, DIAGNOSIS)
    device = StubDevice()
    rows = [admit(device, name, [7] * 5) for name in "ab"]
    watched = Watched(
        rows[0].seq.block_table
    )  # its next token goes into block 1: the step has no use for block 0
    rows[0].seq.block_table = watched
    device.fail("reserve", ForwardError("before any table is looked at"))
    Batch(context(device), rows).step()
    assert watched.looked == looks


# -- the staging buffer


def test_the_staging_buffer_is_lent_and_the_same_object_comes_back() -> None:
    batch = batch_of([7], [8])
    scratch = batch.sched.scratch
    lent = scratch.host_bytes
    seen: list[tuple[bytearray, bytearray]] = []
    device = batch.sched.io.device
    launch = device.launch

    def watched(command: object, seqs: object, staging: bytearray) -> object:
        seen.append((staging, scratch.host_bytes))
        return launch(command, seqs, staging)  # type: ignore[arg-type]

    device.launch = watched  # type: ignore[method-assign, assignment]
    assert batch.step().buffer == "returned"
    [(staging, meanwhile)] = seen
    assert staging is lent and meanwhile is not lent and meanwhile == b""
    assert scratch.host_bytes is lent and len(lent) == 2 * 32 * 4
    batch.step()
    assert scratch.host_bytes is lent


@pytest.mark.parametrize("point", ["forward", "readback", "wait"])
def test_a_step_that_fails_drops_the_buffer_and_leaves_a_usable_one(point: str) -> None:
    batch = batch_of([7], [8])
    device = batch.sched.io.device
    assert isinstance(device, StubDevice)
    device.fail(point, ForwardError("boom") if point == "forward" else ReadbackError("boom"))
    lent = batch.sched.scratch.host_bytes
    trace = batch.step()
    assert (trace.outcome, trace.buffer, trace.drained) == ("failed", "dropped", ("r1", "r0"))
    assert batch.sched.scratch.host_bytes is not lent and batch.sched.scratch.host_bytes == b""
    batch.active.append(admit(device, "next", [9]))
    assert batch.step().buffer == "returned"


def test_a_fault_of_the_program_leaves_the_step_and_a_trace_of_it() -> None:
    batch = batch_of([7], [8])
    device = batch.sched.io.device
    assert isinstance(device, StubDevice)
    device.fail("forward", ZeroDivisionError("no error of a device"))
    with pytest.raises(ZeroDivisionError):
        batch.step()
    assert (batch.traces[-1].outcome, batch.traces[-1].buffer) == ("failed", "dropped")
    assert batch.traces[-1].order == Order(("r1", "r0"), (62, 63), contiguous=True)
    assert len(batch.active) == 2


# -- retries


def sampled(row: ActiveSeq) -> None:
    row.sampling = dataclasses.replace(row.sampling, temperature=0.9)


def test_a_retry_launches_the_tokens_and_the_readback_of_the_rows_that_are_left() -> None:
    device = StubDevice(total=3, block_size=2, ssm=False, logits_are_fp32=False)
    rows = [admit(device, f"r{i}", [7, 8 + i], first=10 + i) for i in range(3)]
    rows[0].output_tokens += [1, 1]
    rows[2].output_tokens += [1, 1]
    sampled(rows[1])
    batch = Batch(context(device), list(rows))
    trace = batch.step()
    assert trace.launches == [
        Launch(("r0", "r1", "r2"), (10, 11, 12), "host", "kv_exhausted"),
        Launch(("r0", "r2"), (10, 12), "argmax", "kv_exhausted"),
        Launch(("r2",), (12,), "argmax", "ok"),
    ]
    assert batch.names == ["r2"] and [parked.a.request_id for parked in batch.preempted] == ["r1", "r0"]
    assert [len(row.output_tokens) for row in rows] == [3, 1, 4]
    assert inbox(rows[0]).events == inbox(rows[1]).events == []
    device.check()
