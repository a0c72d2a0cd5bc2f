"""The float64 reference against the paged engine, with and without a real fault in its pages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from batchgen.models import load_model
from shadow.arbiter import Further, arbitrate, arbitrate_position
from shadow.noise.power import blindness
from shadow.numerics import score_rows
from shadow.power import FAULTS, Case, ladder, measure
from shadow.reference import Reference, Seen
from tests.batchgen.models.paged import PagedRunner

PAGE = 4


def decoded(
    name: str,
    fault: Callable[[PagedRunner], None] = lambda runner: None,
    *,
    prompt: int = 21,
    batch: int = 1,
    dtype: torch.dtype = torch.float32,
) -> tuple[list[int], np.ndarray]:
    """(tokens, logits after them) of sequence 0 by the paged engine; `fault` strikes before the last step."""
    runner = PagedRunner(load_model(name, dtype=dtype).model, page_size=PAGE, num_pages=256)
    generator = torch.Generator().manual_seed(5)
    prompts = {row: torch.randint(250, (prompt + row,), generator=generator).tolist() for row in range(batch)}
    runner.prefill(prompts)
    for _ in range(3):
        runner.decode(list(prompts))
    tokens = list(runner.tokens[0])
    fault(runner)
    return tokens, runner.decode(list(prompts))[0].numpy()


def zero_page(runner: PagedRunner) -> None:
    page = runner.pool._sequences[0][5]
    runner.pool.k_cache[:, page] = 0
    runner.pool.v_cache[:, page] = 0


@pytest.fixture(scope="module", params=["tiny", "tiny-dual", "tiny-hybrid"])
def reference(request: pytest.FixtureRequest) -> Reference:
    return Reference.load(request.param)


def test_the_reference_is_the_same_model_as_the_paged_engine(reference: Reference) -> None:
    for prompt in (1, 21, 300):  # 300: more rows than are computed at once
        tokens, logits = decoded(reference.config.name, prompt=prompt)
        result = arbitrate_position(reference, tokens, logits, logits, limit=0.0)
        assert result.legacy == result.candidate < 1e-5
        assert result.further is Further.NEITHER and len(set(result.argmax)) == 1


@pytest.mark.parametrize("healthy_is_legacy", [True, False])
def test_the_side_that_lost_a_page_is_named(reference: Reference, healthy_is_legacy: bool) -> None:
    tokens, healthy = decoded(reference.config.name)
    same, faulty = decoded(reference.config.name, zero_page)
    assert tokens == same
    sides = (healthy, faulty) if healthy_is_legacy else (faulty, healthy)
    result = arbitrate_position(reference, tokens, *sides, limit=1e-5)
    assert result.further is (Further.CANDIDATE if healthy_is_legacy else Further.LEGACY)
    assert max(result.legacy, result.candidate) > 1e-3 > 1e-5 > min(result.legacy, result.candidate)
    assert f"the {result.further.value} is further off" in str(result)


def test_other_orders_of_summation_are_both_within_noise(reference: Reference) -> None:
    tokens, alone = decoded(reference.config.name)
    _, together = decoded(reference.config.name, batch=5)
    assert not np.array_equal(alone, together)
    result = arbitrate_position(reference, tokens, alone, together, limit=1e-6)
    assert result.further is Further.NEITHER and "both within noise" in str(result)


def test_weights_are_rounded_as_the_engine_s_are() -> None:
    tokens, logits = decoded("tiny", dtype=torch.bfloat16)
    rounded = Reference.load("tiny", dtype=torch.bfloat16)
    result = arbitrate_position(rounded, tokens, logits, logits, limit=0.0, dtype=torch.bfloat16)
    exact = arbitrate_position(Reference.load("tiny"), tokens, logits, logits, limit=0.0)
    assert result.legacy < exact.legacy < 0.5


def test_the_factor_and_the_bound_decide_together() -> None:
    truth = np.array([3.0, 4.0])
    near, far = np.array([3.0, 4.05]), np.array([3.0, 4.15])  # 0.01 and 0.03 off
    assert arbitrate(truth, near, far, limit=0.0).further is Further.CANDIDATE
    assert arbitrate(truth, far, near, limit=0.0).further is Further.LEGACY
    assert arbitrate(truth, near, far, limit=0.02).further is Further.NEITHER
    assert arbitrate(truth, near, far, limit=0.0, factor=4.0).further is Further.NEITHER
    assert arbitrate(truth, near, far * np.nan, limit=1.0).further is Further.CANDIDATE
    assert arbitrate(truth, truth, truth, limit=0.0).further is Further.NEITHER


def test_a_position_outside_of_the_history_is_refused(reference: Reference) -> None:
    history = reference.history([1, 2, 3])
    for position in (-1, 3):
        with pytest.raises(IndexError, match="of a history of 3 tokens"):
            reference.logits(history, position)


@pytest.mark.slow
def test_the_shipped_model_s_lost_page_is_arbitrated() -> None:
    reference = Reference.load("smollm2")
    tokens, healthy = decoded("smollm2")
    _, faulty = decoded("smollm2", zero_page)
    result = arbitrate_position(reference, tokens, healthy, faulty, limit=1e-5)
    assert result.further is Further.CANDIDATE
    assert result.legacy < 1e-5 < 1e-2 < result.candidate


# power


def test_the_faults_of_the_power_statement_are_those_of_the_paged_engine() -> None:
    """A page zeroed in the real pool moves the logits as the same damage does in the reference attention."""
    reference = Reference.load("tiny")
    tokens, _ = decoded("tiny")
    _, faulty = decoded("tiny", zero_page)

    def zeroed(layer: int, seen: Seen) -> Seen:
        keys, values = seen.keys.clone(), seen.values.clone()
        keys[5 * PAGE : 6 * PAGE] = 0
        values[5 * PAGE : 6 * PAGE] = 0
        return Seen(keys, values)

    history = reference.history(tokens)
    clean = reference.logits(history, len(tokens) - 1)
    moved = reference.logits(history, len(tokens) - 1, zeroed)
    assert score_rows(moved.numpy(), faulty.astype(np.float64)).maximum < 1e-5
    assert score_rows(clean.numpy(), faulty.astype(np.float64)).maximum > 1e-3


def test_each_fault_damages_what_its_name_says() -> None:
    keys = torch.arange(10.0).view(10, 1, 1).double() + 1
    stale = Seen(-keys[:4], -keys[:4], -keys[:4, 0])
    struck = {f.name: f.strike(Case(0, Seen(keys, keys, keys[:, 0]), stale, 2)) for f in FAULTS}
    content = {name: seen.keys.flatten().tolist() for name, seen in struck.items()}
    live = keys.flatten().tolist()
    assert content == {
        "newest token dropped": live[:-1],
        "surplus zero page": [*live, 0, 0],
        "surplus stale page": [*live, -1, -2],
        "wrong page": [*live[:4], -1, -2, *live[6:]],
        "one garbage head in one layer": live,
        "values scaled by 1 %": live,
        "two pages swapped": [3, 4, 1, 2, *live[4:]],
    }
    for name, seen in struck.items():
        assert seen.index is not None and seen.index.flatten().tolist() == content[name]
        if name not in ("one garbage head in one layer", "values scaled by 1 %"):
            assert torch.equal(seen.keys, seen.values)
    assert struck["values scaled by 1 %"].values[0].item() == pytest.approx(1.01)
    garbage = next(fault for fault in FAULTS if "garbage" in fault.name)
    assert not torch.equal(struck[garbage.name].values, keys)
    assert garbage.strike(Case(1, Seen(keys, keys), stale, 2)).values is keys, "in one layer only"


def test_power_says_from_which_length_on_a_fault_is_missed() -> None:
    scores = {one.fault: one for one in measure(Reference.load("tiny"), 16, (64, 512))}
    assert list(scores) == [fault.name for fault in FAULTS]
    zeros = scores["surplus zero page"]
    assert zeros.points[0].score > 10 * zeros.points[1].score, "a zero page drowns in a long context"
    between = (zeros.points[0].score * zeros.points[1].score) ** 0.5
    assert blindness(zeros, between).missed_from == 512
    assert blindness(zeros, zeros.points[1].score / 2).missed_from is None
    # cached keys are rotated already: their order changes nothing, only the structural check sees it
    assert blindness(scores["two pages swapped"], 0.0).last_seen is None
    assert blindness(scores["one garbage head in one layer"], 1e-2).missed_from is None


def test_a_fault_counts_as_seen_only_where_every_trial_sees_it() -> None:
    reference = Reference.load("tiny")
    once, often = (measure(reference, 16, (64,), trials=trials) for trials in (1, 4))
    pairs = [(a.points[0].score, b.points[0].score) for a, b in zip(once, often, strict=True)]
    assert all(b <= a for a, b in pairs) and any(b < a for a, b in pairs)


def test_the_ladder_keeps_to_the_model_s_context_and_to_three_pages() -> None:
    reference = Reference.load("tiny")
    longest = reference.config.max_position_embeddings
    assert ladder(reference, 16, (longest, 48, 47, longest + 1)) == (48, longest)
    with pytest.raises(ValueError, match="holds three pages of 64 tokens"):
        measure(reference, 64, (16, 128))
