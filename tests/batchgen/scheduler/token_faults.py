"""Faults of the token state machine, planted one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any
from unittest import mock

from batchgen.scheduler.sequences import ActiveSeq, RowEvent, Thinking
from batchgen.scheduler.tokens import decoded, host, sample, thinking
from batchgen.scheduler.tokens.pipeline import Stage, run_stages

TOKEN_FAULTS: dict[str, Callable[[], AbstractContextManager[None]]] = {}


def fault(plant: Callable[[], Iterator[None]]) -> Callable[[], AbstractContextManager[None]]:
    TOKEN_FAULTS[plant.__name__] = contextmanager(plant)
    return TOKEN_FAULTS[plant.__name__]


@fault
def fence_not_reset_at_think_end() -> Iterator[None]:
    original = thinking.close

    def close(state: Thinking) -> None:
        fence = state.in_code_fence
        original(state)
        state.in_code_fence = fence

    with mock.patch.object(thinking, "close", close):
        yield


@fault
def stray_think_end_consumes_budget() -> Iterator[None]:
    original = thinking.drop_stray_end

    def drop(row: ActiveSeq) -> None:
        row.remaining -= 1
        original(row)

    with mock.patch.object(thinking, "drop_stray_end", drop):
        yield


@fault
def tool_call_end_never_rearms_thinking() -> Iterator[None]:
    original = decoded._close_tool_call

    def close(row: ActiveSeq, *rest: Any) -> None:
        ended = row.thinking.ended
        original(row, *rest)
        row.thinking.ended = ended

    with mock.patch.object(decoded, "_close_tool_call", close):
        yield


@fault
def eos_streamed() -> Iterator[None]:
    original = decoded._end_or_hold

    def end(row: ActiveSeq, token: int, *rest: Any) -> None:
        original(row, token, *rest)
        if row.finished:
            row.receiver.send(RowEvent("token", token))

    with mock.patch.object(decoded, "_end_or_hold", end):
        yield


@fault
def adaptive_on_masked_logits() -> Iterator[None]:
    original = sample.sample_row

    def masked_first(logits: Any, row: ActiveSeq, ids: Any, adaptive: bool, sched: Any) -> Any:
        run_stages(logits, Stage(row, ids, ids, sched))
        return original(logits, row, ids, adaptive, sched)

    with mock.patch.object(host, "sample_row", masked_first):
        yield


@fault
def seed_from_step_count() -> Iterator[None]:
    steps = count()

    def seed(row: ActiveSeq, counts_outputs: bool) -> int:
        return row.sampling.seed + next(steps)

    with mock.patch.object(sample, "step_seed", seed):
        yield
