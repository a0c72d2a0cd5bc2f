"""Each planted bug is caught by the check named beside it, and no check cries without one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from batchgen.scheduler.errors import ForwardError, KvExhausted, ReadbackError, SpillError
from tests.batchgen.scheduler import faults, properties, test_preemption, test_step
from tests.batchgen.scheduler.scenarios import tight
from tests.batchgen.scheduler.world import Scenario

PLENTY, LITTLE = 1 << 20, 150

UNDISTURBED: tuple[Scenario, ...] = (
    tight(1),
    tight(2, ssm=False, fp32=False),
    tight(3, spill_budget=PLENTY, immunity=4),
    tight(4, spill_budget=LITTLE, ssm=False),
    tight(5, immunity=2, thinking=True),
)
DISTURBED: tuple[Scenario, ...] = (
    tight(6, failures=(("readback", ReadbackError("KV cache exhausted, it says"), 9),)),
    tight(7, spill_budget=PLENTY, failures=(("save", SpillError("injected"), 0),)),
    tight(8, failures=(("forward", ForwardError("injected"), 11), ("reserve", KvExhausted("injected"), 3))),
)

Check = Callable[[], None]


def over(holds: properties.Property) -> Check:
    """The property on all scenarios that it is made for."""

    def check() -> None:
        for scenario in UNDISTURBED if holds in properties.UNDISTURBED else UNDISTURBED + DISTURBED:
            holds(scenario)

    check.__name__ = holds.__name__
    return check


P1 = over(properties.p1_sorted_and_stable_before_every_launch)
P2 = over(properties.p2_no_request_is_lost_or_doubled)
P5 = over(properties.p5_a_parked_row_hears_nothing_and_holds_nothing)
P6 = over(properties.p6_the_lent_buffer_comes_back_or_an_empty_one_is_there)
P7 = over(properties.p7_blocks_and_entries_are_conserved)
P8 = over(properties.p8_a_tight_pool_gives_the_streams_of_an_ample_one)
P9 = over(properties.p9_a_resume_samples_nothing_and_changes_nothing)
P10 = over(properties.p10_every_request_that_fits_with_a_block_more_finishes)
P11 = over(properties.p11_a_failed_launch_advances_nothing_and_reserves_once)
VICTIMS = over(properties.victims_have_least_progress_and_no_immunity)

CAUGHT: tuple[tuple[Callable[[], AbstractContextManager[Any]], Check], ...] = (
    (faults.swap_remove, P1),
    (faults.rows_not_sorted, P1),
    (faults.sorted_by_kv_slot_only, P1),
    (
        faults.sort_is_not_stable,
        test_step.test_a_row_without_ssm_slot_is_sorted_by_its_kv_slot_among_the_others,
    ),
    (faults.sorted_after_the_tokens_were_read, P1),
    (faults.tokens_not_rebuilt_on_retry, P1),
    (
        faults.readback_not_rebuilt_on_retry,
        test_step.test_a_retry_launches_the_tokens_and_the_readback_of_the_rows_that_are_left,
    ),
    (faults.victim_by_most_blocks, VICTIMS),
    (faults.tie_to_the_higher_slot, VICTIMS),
    (faults.immunity_ignored, VICTIMS),
    (faults.immunity_of_all_fails_the_batch, P10),
    (faults.immunity_is_absolute, P9),
    (faults.error_frame_to_the_victim, P5),
    (faults.last_token_is_prefilled, P8),
    (faults.history_from_the_outputs, P8),
    (faults.prefill_logits_are_sampled, P9),
    (
        faults.requeue_without_the_prefix_cache,
        test_preemption.test_the_row_with_least_progress_is_requeued_and_the_others_keep_their_order,
    ),
    (faults.buffer_is_not_put_back, P6),
    (faults.buffer_is_copied, P6),
    (faults.preempts_on_a_readback_error, P11),
    (faults.retries_with_one_row, test_preemption.test_a_row_alone_is_never_parked),
    (faults.failed_spill_drops_the_request, P2),
    (faults.spill_file_is_left_after_a_resume, P7),
    (faults.entry_is_left_when_the_save_fails, P7),
    (faults.spilled_blocks_are_not_freed, P7),
    (faults.spill_restores_no_history, P9),
)


@pytest.mark.parametrize(
    "check", {check.__name__: check for _, check in CAUGHT}.values(), ids=lambda c: c.__name__
)
def test_no_check_cries_without_a_fault(check: Check) -> None:
    check()


@pytest.mark.parametrize(("fault", "check"), CAUGHT, ids=[fault.__name__ for fault, _ in CAUGHT])
def test_a_fault_is_caught(fault: Callable[[], AbstractContextManager[Any]], check: Check) -> None:
    # Many faults break the run itself before its properties are looked at.
    with fault(), pytest.raises((AssertionError, RuntimeError, LookupError, ValueError)):
        check()
