"""Every way in which a row ends, and what its client is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.quirks import Quirks
from batchgen.scheduler.sequences import ActiveSeq, FinishReason, Thinking, TokenIds, ToolCalls
from batchgen.scheduler.tokens.finish import finish_reason
from batchgen.scheduler.tokens.guards import Guard
from tests.batchgen.scheduler.tokens.world import (
    CALL,
    CALL_END,
    EOS,
    IDS,
    RESPONSE,
    THINK_END,
    Ear,
    Script,
    feed,
    heard,
    make_row,
    make_sched,
    settings,
)

Scenario = Callable[[], tuple[ActiveSeq, SchedCtx]]
SCENARIOS: dict[str, tuple[Scenario, FinishReason]] = {}


def ends(reason: FinishReason) -> Callable[[Scenario], Scenario]:
    def register(scenario: Scenario) -> Scenario:
        SCENARIOS[scenario.__name__] = scenario, reason
        return scenario

    return register


@ends(FinishReason.STOP)
def eos() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(remaining=1), make_sched()
    feed(row, [EOS], sched)
    assert row.remaining == 0  # what the model chose outranks the ceiling reached with it
    return row, sched


@ends(FinishReason.TOOL_CALLS)
def tool_call() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(), make_sched()
    feed(row, [CALL, 1, CALL_END], sched)
    return row, sched


@ends(FinishReason.LENGTH)
def budget() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(remaining=3), make_sched()
    feed(row, [1, 2, 3, 4], sched)
    assert row.output_tokens == heard(row) == [1, 2, 3]
    return row, sched


@ends(FinishReason.LENGTH)
def context() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(seq_len=10), settings(max_seq_len=14)
    feed(row, [1, 2, 3, 4], sched)
    assert row.seq.seq_len == 13 and row.output_tokens == [1, 2, 3]  # the third is the last one that fits
    return row, sched


@ends(FinishReason.TIMEOUT)
def timeout() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(), make_sched()
    feed(row, [1, EOS], sched)
    row.timed_out = True  # a cut must not pass for an end
    return row, sched


@ends(FinishReason.LENGTH)
def tool_response() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(), settings(tool_response_stop=RESPONSE)
    feed(row, [RESPONSE], sched)
    assert row.guard_stop == Guard.TOOL_RESPONSE and row.output_tokens == [RESPONSE] and heard(row) == []
    assert row.remaining == 100
    return row, sched


@ends(FinishReason.LENGTH)
def stray_think_ends() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(), make_sched()
    feed(row, [1] + [THINK_END] * 50, sched)
    assert row.guard_stop == Guard.STRAY_THINK_ENDS
    return row, sched


@ends(FinishReason.LENGTH)
def content_loop() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(), settings(content_loop_repeats=6, fuzzy_tolerance=12)
    feed(row, [i % 27 for i in range(20)] + [1, 2, 3] * 20, sched)
    # Looked for at the 64th token of content, before it is kept; it is kept and streamed all the same.
    assert row.guard_stop == Guard.CONTENT_LOOP and len(row.output_tokens) == 64 == len(heard(row))
    return row, sched


@ends(FinishReason.LENGTH)
def fuzzy_repetition() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(), settings(content_loop_from=1000)
    motif = [i * 7 % 27 for i in range(27)] + [1, 1, 5]
    noisy = [*motif[:4], 9, *motif[5:]]
    feed(row, motif + noisy + motif + [1], sched)
    assert row.guard_stop == Guard.FUZZY_REPETITION and len(row.output_tokens) == 90
    return row, sched


@ends(FinishReason.LENGTH)
def inter_tool_prose() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(tools=ToolCalls(requested=True)), settings(inter_tool_prose=3)
    feed(row, [1, 2, 3, 4], sched)
    assert row.guard_stop == Guard.INTER_TOOL_PROSE
    return row, sched


@ends(FinishReason.LENGTH)
def grammar_content() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(grammar=Script()), settings(grammar_content=2)
    feed(row, [1, 2, 3], sched)
    assert row.guard_stop == Guard.GRAMMAR_CONTENT
    return row, sched


@ends(FinishReason.LENGTH)
def tool_body() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(), settings(tool_body=2)
    feed(row, [CALL, 1, 2, 3], sched)
    assert row.guard_stop == Guard.TOOL_BODY
    return row, sched


@ends(FinishReason.STOP)
def a_guard_with_eos() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(grammar=Script()), settings(grammar_content=1)
    feed(row, [1, EOS], sched)
    assert row.guard_stop == Guard.GRAMMAR_CONTENT  # what the model chose outranks it
    return row, sched


@ends(FinishReason.STOP)
def reopening_calls() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(tools=ToolCalls(completed=True, tools_present=True)), make_sched()
    feed(row, [CALL] * 8, sched)
    return row, sched


@ends(FinishReason.STOP)
def a_grammar_that_is_done() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(grammar=Script(terminated=True)), make_sched()
    feed(row, [1], sched)
    return row, sched


@ends(FinishReason.STOP)
def nobody_listens() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(ear=Ear(patience=2)), make_sched()
    feed(row, [1, 2, 3], sched)
    assert row.output_tokens == [1, 2]
    return row, sched


@ends(FinishReason.TOOL_CALLS)
def nobody_listens_to_a_call() -> tuple[ActiveSeq, SchedCtx]:
    row, sched = make_row(ear=Ear(patience=2), tools=ToolCalls(tools_present=True)), make_sched()
    feed(row, [CALL, CALL_END], sched)
    assert row.tools.completed
    return row, sched


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_row_ends_with_its_reason(name: str) -> None:
    scenario, reason = SCENARIOS[name]
    row, sched = scenario()
    assert row.finished and finish_reason(row, IDS, sched) == reason


def test_every_guard_has_its_scenario() -> None:
    assert {row.guard_stop for row, _ in (scenario() for scenario, _ in SCENARIOS.values())} >= set(Guard)


def test_content_that_does_not_repeat_itself_goes_on() -> None:
    row = make_row(remaining=1000)
    feed(row, list(range(1000, 1400)))
    assert not row.finished


def test_content_loops_are_looked_for_from_64_tokens_on_and_every_16th() -> None:
    def length(head: int) -> int:
        row = make_row(remaining=1000)
        feed(row, list(range(100, 100 + head)) + [1, 2, 3] * 40)
        return len(row.output_tokens)

    # Six copies, 18 tokens, are there at token head + 18; they are seen with the next that is looked at.
    assert [length(head) for head in (0, 45, 46, 61, 62)] == [64, 64, 80, 80, 96]


def test_loops_inside_a_call_or_after_the_end_are_none() -> None:
    sched = settings(content_loop_from=10_000)
    near = [i * 7 % 27 for i in range(30)] * 3
    for row in (
        make_row(tools=ToolCalls(inside_body=True, tools_present=True)),
        make_row(thinking=Thinking(inside=True), repetition_detection=True),
    ):
        feed(row, near, sched)
        assert len(row.output_tokens) == 90 and not row.finished
    ended = make_row(remaining=90)
    feed(ended, near, sched)
    assert ended.finished and ended.guard_stop is None
    exact = settings(fuzzy_tolerance=12)
    inside = make_row(tools=ToolCalls(inside_body=True, tools_present=True))
    feed(inside, [1, 2, 3] * 29, exact)
    assert len(inside.output_tokens) == 87 and not inside.finished


def test_a_bound_of_one_is_a_bound() -> None:
    row = make_row(tools=ToolCalls(requested=True))
    feed(row, [1, 2, 3], settings(inter_tool_prose=1))
    assert row.guard_stop == Guard.INTER_TOOL_PROSE and row.output_tokens == [1, 2]
    tiny = make_row(seq_len=0)
    feed(tiny, [1], settings(max_seq_len=1))
    assert tiny.finished


def test_without_outputs_and_without_an_id_no_tool_call_ended_it() -> None:
    assert finish_reason(make_row(), TokenIds(), make_sched()) == FinishReason.STOP


def test_a_row_whose_budget_was_gone_before_writes_nothing_more() -> None:
    row = make_row(remaining=0)
    feed(row, [1])
    assert row.finished and row.output_tokens == heard(row) == [] and row.remaining == 0


def test_guards_are_off_with_the_watchdogs() -> None:
    for scenario in (content_loop, fuzzy_repetition):
        off = make_row(repetition_detection=False, remaining=1000)
        feed(off, [1, 2, 3, 4, 5] * 40)
        assert not off.finished, scenario
    row = make_row(remaining=1000, grammar=Script(), tools=ToolCalls(requested=True, tools_present=True))
    feed(
        row,
        [CALL, *[1] * 300, CALL_END, *[1, 2, 3] * 100],
        settings(enabled=False, tool_body=1, grammar_content=1),
    )
    assert not row.finished and row.guard_stop is None


def test_quirks_do_not_move_the_reasons() -> None:
    for scenario, reason in SCENARIOS.values():
        row, sched = scenario()
        sched.quirks = Quirks.faithful()
        assert finish_reason(row, IDS, sched) == reason
