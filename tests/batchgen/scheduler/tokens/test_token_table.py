"""The token table: what one token does inside and outside thinking.

`kept`: in the outputs; `sent`: to the receiver; `cost`: of the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from batchgen.scheduler.sequences import ActiveSeq, Thinking, TokenIds, ToolCalls
from tests.batchgen.scheduler.tokens.world import (
    CALL,
    CALL_END,
    EOS,
    FENCE,
    THINK_END,
    THINK_START,
    feed,
    heard,
    make_row,
)

WORD = 3


@dataclass(frozen=True)
class Case:
    what: str
    token: int
    kept: bool
    sent: bool
    cost: int
    inside: bool = False
    finished: bool = False
    after: Callable[[ActiveSeq], bool] = lambda row: True
    tools: dict[str, Any] = field(default_factory=dict)
    thinking: dict[str, Any] = field(default_factory=dict)


TABLE = [
    # Outside thinking.
    Case(
        "a word", WORD, True, True, 1, after=lambda r: r.tools.content_tokens == 1 and r.tools.content_started
    ),
    Case(
        "a stray </think> is dropped", THINK_END, False, False, 0, after=lambda r: r.thinking.skip_count == 1
    ),
    Case(
        "<think> opens a block and is dropped",
        THINK_START,
        False,
        False,
        0,
        after=lambda r: r.thinking.inside,
    ),
    Case("a fence is an ordinary token", FENCE, True, True, 1, after=lambda r: not r.thinking.in_code_fence),
    Case("<tool_call> opens a call", CALL, True, True, 1, after=lambda r: r.tools.inside_body),
    Case(
        "<tool_call> satisfies a required call",
        CALL,
        True,
        True,
        1,
        tools={"required": True},
        after=lambda r: r.tools.opened and not r.tools.required,
    ),
    Case(
        "</tool_call> ends the turn",
        CALL_END,
        True,
        True,
        1,
        finished=True,
        after=lambda r: r.tools.completed,
    ),
    Case(
        "</tool_call> of a request with tools lets it go on, and think again",
        CALL_END,
        True,
        True,
        1,
        tools={"tools_present": True, "inside_body": True},
        thinking={"ended": True},
        after=lambda r: not r.thinking.ended and not r.tools.inside_body,
    ),
    Case("EOS ends the turn and is never streamed", EOS, True, False, 1, finished=True),
    # Inside thinking (enabled by the request).
    Case(
        "a word",
        WORD,
        True,
        True,
        1,
        inside=True,
        after=lambda r: r.thinking.tokens == 1 and not r.tools.content_started,
    ),
    Case(
        "</think> closes the block",
        THINK_END,
        True,
        True,
        1,
        inside=True,
        after=lambda r: r.thinking.ended and r.thinking.just_ended and not r.thinking.inside,
    ),
    Case(
        "<think> is an ordinary token",
        THINK_START,
        True,
        True,
        1,
        inside=True,
        after=lambda r: r.thinking.inside,
    ),
    Case(
        "a fence opens a code block",
        FENCE,
        True,
        True,
        1,
        inside=True,
        after=lambda r: r.thinking.in_code_fence,
    ),
    Case(
        "<tool_call> is an ordinary token",
        CALL,
        True,
        True,
        1,
        inside=True,
        tools={"required": True},
        after=lambda r: r.tools.required and not r.tools.inside_body,
    ),
    Case(
        "</tool_call> is an ordinary token",
        CALL_END,
        True,
        True,
        1,
        inside=True,
        after=lambda r: not r.tools.completed,
    ),
    Case(
        "EOS is dropped and closes the block",
        EOS,
        False,
        False,
        1,
        inside=True,
        after=lambda r: r.thinking.ended and r.thinking.force_closed,
    ),
]


@pytest.mark.parametrize(
    "case", TABLE, ids=lambda case: f"{'inside' if case.inside else 'outside'}: {case.what}"
)
def test_table(case: Case) -> None:
    row = make_row(
        thinking=Thinking(inside=case.inside, enabled=case.inside, **case.thinking),
        tools=ToolCalls(**case.tools),
    )
    feed(row, [case.token])
    assert (row.output_tokens == [case.token]) == case.kept
    assert (heard(row) == [case.token]) == case.sent
    assert 100 - row.remaining == case.cost
    assert row.finished == case.finished
    assert case.after(row)
    # Whatever becomes of it, the token is the next input of the model, and has used a draw.
    assert (row.last_token, row.draws, row.last_token_time) == (case.token, 1, 100.0)


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("think_end", THINK_END),
        ("think_start", THINK_START),
        ("tool_call_start", CALL),
        ("tool_call_end", CALL_END),
    ],
)
def test_without_its_id_a_token_is_a_word(name: str, token: int) -> None:
    row = make_row(tools=ToolCalls(required=True))
    feed(row, [token], ids=TokenIds())
    assert (row.output_tokens, heard(row), row.remaining, row.finished) == ([token], [token], 99, False), name
    assert same(row.tools)
    assert not row.thinking.inside and row.thinking.skip_count == 0


def same(tools: ToolCalls) -> bool:
    return (tools.required, tools.opened, tools.completed, tools.inside_body) == (True, False, False, False)


def test_without_its_id_a_fence_opens_no_code_block() -> None:
    row = make_row(thinking=Thinking(inside=True, enabled=True))
    feed(row, [FENCE], ids=TokenIds(think_end=THINK_END))
    assert not row.thinking.in_code_fence and row.output_tokens == [FENCE]
