"""Whatever class is declared, every run of it shows the same as before."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migration.code.source import Source
from migration.declare.plan import DeclarePlan, DeclareRefused, Wanted, plan_declare
from migration.errors import MigrationError
from migration.presence.class_files import OneFile

from .random_class import Run, Writer
from .random_lazy import LazyWriter


def shows_the_same(text: str, wanted: list[Wanted] | None) -> bool:
    """Compare a class with what is declared of it; False where nothing may be."""
    source = Source("m.py", text.encode())
    try:
        outcome = plan_declare(source, "C", OneFile("m.py", source.data), wanted)
    except MigrationError as error:
        assert error.code == "MG541"
        return False
    if isinstance(outcome, DeclareRefused):
        # The editing never produces what the verification has to refuse.
        assert not [r for r in outcome.refusals if r.code.startswith("MG2")], f"{outcome}\n{text}"
    if not isinstance(outcome, DeclarePlan):
        return False
    changed = (outcome.change.after or b"").decode()
    for schedule in range(4):
        before, after = Run(text, schedule, spy=False), Run(changed, schedule, spy=False)
        # Where the stack ends depends on frames, not on meaning: a builtin call takes none.
        if "RecursionError" not in (*before.shown, *after.shown):
            assert before.shown == after.shown, f"{text}\n----\n{changed}"
    return True


@settings(derandomize=True, max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), after=st.sampled_from([None, None, "a", "b", "c"]))
def test_a_class_with_lazy_attributes_shows_the_same(seed: int, after: str | None):
    text = LazyWriter(random.Random(seed)).module()
    shows_the_same(text, None if after is None else [Wanted("x", after)])


@settings(derandomize=True, max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_any_class_shows_the_same(seed: int):
    shows_the_same(Writer(random.Random(seed), wild=seed % 5 == 0).module(), None)


def test_most_random_classes_have_something_to_declare():
    found = sum(shows_the_same(LazyWriter(random.Random(seed)).module(), None) for seed in range(30))
    assert found > 12
