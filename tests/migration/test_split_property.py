"""Random methods, cut at random and split to a budget: what they return, raise, log and leave is the same."""

from __future__ import annotations

import random
import re

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from migration.code.source import Source
from migration.split.plan import SplitOptions, SplitPlan, SplitRefused, plan_split

from .split_bodies import behaviour, module
from .split_support import Cuts

DRAWS = st.randoms(use_true_random=False)
SETTINGS = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
#: Verification failures that no choice of cuts may run into.
OWN_FAULTS = {"MG201", "MG202", "MG204", "MG205", "MG207"}


def compiles(text: str) -> bool:
    try:
        compile(text, "case", "exec")
    except SyntaxError:  # a `return` with a value among the yields of an asynchronous generator
        return False
    return True


def seen(data: bytes, seed: int) -> list[str]:
    """The behaviour, without what tells where a function was defined."""
    moved = re.compile(r"0x[0-9a-f]+|_run_\d+\w*|\brun\b")
    return [moved.sub("@", line) for line in behaviour(data, seed)]


@SETTINGS
@given(draw=DRAWS, seed=st.integers(0, 99))
def test_every_permitted_cut_leaves_the_behaviour_as_it_was(draw: random.Random, seed: int):
    text = module(draw)
    if not compiles(text):
        return
    cuts = Cuts(text.encode())
    runs = cuts.runs()
    event(f"permitted cuts: {min(len(runs) // 20 * 20, 100)}+")
    before = seen(text.encode(), seed) if runs else []
    for run in random.Random(seed).sample(runs, min(len(runs), 6)):
        assert seen(cuts.cut(run), seed) == before, f"lines {run.first_line} to {run.last_line}"


@SETTINGS
@given(
    draw=DRAWS,
    seed=st.integers(0, 99),
    share=st.sampled_from((0.4, 0.6, 0.8)),
    cap=st.sampled_from((4, 8, 12)),
)
def test_a_method_split_to_a_budget_behaves_as_the_whole_one(
    draw: random.Random, seed: int, share: float, cap: int
):
    text = module(draw)
    if not compiles(text):
        return
    budget = max(8, int(text[text.index("def run") :].count("\n") * share))
    outcome = plan_split(Source("case.py", text.encode()), "run", "Worker", SplitOptions(budget, cap))
    event(type(outcome).__name__)
    if isinstance(outcome, SplitRefused):
        assert not OWN_FAULTS & {refusal.code for refusal in outcome.refusals}
    elif isinstance(outcome, SplitPlan):
        assert outcome.lines_after <= budget and all(helper.lines <= budget for helper in outcome.helpers)
        assert outcome.change.after is not None
        assert seen(outcome.change.after, seed) == seen(text.encode(), seed)
