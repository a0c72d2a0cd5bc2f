"""What holds for every row, whatever tokens it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from batchgen.scheduler.ports import ReadbackKind
from batchgen.scheduler.quirks import Quirks
from batchgen.scheduler.readback import plan_readback
from batchgen.scheduler.sequences import ActiveSeq, FinishReason, RowSampling, Thinking, ToolCalls
from batchgen.scheduler.snapshots import readback_rows
from batchgen.scheduler.tokens.finish import finish_reason
from tests.batchgen.scheduler.tokens.world import (
    CALL,
    CALL_END,
    EOS,
    FENCE,
    IDS,
    RESPONSE,
    THINK_END,
    THINK_START,
    VOCAB,
    WORDS,
    feed,
    heard,
    make_row,
    step,
)
from tests.batchgen.scheduler.tokens.world import settings as context

TOKENS = st.sampled_from([THINK_END, THINK_START, FENCE, CALL, CALL_END, EOS, RESPONSE, 1, 2, 3, 4])


@st.composite
def any_row(draw: Any) -> ActiveSeq:
    inside = draw(st.booleans())
    return make_row(
        remaining=draw(st.integers(0, 12)),
        thinking=Thinking(
            inside=inside,
            enabled=draw(st.booleans()),
            ended=not inside and draw(st.booleans()),
            budget=draw(st.sampled_from([None, 0, 3])),
            skip_count=draw(st.sampled_from([0, 48])),
        ),
        tools=ToolCalls(
            required=draw(st.booleans()),
            requested=draw(st.booleans()),
            tools_present=draw(st.booleans()),
            completed=draw(st.booleans()),
            opens_after_completion=draw(st.sampled_from([0, 6])),
        ),
        min_tokens=draw(st.sampled_from([0, 4])),
        honor_eos_inside_thinking=draw(st.booleans()),
    )


def subsequence(short: list[int], long: list[int]) -> bool:
    rest = iter(long)
    return all(token in rest for token in short)


@settings(max_examples=500, deadline=None)
@given(
    row=any_row(),
    tokens=st.lists(TOKENS, max_size=40),
    faithful=st.booleans(),
    ceiling=st.sampled_from([0, 15]),
)
def test_budgets_outputs_and_streams(row: ActiveSeq, tokens: list[int], faithful: bool, ceiling: int) -> None:
    quirks = Quirks.faithful() if faithful else Quirks.corrected()
    sched = context(max_seq_len=ceiling, tool_response_stop=RESPONSE, quirks=quirks)
    most, steps = row.remaining, 0
    for token in tokens:
        feed(row, [token], sched)
        steps += not row.finished
        assert row.remaining >= 0
    assert len(row.output_tokens) <= most + faithful + (row.guard_stop == "tool_response")
    assert subsequence(heard(row), row.output_tokens) and EOS not in heard(row)
    assert row.draws >= steps and finish_reason(row, IDS, sched) in FinishReason
    if row.remaining == 0 and not faithful and most > 0:
        assert row.finished


@settings(max_examples=200, deadline=None)
@given(row=any_row(), tokens=st.lists(TOKENS, min_size=1, max_size=8))
def test_no_stream_of_tokens_goes_on_for_ever(row: ActiveSeq, tokens: list[int]) -> None:
    """Each token costs budget, opens a block that then does, or is one of at most 50 stray ends between them."""
    feed(row, tokens * (51 * (row.remaining + 2)))
    assert row.finished


def logits_after(row: ActiveSeq) -> np.ndarray:
    """A model: logits that depend on all that the row has written, and on its last input."""
    history = [sum(map(ord, row.request_id)), row.last_token, row.draws, *row.output_tokens]
    return np.random.default_rng([int(token) for token in history]).normal(size=VOCAB).astype(np.float32) * 3


@settings(max_examples=40, deadline=None)
@given(
    temperatures=st.lists(st.sampled_from([0.0, 0.7, 1.5]), min_size=2, max_size=5),
    seed=st.integers(0, 2**64 - 1),
    adaptive=st.booleans(),
    parallel=st.booleans(),
    penalty=st.sampled_from([1.0, 1.3]),
)
def test_a_rows_stream_does_not_depend_on_its_batch(
    temperatures: list[float], seed: int, adaptive: bool, parallel: bool, penalty: float
) -> None:
    def fresh() -> list[ActiveSeq]:
        return [
            make_row(
                str(i),
                remaining=12,
                sampling=RowSampling(
                    t, seed=seed + i, repetition_penalty=penalty, top_k=9, top_logprobs=1 if t else None
                ),
                thinking=Thinking(inside=i % 2 == 0, enabled=True, budget=5, ended=i % 3 == 1),
                tools=ToolCalls(requested=True, tools_present=True),
            )
            for i, t in enumerate(temperatures)
        ]

    def run(rows: list[ActiveSeq]) -> list[tuple[list[int], list[int], list[Any]]]:
        sched = context(parallel_sampling=parallel, vocabulary=WORDS)
        active = list(rows)
        for _ in range(30):
            active = [row for row in active if not row.finished]
            if active:
                plan = plan_readback(readback_rows(active), False, True, False)
                argmax = plan.kind is ReadbackKind.ARGMAX
                step(active, [logits_after(row) for row in active], sched, adaptive=adaptive, argmax=argmax)
        return [(row.output_tokens, heard(row), row.logprobs) for row in rows]

    together = run(fresh())
    alone = [run([row])[0] for row in fresh()]
    backwards = run(fresh()[::-1])[::-1]
    assert together == alone == backwards
    for (outputs, _, logprobs), temperature in zip(together, temperatures, strict=True):
        assert [logprob.token_id for logprob in logprobs] == (outputs if temperature else [])


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 4), seed=st.integers(0, 1000))
def test_the_devices_choice_is_the_hosts_for_rows_that_it_may_choose_for(count: int, seed: int) -> None:
    """Greedy, nothing to penalise, not inside thinking: and where thinking has ended, the fallback sees to it."""
    streams = []
    for argmax in (True, False):
        rows = [
            make_row(f"{seed}{i}", thinking=Thinking(ended=i % 2 == 0), remaining=9) for i in range(count)
        ]
        for _ in range(9):
            active = [row for row in rows if not row.finished and not row.thinking.inside]
            if active:
                step(active, [logits_after(row) for row in active], argmax=argmax)
        streams.append([row.output_tokens for row in rows])
    assert streams[0] == streams[1]
