"""Tool calls: requirement, bodies, prose between calls, the guard against reopening, parameter values."""

from __future__ import annotations

import pytest

from batchgen.models.tokenizer import ByteTokenizer
from batchgen.scheduler.sequences import Thinking, TokenIds, ToolCalls
from batchgen.scheduler.tokens.guards import Guard
from batchgen.scheduler.tokens.vocabulary import vocabulary_of
from tests.batchgen.scheduler.tokens.world import (
    CALL,
    CALL_END,
    THINK_END,
    THINK_START,
    Script,
    feed,
    heard,
    make_row,
    settings,
)


def test_a_request_with_tools_may_think_again_after_a_call() -> None:
    row = make_row(tools=ToolCalls(tools_present=True), thinking=Thinking(inside=True, enabled=True))
    feed(row, [1, THINK_END, CALL, 2, CALL_END])
    assert not row.thinking.ended and not row.finished
    feed(row, [THINK_START, 3])
    assert row.thinking.inside and row.thinking.tokens == 2


def test_a_call_with_a_grammar_does_not_end_the_turn() -> None:
    row = make_row(grammar=Script())
    feed(row, [CALL, 1, CALL_END])
    assert not row.finished and row.tools.completed


def test_a_required_call_is_given_up_after_512_tokens() -> None:
    row = make_row(outputs=[1] * 512, tools=ToolCalls(required=True), repetition_detection=False)
    feed(row, [2])
    assert row.tools.required
    feed(row, [2])
    assert not row.tools.required and not row.tools.opened


def test_the_8th_call_opened_after_a_completed_one_ends_the_response() -> None:
    row = make_row(tools=ToolCalls(tools_present=True))
    feed(row, [CALL, 1, CALL_END] + [CALL] * 7)
    assert not row.finished and row.tools.opens_after_completion == 7
    feed(row, [CALL])
    assert row.finished and row.tools.opened and row.output_tokens[-1] == CALL
    assert heard(row) == row.output_tokens[:-1]  # the one that is too many is kept, and not streamed


def test_prose_between_calls_has_a_bound_for_requests_that_ask_for_one() -> None:
    for requested in (True, False):
        row = make_row(tools=ToolCalls(requested=requested, tools_present=True))
        sched = settings(inter_tool_prose=5)
        feed(row, [1, 2, 3, CALL, *range(20), CALL_END, 4, 5, 6, 7, 8], sched)
        # The body does not count, and `</tool_call>` counts as it is still inside.
        assert row.tools.prose_since_last == (5 if requested else 0) and not row.finished
        feed(row, [9], sched)
        assert row.finished == requested and row.output_tokens[-1] == 9 and heard(row)[-1] == 9
        assert row.guard_stop == (Guard.INTER_TOOL_PROSE if requested else None)


def test_a_bound_of_0_lets_prose_go_on() -> None:
    row = make_row(tools=ToolCalls(requested=True), repetition_detection=False)
    feed(row, range(27), settings(inter_tool_prose=0))
    assert not row.finished


def test_a_call_that_is_never_closed_ends_the_row() -> None:
    row = make_row(tools=ToolCalls(tools_present=True))
    sched = settings(tool_body=10)
    feed(row, [CALL, *range(10)], sched)
    assert not row.finished and row.tools.body_streak == 10
    feed(row, [3], sched)
    assert row.finished and row.guard_stop == Guard.TOOL_BODY


def test_opening_and_closing_start_the_count_of_the_body_anew() -> None:
    row = make_row(tools=ToolCalls(tools_present=True))
    feed(row, [CALL, 1, 2, CALL, 3])
    assert row.tools.body_streak == 1
    feed(row, [CALL_END, 4])
    assert (row.tools.body_streak, row.tools.inside_body) == (0, False)


BYTES = ByteTokenizer()
SPECIAL = BYTES.special_tokens
BYTE_IDS = TokenIds(*(SPECIAL[t] for t in ("</think>", "<think>", "```", "<tool_call>", "</tool_call>")))


@pytest.mark.parametrize(
    ("text", "inside", "pending"),
    [
        ("<parameter=path", False, False),
        ("<parameter=path>", True, False),
        ("<parameter=path>\n", True, False),
        ("<parameter=path>a/b </p>", True, False),
        ("<parameter=path>a</", True, True),
        ("<parameter=path>a</par", True, True),
        ("<parameter=path>a</div", True, False),
        ("<parameter=path>a</parameter>", False, False),
        ("<parameter=path>a</parameter>\n<parameter=more>", True, False),
        ("<other=path>", False, False),
    ],
)
def test_the_value_of_a_parameter_begins_and_ends_with_its_tags(
    text: str, inside: bool, pending: bool
) -> None:
    row = make_row(tools=ToolCalls(tools_present=True), remaining=10_000, repetition_detection=False)
    sched = settings(vocabulary=vocabulary_of(BYTES))
    feed(row, BYTES.encode("<tool_call>" + text), sched, BYTE_IDS)
    assert (row.tools.inside_parameter, row.tools.parameter_close_pending) == (inside, pending)


def test_the_value_of_a_parameter_may_be_longer_than_a_body() -> None:
    row = make_row(tools=ToolCalls(tools_present=True), remaining=10_000, repetition_detection=False)
    sched = settings(vocabulary=vocabulary_of(BYTES), tool_body=100)
    tokens = BYTES.encode("<tool_call><parameter=text>" + "All work and no play. " * 50 + "</parameter>")
    feed(row, tokens, sched, BYTE_IDS)
    assert (
        not row.finished
        and row.tools.parameter_chars == 0
        and row.tools.body_streak == len("<parameter=text>")
    )
    feed(row, BYTES.encode("x" * 84), sched, BYTE_IDS)
    assert not row.finished
    feed(row, BYTES.encode("x"), sched, BYTE_IDS)
    assert row.guard_stop == Guard.TOOL_BODY


def test_a_call_that_ends_in_the_middle_of_a_value_ends_the_value() -> None:
    row = make_row(tools=ToolCalls(tools_present=True), remaining=10_000)
    sched = settings(vocabulary=vocabulary_of(BYTES))
    feed(row, BYTES.encode("<tool_call><parameter=a>"), sched, BYTE_IDS)
    assert row.tools.inside_parameter and row.tools.parameter_chars == 0
    feed(row, BYTES.encode("bc</"), sched, BYTE_IDS)
    assert row.tools.parameter_chars == 4 and row.tools.parameter_close_pending
    feed(row, BYTES.encode("</tool_call>"), sched, BYTE_IDS)
    assert row.tools.completed and not row.tools.inside_body
    assert (row.tools.inside_parameter, row.tools.parameter_chars, row.tools.parameter_close_pending) == (
        False,
        0,
        False,
    )


def test_a_token_beyond_the_tokenizers_vocabulary_has_no_text() -> None:
    row = make_row(tools=ToolCalls(tools_present=True, inside_body=True))
    feed(row, [BYTES.vocab_size, BYTES.vocab_size + 5], settings(vocabulary=vocabulary_of(BYTES)), BYTE_IDS)
    assert row.tools.body_streak == 2
