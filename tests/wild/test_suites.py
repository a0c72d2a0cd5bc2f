"""A package from PyPI passes its own tests as before after a cut, and they notice what was moved."""

from __future__ import annotations

import pytest

from wild.run_suites import LEAST_METHODS, trial
from wild.suites import suites


def test_there_are_enough_packages() -> None:
    assert len(suites()) >= 8


@pytest.mark.wild
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("package", sorted(suites()))
def test_the_suite_of_a_package_gives_the_same_result_after_a_cut(package: str) -> None:
    result = trial(package)
    assert result.problems == []
    assert len(result.noticed) >= LEAST_METHODS
