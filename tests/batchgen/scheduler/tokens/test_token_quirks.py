"""The known defects of the token state machine, each with and without its switch, and `faithful` as a whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.quirks import Quirks
from batchgen.scheduler.sequences import ActiveSeq, FinishReason, RowSampling, Thinking, TokenIds, ToolCalls
from batchgen.scheduler.tokens.finish import finish_reason
from batchgen.scheduler.tokens.sample import step_seed
from tests.batchgen.scheduler.tokens.world import (
    CALL,
    CALL_END,
    EOS,
    IDS,
    RESPONSE,
    THINK_END,
    THINK_START,
    VOCAB,
    Script,
    feed,
    heard,
    make_row,
    make_sched,
    peak,
    settings,
    step,
)

BOTH = pytest.mark.parametrize("quirk", [False, True])


def sched_with(**switches: bool) -> SchedCtx:
    return make_sched(quirks=replace(Quirks.corrected(), **switches))


@BOTH
def test_b_the_grammar_accepts_the_end_of_a_call_once(quirk: bool) -> None:
    grammar = Script()
    feed(make_row(grammar=grammar), [CALL, 1, CALL_END, 2], sched_with(grammar_accepts_twice=quirk))
    assert grammar.accepted == [CALL, 1, CALL_END, *[CALL_END] * quirk, 2]


@BOTH
def test_b_the_grammar_accepts_a_start_at_the_reopen_guard_once(quirk: bool) -> None:
    grammar = Script()
    row = make_row(grammar=grammar, tools=ToolCalls(completed=True, opens_after_completion=7))
    feed(row, [CALL], sched_with(grammar_accepts_twice=quirk))
    assert row.finished and grammar.accepted == [CALL] * (1 + quirk)


def with_logprobs(row: ActiveSeq, tokens: list[int], sched: SchedCtx) -> list[int]:
    row.sampling = RowSampling(top_logprobs=1)
    for token in tokens:
        step([row], [peak(token)], sched)
    return [logprob.token_id for logprob in row.logprobs]


@BOTH
def test_c_log_probabilities_are_those_of_the_tokens_kept(quirk: bool) -> None:
    row = make_row(tools=ToolCalls(requested=True), thinking=Thinking(ended=True))
    found = with_logprobs(row, [3, EOS, 4], sched_with(logprobs_of_dropped_eos=quirk))
    assert row.output_tokens == [3, 4]
    assert found == ([3, EOS, 4] if quirk else [3, 4])
    # What is streamed beside a token is its own either way.
    assert [event.extra.token_id for event in row.receiver.events] == [3, 4]  # type: ignore[attr-defined]


@BOTH
@pytest.mark.parametrize("token", [CALL, RESPONSE])
def test_c_a_guards_last_token_has_its_log_probability(quirk: bool, token: int) -> None:
    row = make_row(tools=ToolCalls(completed=True, opens_after_completion=7))
    sched = settings(tool_response_stop=RESPONSE, quirks=Quirks(logprobs_of_dropped_eos=quirk))
    found = with_logprobs(row, [3, token], sched)
    assert row.output_tokens == [3, token] and row.finished
    assert found == ([3] if quirk else [3, token])


@BOTH
@pytest.mark.parametrize("last", [CALL_END, EOS])
def test_d_the_last_token_of_the_budget_is_the_last(quirk: bool, last: int) -> None:
    row = make_row(remaining=2, tools=ToolCalls(tools_present=True, required=last == EOS))
    feed(row, [1, last], sched_with(one_token_over_budget=quirk))
    assert row.remaining == 0 and row.finished == (not quirk)
    feed(row, [5, 6], sched_with(one_token_over_budget=quirk))
    assert row.remaining == 0 and row.finished
    kept = [1, last] if last == CALL_END else [1]
    assert row.output_tokens == kept + [5] * quirk == heard(row)
    assert finish_reason(row, IDS, make_sched()) == (
        FinishReason.TOOL_CALLS if last == CALL_END and not quirk else FinishReason.LENGTH
    )


@BOTH
def test_d_the_end_of_a_call_is_the_last_token_of_the_context(quirk: bool) -> None:
    row = make_row(seq_len=8, tools=ToolCalls(tools_present=True))
    feed(row, [CALL_END], settings(max_seq_len=10, quirks=Quirks(one_token_over_budget=quirk)))
    assert row.finished == (not quirk)


@BOTH
def test_i_the_end_of_a_spontaneous_block_is_as_silent_as_the_block(quirk: bool) -> None:
    row = make_row()
    feed(row, [1, THINK_START, 2, THINK_END, 3], sched_with(spontaneous_think_end_streamed=quirk))
    assert row.output_tokens == [1, 2, THINK_END, 3]
    assert heard(row) == [1, *[THINK_END] * quirk, 3]


OTHER = TokenIds(think_end=10, think_start=11, code_fence=12, tool_call_start=13, tool_call_end=14)


@BOTH
def test_j_one_set_of_ids_decides_about_tool_bodies_and_reasons(quirk: bool) -> None:
    sched = sched_with(row_token_ids_decide=quirk)
    row = make_row(ids=OTHER)
    feed(row, [CALL], sched)
    assert row.tools.inside_body == (not quirk)
    feed(row, [1, CALL_END], sched)
    assert row.finished and finish_reason(row, IDS, sched) == (
        FinishReason.STOP if quirk else FinishReason.TOOL_CALLS
    )


@BOTH
def test_j_a_body_ends_at_the_rows_own_end_of_a_call(quirk: bool) -> None:
    row = make_row(ids=OTHER, tools=ToolCalls(inside_body=True))
    feed(row, [OTHER.tool_call_end], sched_with(row_token_ids_decide=quirk))  # type: ignore[list-item]
    assert row.tools.inside_body == (not quirk) and not row.tools.completed


@BOTH
@pytest.mark.parametrize("argmax", [False, True])
def test_j_one_set_of_ids_decides_what_may_not_follow_thinking(quirk: bool, argmax: bool) -> None:
    row = make_row(ids=OTHER, thinking=Thinking(ended=True))
    logits = peak(THINK_START)
    logits[4] = 5.0
    step([row], [logits], sched_with(row_token_ids_decide=quirk), argmax=argmax)
    assert row.thinking.inside == quirk and row.last_token == (THINK_START if quirk else 4)


@BOTH
def test_k_a_dropped_token_takes_its_draw_with_it(quirk: bool) -> None:
    """With the quirk the same logits give the same token again, for as long as it is dropped."""
    row = make_row(
        sampling=RowSampling(1.0, seed=3), eos_tokens=frozenset(range(VOCAB)), tools=ToolCalls(required=True)
    )
    sched = sched_with(seed_reused_after_drop=quirk)
    logits = np.zeros(VOCAB, np.float32)
    logits[28:] = -np.inf
    taken = []
    for _ in range(12):
        step([row], [logits], sched)
        taken.append(row.last_token)
    assert row.output_tokens == [] and (len(set(taken)) == 1) == quirk


def test_k_without_drops_the_switch_changes_nothing() -> None:
    streams = []
    for quirk in (False, True):
        row = make_row(sampling=RowSampling(1.0, seed=3))
        for _ in range(12):
            step(
                [row],
                [np.linspace(0, 1, VOCAB) * np.r_[np.ones(28), np.full(12, -9e9)]],
                sched_with(seed_reused_after_drop=quirk),
            )
        streams.append(row.output_tokens)
    assert streams[0] == streams[1] and len(set(streams[0])) > 4


def one_run(quirks: Quirks, *tokens: int) -> tuple[ActiveSeq, Script, SchedCtx, list[int]]:
    """(row, grammar, context, seeds) of a run through every branch in which quirks differ."""
    grammar = Script()
    row = make_row(
        remaining=5,
        ids=replace(IDS, tool_call_end=None),
        grammar=grammar,
        tools=ToolCalls(tools_present=True, requested=True),
        sampling=RowSampling(top_logprobs=0),
    )
    sched = make_sched(quirks=quirks)
    seeds = []
    for token in tokens:
        assert not row.finished
        seeds.append(step_seed(row, sched.quirks.seed_reused_after_drop))
        step([row], [peak(token)], sched)
    return row, grammar, sched, seeds


def test_faithful_is_the_engine_studied() -> None:
    """Pinned."""
    row, grammar, sched, seeds = one_run(Quirks.faithful(), THINK_START, 2, THINK_END, EOS, CALL, CALL_END, 9)
    assert row.output_tokens == [2, THINK_END, CALL, CALL_END, 9]  # five were allowed, and EOS cost one (d)
    assert heard(row) == [THINK_END, CALL, CALL_END, 9]  # i
    assert [logprob.token_id for logprob in row.logprobs] == [2, THINK_END, EOS, CALL, CALL_END, 9]  # c
    assert grammar.accepted == [EOS, CALL, CALL_END, CALL_END, 9]  # b
    assert seeds == [0, 0, 1, 2, 2, 3, 4]  # k
    assert (row.remaining, row.finished) == (0, True)
    row.output_tokens.pop()
    assert finish_reason(row, IDS, sched) == FinishReason.LENGTH  # j: the row knows no end of a call


def test_corrected_has_none_of_it() -> None:
    row, grammar, sched, seeds = one_run(Quirks.corrected(), THINK_START, 2, THINK_END, EOS, CALL, CALL_END)
    assert (
        row.output_tokens == [logprob.token_id for logprob in row.logprobs] == [2, THINK_END, CALL, CALL_END]
    )
    assert heard(row) == [CALL, CALL_END] and grammar.accepted == [EOS, CALL, CALL_END]
    assert seeds == list(range(6)) and (row.remaining, row.finished) == (0, True)
    assert finish_reason(row, IDS, sched) == FinishReason.TOOL_CALLS
