"""From what a launch gave back to the rows: the two readbacks, the fallback, failures, the buffer, the debug line."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from batchgen.scheduler.ports import DecodeOutcome, Io, ReadbackKind, Ticket
from batchgen.scheduler.sequences import RowSampling, Thinking
from batchgen.scheduler.tokens import logits as step_logits
from batchgen.scheduler.tokens.logits import process_decode_logits
from batchgen.scheduler.trace import StepTrace
from tests.batchgen.scheduler.tokens.world import (
    EOS,
    IDS,
    THINK_END,
    THINK_START,
    VOCAB,
    Clock,
    Counts,
    LogitsDevice,
    heard,
    make_row,
    make_sched,
    peak,
    settings,
    step,
)


def run(active, outcome, device, staging=None, trace=None, sched=None, t0=100.0):
    sched = sched or make_sched(device)
    staging = bytearray() if staging is None else staging
    process_decode_logits(active, outcome, Ticket(1), staging, t0, *ids(), False, sched, trace or StepTrace())
    return sched


def ids():
    return IDS.think_end, IDS.think_start, IDS.code_fence, IDS.tool_call_start, IDS.tool_call_end


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("argmax", [False, True])
def test_row_i_of_the_logits_is_row_i_of_the_batch(argmax: bool, bf16: bool) -> None:
    active = [make_row(name) for name in "abc"]
    _, trace = step(active, [peak(5), peak(7), peak(9)], argmax=argmax, bf16=bf16)
    assert [heard(row) for row in active] == [[5], [7], [9]]
    assert (trace.outcome, trace.tokens, trace.buffer) == ("stepped", (5, 7, 9), "returned")


def test_the_buffer_that_was_lent_is_put_back_and_may_be_resized() -> None:
    device = LogitsDevice([peak(5)])
    staging = bytearray()
    outcome = device.read_logits(Ticket(1), staging)
    sched = run([make_row()], outcome, device, staging)
    assert sched.scratch.host_bytes is staging
    staging.extend(b"more")  # BufferError if a view of it were still alive


def test_the_device_is_not_asked_for_logits_where_its_choice_is_enough() -> None:
    sched, _ = step([make_row()], [peak(5)], argmax=True)
    assert sched.io.device.reads == 0 and sched.io.telemetry.counts == {}


@pytest.mark.parametrize("token", [THINK_END, THINK_START])
def test_a_device_choice_that_reopens_thinking_sends_every_row_to_the_host(token: int) -> None:
    # The host masks both after a close; the other row has a bias, which the device did not apply.
    ended = make_row("ended", thinking=Thinking(ended=True))
    biased = make_row("biased", sampling=RowSampling(logit_bias={8: 100.0}))
    logits = [peak(token), peak(7)]
    logits[0][4] = 5.0
    sched, trace = step([ended, biased], logits, argmax=True)
    assert (sched.io.device.reads, sched.io.telemetry.counts) == (1, {"argmax_fallbacks": 1})
    assert trace.tokens == (4, 8)


def test_before_any_thinking_ended_the_device_may_open_it() -> None:
    row = make_row()
    sched, _ = step([row], [peak(THINK_START)], argmax=True)
    assert row.thinking.inside and sched.io.device.reads == 0


def test_logits_that_cannot_be_read_fail_every_row() -> None:
    device = LogitsDevice([peak(THINK_END), peak(3)], broken=True)
    active = [make_row("a", thinking=Thinking(ended=True)), make_row("b")]
    rows, trace = list(active), StepTrace()
    outcome = DecodeOutcome(ReadbackKind.ARGMAX, 2, VOCAB, 4, (THINK_END, 3))
    sched = make_sched(device)
    spare = sched.scratch.host_bytes
    staging = bytearray()
    run(active, outcome, device, staging, trace, sched)
    assert active == [] and (trace.outcome, trace.drained, trace.buffer) == (
        "failed",
        ("a", "b"),
        "untouched",
    )
    for row in rows:
        assert [(event.kind, event.text) for event in row.receiver.events] == [("error", "the copy was lost")]
    assert device.released == [(row.seq, False) for row in rows]
    assert sched.scratch.host_bytes is spare and spare is not staging


@pytest.mark.parametrize(
    ("outcome", "complaint"),
    [
        (DecodeOutcome(ReadbackKind.ARGMAX, 1, VOCAB, 4, (1, 2)), "2 tokens for 1"),
        (DecodeOutcome(ReadbackKind.ARGMAX, 1, VOCAB, 4), "0 tokens for 1"),
        (DecodeOutcome(ReadbackKind.ARGMAX, 2, VOCAB, 4, (1, 2)), "2 rows back for 1"),
        (DecodeOutcome(ReadbackKind.HOST, 1, VOCAB, 4), "the staging buffer has 0 bytes"),
        (DecodeOutcome(ReadbackKind.HOST, 1, VOCAB, 8), "in 8 bytes each"),
    ],
)
def test_an_outcome_that_does_not_fit_the_batch_fails_it(outcome: DecodeOutcome, complaint: str) -> None:
    row = make_row()
    run([row], outcome, LogitsDevice())
    assert complaint in row.receiver.events[0].text


def test_one_row_with_damaged_logits_leaves_the_others_alone() -> None:
    active = [make_row("good"), make_row("bad"), make_row("sampled", sampling=RowSampling(1.0))]
    broken = peak(3)
    broken[9] = np.nan
    step(active, [peak(5), broken, peak(6, height=200.0)])
    assert [row.output_tokens for row in active] == [[5], [], [6]]
    assert active[1].finished and active[1].error == "no token can be chosen: the largest logit is nan"
    assert [row.finished for row in active] == [False, True, False]


def test_rows_to_skip_are_left_untouched() -> None:
    active = [make_row(name) for name in "abc"]
    _, trace = step(active, [peak(5), peak(7), peak(9)], skip={1})
    assert [row.output_tokens for row in active] == [[5], [], [9]]
    assert active[1].draws == 0 and trace.tokens == (5, 9)


def test_side_by_side_is_the_same_as_one_by_one() -> None:
    logits = np.random.default_rng(3).normal(size=(12, VOCAB)).astype(np.float32) * 3
    streams = []
    for parallel in (False, True):
        active = [make_row(str(i), sampling=RowSampling(0.5 + i / 8, seed=i, top_k=i)) for i in range(12)]
        sched = settings(parallel_sampling=parallel)
        for _ in range(6):
            step(active, logits, sched, adaptive=True)
        streams.append([row.output_tokens for row in active])
    assert streams[0] == streams[1] and len({tuple(stream) for stream in streams[0]}) > 6


def test_with_temperature_zero_forced_nothing_but_the_argmax_counts() -> None:
    row = make_row(
        sampling=RowSampling(5.0, logit_bias={1: 1000.0}, seed=4, top_logprobs=2),
        min_tokens=5,
        outputs=[2, 2],
    )
    step([row], [peak(EOS, height=0.1)], settings(force_temp_zero=True))
    assert row.last_token == EOS and row.logprobs == []


class Ticking(Clock):
    def now(self) -> float:
        self.time += 0.004
        return self.time


@pytest.mark.parametrize(
    ("clock", "line"),
    [
        (Ticking(99.996), "DECODE: n=2 step=8.0ms (250.0 tok/s) tokens=[5, 7]"),
        (Clock(100.0), "DECODE: n=2 step=0.0ms (inf tok/s) tokens=[5, 7]"),
    ],
)
def test_the_debug_line(clock: Clock, line: str, caplog: pytest.LogCaptureFixture) -> None:
    sched = make_sched()
    sched.io = Io(LogitsDevice(), clock, Counts())
    outcome = DecodeOutcome(ReadbackKind.ARGMAX, 2, VOCAB, 4, (5, 7))
    t0 = clock.now() if isinstance(clock, Ticking) else 100.0
    with caplog.at_level(logging.DEBUG, step_logits.__name__):
        if isinstance(clock, Ticking):
            clock.now()
        run([make_row("a"), make_row("b")], outcome, sched.io.device, sched=sched, t0=t0)
    assert [record.getMessage() for record in caplog.records] == [line]


def test_the_debug_line_is_not_made_where_nobody_reads_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_logits, "_line", lambda *_: pytest.fail("built"))
    with caplog.at_level(logging.INFO):
        step([make_row()], [peak(5)], argmax=True)


def test_what_a_token_did_is_traced_on_demand() -> None:
    row = make_row(sampling=RowSampling(1.0, seed=1), thinking=Thinking(inside=True, enabled=True))
    logits = [peak(THINK_END, height=200.0)]
    _, silent = step([replace(row, output_tokens=[], thinking=Thinking(inside=True))], logits)
    assert silent.rows == []
    _, trace = step([row], logits, settings(trace_rows=True), adaptive=True)
    (delta,) = trace.rows
    assert (delta.request_id, delta.token, delta.events) == ("r", THINK_END, (f"token {THINK_END}",))
    changes = {path: (before, after) for path, before, after in delta.changed}
    assert changes == {
        "last_token": ("0", str(THINK_END)),
        "remaining": ("100", "99"),
        "draws": ("0", "1"),
        "thinking.inside": ("True", "False"),
        "thinking.ended": ("False", "True"),
        "thinking.just_ended": ("False", "True"),
        "adaptive.low_entropy_run": ("0", "1"),
        "len(output_tokens)": ("0", "1"),
    }
    assert heard(row) == [THINK_END]
