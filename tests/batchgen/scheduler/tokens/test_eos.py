"""What holds an end-of-sequence token back, each hold alone, and what lets it go."""

from __future__ import annotations

import pytest

from batchgen.scheduler.sequences import ActiveSeq, Thinking, ToolCalls
from tests.batchgen.scheduler.tokens.world import EOS, Script, feed, heard, make_row, settings

HELD = {
    "a grammar that cannot end here": lambda: make_row(grammar=Script(stop_blocked=True)),
    "a call is required": lambda: make_row(tools=ToolCalls(required=True)),
    "fewer than min_tokens": lambda: make_row(outputs=[1, 2], min_tokens=3),
    "inside thinking": lambda: make_row(thinking=Thinking(inside=True), honor_eos_inside_thinking=False),
    "just after thinking, with a tool asked for": lambda: make_row(
        outputs=[1] * 30, thinking=Thinking(ended=True, tokens=15), tools=ToolCalls(requested=True)
    ),
}

LET_GO = {
    "nothing holds it": lambda: make_row(),
    "a grammar that may end here": lambda: make_row(grammar=Script()),
    "a grammar, but a call is complete": lambda: make_row(
        grammar=Script(stop_blocked=True), tools=ToolCalls(completed=True)
    ),
    "min_tokens are there": lambda: make_row(outputs=[1, 2, 3], min_tokens=3),
    "inside thinking, at the end of the budget": lambda: make_row(
        thinking=Thinking(inside=True), remaining=1
    ),
    "inside thinking, at the end of the context": lambda: make_row(
        thinking=Thinking(inside=True), seq_len=48
    ),
    "after thinking, with 16 tokens of content": lambda: make_row(
        outputs=[1] * 31, thinking=Thinking(ended=True, tokens=15), tools=ToolCalls(requested=True)
    ),
    "after thinking, without a tool asked for": lambda: make_row(thinking=Thinking(ended=True)),
    "a tool asked for, no thinking": lambda: make_row(tools=ToolCalls(requested=True)),
}


@pytest.mark.parametrize("why", HELD)
def test_held(why: str) -> None:
    row = HELD[why]()
    before, budget = list(row.output_tokens), row.remaining
    feed(row, [EOS], settings(max_seq_len=50))
    assert not row.finished and row.output_tokens == before and heard(row) == []
    assert row.remaining == budget - 1 and row.last_token == EOS


@pytest.mark.parametrize("why", LET_GO)
def test_let_go(why: str) -> None:
    row = LET_GO[why]()
    feed(row, [EOS], settings(max_seq_len=50))
    assert row.finished and row.output_tokens[-1] == EOS and heard(row) == []


@pytest.mark.parametrize("where", ["body", "thinking"])
def test_a_completed_call_frees_eos_from_the_grammar_only_outside_a_call_and_a_block(where: str) -> None:
    row: ActiveSeq = make_row(
        grammar=Script(stop_blocked=True),
        tools=ToolCalls(completed=True, inside_body=where == "body"),
        thinking=Thinking(inside=where == "thinking"),
        remaining=1 if where == "thinking" else 9,
    )
    feed(row, [EOS])
    assert row.output_tokens == []


def test_the_grammar_is_asked_only_about_an_eos() -> None:
    class Never(Script):
        def blocks_stop(self) -> bool:
            raise AssertionError("asked")

    feed(make_row(grammar=Never()), [1, 2])


def test_any_eos_of_the_model_ends_the_row() -> None:
    row = make_row(eos_tokens=frozenset({EOS, 7}))
    feed(row, [7])
    assert row.finished and heard(row) == []
