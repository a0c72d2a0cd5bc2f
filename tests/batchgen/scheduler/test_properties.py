"""The properties of a step on any batch, any pool and, where they hold then too, with failures anywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from batchgen.scheduler.order import order_rows
from batchgen.scheduler.readback import plan_readback
from batchgen.scheduler.resume_plan import plan_requeue_resume, plan_swap_in
from batchgen.scheduler.victims import choose_decode_victim
from tests.batchgen.scheduler.properties import ALWAYS, UNDISTURBED, Property, run
from tests.batchgen.scheduler.scenarios import scenarios
from tests.batchgen.scheduler.world import Scenario

PLANNERS: dict[str, Callable[..., object]] = {
    f"{planner.__module__}.{planner.__name__}": planner
    for planner in (order_rows, plan_readback, choose_decode_victim, plan_requeue_resume, plan_swap_in)
}

QUICK, THOROUGH = (
    settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    for count in (15, 500)
)

profiles = pytest.mark.parametrize(
    "profile", [QUICK, pytest.param(THOROUGH, marks=pytest.mark.slow)], ids=["quick", "thorough"]
)


@profiles
@pytest.mark.parametrize("holds", ALWAYS, ids=lambda holds: holds.__name__)
def test_it_holds_with_failures_and_known_defects(holds: Property, profile: settings) -> None:
    @profile
    @given(scenarios(failures=True, quirks=True))
    def check(scenario: Scenario) -> None:
        holds(scenario)

    check()


@profiles
@pytest.mark.parametrize("holds", [*UNDISTURBED, *ALWAYS], ids=lambda holds: holds.__name__)
def test_it_holds_without_failures(holds: Property, profile: settings) -> None:
    @profile
    @given(scenarios())
    def check(scenario: Scenario) -> None:
        holds(scenario)

    check()


@profiles
def test_any_plan_can_be_asked_for_again(profile: settings) -> None:
    """Each question that planners were asked in a run is kept as frozen values, and has the same answer later."""

    @profile
    @given(scenarios(failures=True, quirks=True))
    def check(scenario: Scenario) -> None:
        world = run(scenario)
        assert len(world.planned) >= len(world.device.launches)
        for planned in world.planned:
            assert PLANNERS[planned.planner](*planned.inputs) == planned.plan
            assert isinstance(hash(planned), int)

    check()
