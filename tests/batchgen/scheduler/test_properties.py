"""The properties of a step on any batch, any pool and, where they hold then too, with failures anywhere."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.batchgen.scheduler.properties import ALWAYS, UNDISTURBED, Property
from tests.batchgen.scheduler.scenarios import scenarios
from tests.batchgen.scheduler.world import Scenario

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
def test_it_holds_with_failures_anywhere(holds: Property, profile: settings) -> None:
    @profile
    @given(scenarios(failures=True))
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
