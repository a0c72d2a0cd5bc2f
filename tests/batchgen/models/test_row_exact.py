"""With ``row_exact`` a row's bits depend on its own history only."""

from __future__ import annotations

import pytest
import torch

from batchgen.models import PagedCausalLM, load_model
from tests.batchgen.models.paged import PagedRunner
from tests.batchgen.models.test_parity import random_prompts

NAMES = ["tiny", "tiny-dual", "tiny-hybrid"]


def exact(name: str) -> PagedCausalLM:
    model = load_model(name, row_exact=True).model
    model.pack_for_decode()
    return model


def histories(runner: PagedRunner, ids: list[int]) -> dict[int, torch.Tensor]:
    return {gid: torch.stack(runner.history[gid]) for gid in ids}


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_bitwise_equal_in_any_batch(name: str) -> None:
    model = exact(name)
    prompts = dict(enumerate(random_prompts(5, longest=30, seed=4)))
    together = PagedRunner(model)
    together.prefill(prompts)
    for step in range(12):
        order = [0, 1, 2, 3, 4] if step % 2 else [4, 2, 0, 3, 1]
        together.decode(order)
    expected = histories(together, list(prompts))
    for gid, prompt in prompts.items():
        alone = PagedRunner(model, page_size=7)
        alone.prefill({gid: prompt})
        for _ in range(12):
            alone.decode([gid])
        assert torch.equal(torch.stack(alone.history[gid]), expected[gid])


@pytest.mark.parametrize("name", NAMES)
def test_prefill_is_bitwise_equal_to_decode(name: str) -> None:
    model = exact(name)
    (prompt,) = random_prompts(1, longest=12, seed=8)
    decoded = PagedRunner(model)
    decoded.prefill({0: prompt})
    for _ in range(30):
        decoded.decode([0])
    refilled = PagedRunner(model)
    refilled.prefill({0: decoded.tokens[0][:-1]})
    assert torch.equal(refilled.history[0][0], decoded.history[0][-1])
    for layer in range(model.kv_pool_shape()[0]):
        for ours, theirs in zip(refilled._pools(), decoded._pools(), strict=True):
            kept = len(decoded.tokens[0]) - 2
            for a, b in zip(ours.get_kv_tensors(layer), theirs.get_kv_tensors(layer), strict=True):
                if a is not None and b is not None:
                    pages_a, pages_b = ours._sequences[0], theirs._sequences[0]
                    assert torch.equal(a[pages_a].flatten(0, 1)[:kept], b[pages_b].flatten(0, 1)[:kept])


def test_row_exact_and_batched_agree_up_to_rounding() -> None:
    prompts = random_prompts(6, longest=25, seed=6)
    rows = {}
    for flag in (False, True):
        runner = PagedRunner(load_model("tiny", row_exact=flag).model)
        runner.prefill(dict(enumerate(prompts)))
        rows[flag] = torch.stack([runner.history[i][0] for i in range(6)])
    assert torch.allclose(rows[False], rows[True], atol=1e-3)
    assert not torch.equal(rows[False], rows[True])
