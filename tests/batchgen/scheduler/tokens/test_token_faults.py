"""Every planted fault of the token state machine is caught by the test that is about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.batchgen.scheduler.token_faults import TOKEN_FAULTS
from tests.batchgen.scheduler.tokens import test_adaptive, test_sample, test_thinking, test_tool_calls
from tests.batchgen.scheduler.tokens.test_eos import (
    test_any_eos_of_the_model_ends_the_row as eos_is_not_streamed,
)

CAUGHT_BY: dict[str, Callable[[], None]] = {
    "fence_not_reset_at_think_end": test_thinking.test_a_fence_that_thinking_leaves_open_is_not_open_in_the_next_block,
    "stray_think_end_consumes_budget": test_thinking.test_the_50th_stray_end_ends_the_turn_without_costing_a_token,
    "tool_call_end_never_rearms_thinking": test_tool_calls.test_a_request_with_tools_may_think_again_after_a_call,
    "eos_streamed": eos_is_not_streamed,
    "adaptive_on_masked_logits": test_adaptive.test_it_looks_at_the_raw_logits,
    "seed_from_step_count": test_sample.test_seed_and_position_decide_the_draw,
}


def test_every_fault_has_a_test() -> None:
    assert set(CAUGHT_BY) == set(TOKEN_FAULTS)


@pytest.mark.parametrize("name", TOKEN_FAULTS)
def test_a_planted_fault_is_caught(name: str) -> None:
    CAUGHT_BY[name]()
    with TOKEN_FAULTS[name](), pytest.raises(AssertionError):
        CAUGHT_BY[name]()
