"""Two sides in lockstep, from their setups to what was compared and found."""

from __future__ import annotations

from collections.abc import Callable

from shadow.lockstep import Outcome, Reviewer, Watcher, as_found, run_lockstep
from shadow.messages import Setup
from shadow.nursery import shared
from shadow.pairing import SAME, Pairing
from shadow.side import Side
from shadow.tally import Tally


def compare_sides(
    control: Setup,
    candidate: Setup,
    *,
    timeout: float,
    pairing: Pairing = SAME,
    on_step: Callable[[int, int], None] = lambda step, differing: None,
    watch: Watcher = lambda control, candidate: None,
    review: Reviewer = as_found,
    stop: Callable[[Tally], bool] = lambda tally: False,
    strict_hygiene: bool = False,
) -> tuple[Tally, Outcome]:
    """Runs two sides in lockstep; `on_step` is told the step just compared and how many values differ so far.

    `watch` sees each pair of events before it is compared, `review` says what the comparison of both comes to;
    `stop` may end the run early after one. `strict_hygiene`: what nobody reads makes a divergence, too.
    """
    ours_alone, theirs_alone = (
        shared(setup.tree, setup.options, setup.environment) for setup in (control, candidate)
    )
    common = ours_alone if ours_alone == theirs_alone else None
    tally = Tally(strict_hygiene=strict_hygiene)
    with (
        Side("legacy side", control, timeout, common) as ours,
        Side("candidate side", candidate, timeout, common) as theirs,
    ):
        outcome = run_lockstep(
            ours,
            theirs,
            tally,
            lambda step: on_step(step, tally.total),
            pairing,
            watch=watch,
            review=review,
            stop=stop,
        )
    return tally, outcome
