"""The stages of the host's pipeline, one by one and in their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batchgen.scheduler.ports import SchedCtx
from batchgen.scheduler.sequences import ActiveSeq, RowSampling, Thinking, TokenIds, ToolCalls
from batchgen.scheduler.tokens.pipeline import STAGES
from batchgen.scheduler.tokens.sample import Sampled, sample_row
from tests.batchgen.scheduler.tokens.world import (
    CALL,
    DOT,
    EOS,
    IDS,
    NEWLINE,
    THINK_END,
    THINK_START,
    VOCAB,
    WORDS,
    Script,
    make_row,
    make_sched,
    peak,
    settings,
)


def choose(row: ActiveSeq, logits: Any, sched: SchedCtx | None = None, ids: TokenIds = IDS) -> Sampled:
    return sample_row(np.array(logits, np.float32), row, ids, False, sched or make_sched())


def token(row: ActiveSeq, logits: Any, sched: SchedCtx | None = None, ids: TokenIds = IDS) -> int:
    return choose(row, logits, sched, ids).token


def two(first: int, second: int) -> np.ndarray:
    """`first` is the likeliest, `second` the next."""
    logits = peak(first)
    logits[second] = 5.0
    return logits


def think(**more: Any) -> Thinking:
    return Thinking(inside=True, enabled=True, **more)


def test_the_stages_come_in_the_order_of_the_reference() -> None:
    assert [stage.__name__ for stage in STAGES] == [
        "hold_min_tokens",
        "stop_confident_thinking",
        "mask_think_end_mid_word",
        "mask_thinking_after_close",
        "mask_tool_call",
        "force_think_end",
        "pin_tool_call",
        "emit_only_legal",
        "mask_by_grammar",
    ]


def test_no_eos_before_min_tokens() -> None:
    assert token(make_row(outputs=[1], min_tokens=2), two(EOS, 4)) == 4
    assert token(make_row(outputs=[1, 1], min_tokens=2), two(EOS, 4)) == EOS


@pytest.mark.parametrize("sure", [True, False])
def test_a_run_of_confident_thinking_arms_the_forced_end(sure: bool) -> None:
    # exp(10) against 39 others is 0.998; exp(4) is 0.58.
    row = make_row(outputs=[1], thinking=think(tokens=400))
    logits = peak(2, height=10.0 if sure else 4.0)
    for _ in range(29):
        assert token(row, logits, settings(vocabulary=WORDS)) == 2
    assert row.thinking.confident_run == (29 if sure else 0) and not row.thinking.force_end
    token(row, logits, settings(vocabulary=WORDS))
    assert row.thinking.force_end == sure


def test_one_unsure_token_starts_the_run_anew() -> None:
    row = make_row(thinking=think(tokens=400, confident_run=29))
    token(row, peak(2, height=4.0))
    assert (row.thinking.confident_run, row.thinking.force_end) == (0, False)


@pytest.mark.parametrize("why", ["too early", "outside", "armed", "off"])
def test_confidence_is_not_counted(why: str) -> None:
    row = make_row(
        thinking=think(tokens=399 if why == "too early" else 400, force_end=why == "armed"), outputs=[1]
    )
    row.thinking.inside = why != "outside"
    token(row, peak(2), settings(enabled=why != "off", vocabulary=WORDS))
    assert row.thinking.confident_run == 0


def test_what_a_mask_takes_away_is_no_confidence() -> None:
    # The stage comes before the masks of thinking: the likeliest token counts although it is masked next.
    row = make_row(outputs=[1], thinking=think(tokens=400))
    assert token(row, two(CALL, 4)) == 4
    assert row.thinking.confident_run == 1


def test_thinking_does_not_end_inside_a_word() -> None:
    for last, expected in ((3, 4), (DOT, THINK_END)):
        assert (
            token(make_row(outputs=[last], thinking=think()), two(THINK_END, 4), settings(vocabulary=WORDS))
            == expected
        )
    assert token(make_row(outputs=[3], thinking=think()), two(THINK_END, 4)) == THINK_END
    assert token(make_row(outputs=[3]), two(THINK_END, 4), settings(vocabulary=WORDS)) == THINK_END
    assert token(make_row(thinking=think()), two(THINK_END, 4), settings(vocabulary=WORDS)) == THINK_END


@pytest.mark.parametrize("masked", [THINK_END, THINK_START])
def test_after_thinking_it_neither_ends_nor_begins_again(masked: int) -> None:
    assert token(make_row(thinking=Thinking(ended=True)), two(masked, 4)) == 4
    assert token(make_row(), two(masked, 4)) == masked


def test_no_call_begins_inside_thinking() -> None:
    assert token(make_row(thinking=think()), two(CALL, 4)) == 4
    assert token(make_row(), two(CALL, 4)) == CALL


def test_a_suppressed_call_is_less_likely_by_12() -> None:
    row = make_row(tools=ToolCalls(suppressed=True))
    logits = peak(4, others=-30.0, height=0.0)
    logits[CALL] = 11.9
    assert token(row, logits) == 4
    logits[CALL] = 12.1
    assert token(row, logits) == CALL


@pytest.mark.parametrize("last", [DOT, NEWLINE])
def test_a_forced_end_waits_for_the_end_of_a_sentence(last: int) -> None:
    sched = settings(vocabulary=WORDS)
    row = make_row(outputs=[3], thinking=think(force_end=True, tokens=5))
    assert token(row, two(8, THINK_END), sched) == 8 and row.thinking.deferred == 1
    row.output_tokens.append(last)
    assert token(row, two(8, 9), sched) == THINK_END


def test_a_forced_end_waits_for_the_end_of_a_code_block() -> None:
    row = make_row(outputs=[DOT], thinking=think(force_end=True, in_code_fence=True))
    assert token(row, peak(8), settings(vocabulary=WORDS)) == 8 and row.thinking.deferred == 1


@pytest.mark.parametrize(
    ("state", "forced"),
    [
        ({"deferred": 63}, False),
        ({"deferred": 64}, True),
        ({"budget": 10, "tokens": 29}, False),
        ({"budget": 10, "tokens": 30}, True),
        ({"tokens": 2047}, False),
        ({"tokens": 2048}, True),
        ({"budget": 1000, "tokens": 2048}, False),
    ],
)
def test_a_forced_end_waits_only_for_so_long(state: dict[str, int], forced: bool) -> None:
    """64 steps, three times the budget, or 2048 tokens without one; in a code block and inside a word as well."""
    row = make_row(outputs=[3], thinking=think(force_end=True, in_code_fence=True, **state))
    assert token(row, peak(8), settings(vocabulary=WORDS)) == (THINK_END if forced else 8)


def test_without_a_vocabulary_every_position_ends_a_sentence() -> None:
    assert token(make_row(outputs=[3], thinking=think(force_end=True)), peak(8)) == THINK_END
    assert token(make_row(thinking=think(force_end=True)), peak(8), settings(vocabulary=WORDS)) == THINK_END


def test_nothing_is_forced_where_nothing_is_armed_or_there_is_no_such_token() -> None:
    assert token(make_row(thinking=think(tokens=5000)), peak(8)) == 8
    assert token(make_row(thinking=think(force_end=True)), peak(8), ids=TokenIds()) == 8
    assert token(make_row(thinking=Thinking(force_end=True)), peak(8)) == 8


def test_right_after_thinking_a_required_call_is_made() -> None:
    required = ToolCalls(required=True)
    just = Thinking(ended=True, just_ended=True)
    assert token(make_row(thinking=just, tools=required), peak(8)) == CALL
    assert token(make_row(thinking=just), peak(8)) == 8
    assert token(make_row(thinking=Thinking(ended=True), tools=required), peak(8)) == 8
    assert token(make_row(thinking=just, tools=required), peak(8), ids=TokenIds(think_end=THINK_END)) == 8


def test_the_one_token_that_a_grammar_allows_is_taken_unasked() -> None:
    grammar = Script(only=6)
    assert token(make_row(grammar=grammar), peak(8)) == 6
    assert token(make_row(grammar=grammar, thinking=think()), peak(8)) == 8
    assert grammar.accepted == []  # choosing does not advance it


def test_a_grammar_masks_what_it_does_not_allow() -> None:
    grammar = Script(legal=frozenset({4, 5}))
    assert token(make_row(grammar=grammar), two(8, 5)) == 5
    assert token(make_row(grammar=grammar, thinking=think()), two(8, 5)) == 8


def test_a_grammar_that_allows_nothing_ends_its_row_only() -> None:
    found = choose(make_row(grammar=Script(legal=frozenset())), peak(8))
    assert found.error == "no token can be chosen: the largest logit is -inf"


def test_bias_cannot_bring_back_what_is_masked() -> None:
    row = make_row(thinking=think(), sampling=RowSampling(logit_bias={CALL: 1e6}))
    assert token(row, two(8, 5)) == 8


def test_a_forced_token_is_certain_in_its_log_probability() -> None:
    row = make_row(thinking=think(force_end=True), sampling=RowSampling(top_logprobs=3))
    found = choose(row, peak(8)).logprob
    assert found is not None and (found.token_id, found.logprob, found.top) == (
        THINK_END,
        0.0,
        ((THINK_END, 0.0),),
    )


@pytest.mark.parametrize("far", [VOCAB, VOCAB + 3, None])
def test_ids_beyond_the_vocabulary_or_absent_mask_nothing(far: int | None) -> None:
    row = make_row(
        eos_tokens=frozenset() if far is None else frozenset({far}),
        min_tokens=9,
        tools=ToolCalls(suppressed=True),
        thinking=Thinking(ended=True),
    )
    assert token(row, peak(8), ids=TokenIds(think_end=far, think_start=far, tool_call_start=far)) == 8
