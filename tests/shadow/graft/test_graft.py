"""Which input of a forward is guilty: faults planted in one input at a time, and named by grafting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shadow.graft import Input
from shadow.graft.blame import GraftResult, blame, verdict
from shadow.messages import Setup
from shadow.observation import Kind, Point
from shadow.pair import compare_sides

ROOT = Path(__file__).parents[3]
STEP = 3
MUTANTS = '''
from contextlib import contextmanager

import torch

from shadow.mutants import Fault, Where, mutant
from shadow.mutants.patch import around, sequence
from shadow.observation import Kind


def planted(name, strike):
    @mutant(name, Fault.NUMERIC, Where(Kind.LOGITS, step={step}))
    @contextmanager
    def plant(plant):
        """One input of the forward is spoilt right before it."""

        def make(original, sequences, new_tokens, max_seqlen):
            if plant.step() == {step}:
                plant.fired()
                strike(plant, new_tokens)
            return original(sequences, new_tokens, max_seqlen)

        with around(plant.worker, "_decode_make_batch_state", make):
            yield


def pool(plant):
    return plant.worker.gpu_paged_kv_cache_manager


def wrong_token(plant, new_tokens):
    with torch.inference_mode():
        new_tokens[1] = (new_tokens[1] + 1) % 100


def short_length(plant, new_tokens):
    plant.modules["batchgen.attention"].AttnWrapperBase.cache_seqlens[1] -= 1


def zeroed_k(plant, new_tokens):
    first = pool(plant)._sequences[sequence(plant, "b").global_idx][0]
    pool(plant).k_cache[:, first] = 0


def zeroed_v(plant, new_tokens):
    first = pool(plant)._sequences[sequence(plant, "b").global_idx][0]
    pool(plant).v_cache[:, first] = 0


def zeroed_page(plant, new_tokens):
    zeroed_k(plant, new_tokens)
    zeroed_v(plant, new_tokens)


def swapped_table(plant, new_tokens):
    slots, host = pool(plant).save_page_table()
    host = host.clone()
    host[1, 0], host[1, 1] = host[1, 1].clone(), host[1, 0].clone()
    pool(plant).restore_page_table((slots, host))


def scaled_weights(plant, new_tokens):
    for name, weight in plant.worker.model.state_dict().items():
        if name.endswith("norm.weight"):
            weight.mul_(1.01)


for fault in (wrong_token, short_length, zeroed_k, zeroed_v, zeroed_page, swapped_table, scaled_weights):
    planted(fault.__name__, fault)
'''


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Setup, Path]:
    folder = tmp_path_factory.mktemp("graft")
    (folder / "faults.py").write_text(MUTANTS.replace("{step}", str(STEP)))
    requests = folder / "requests.jsonl"
    lines = [
        {
            "custom_id": name,
            "method": "POST",
            "url": "/v1/completions",
            "body": {"prompt": prompt, "max_tokens": 8},
        }
        for name, prompt in (("a", "one of them"), ("b", "another, longer than a page"), ("c", "short"))
    ]
    requests.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = {"model": "tiny", "page_size": 4, "gpu_kv_pages": 60, "host_kv_pages": 60}
    return Setup(
        str(ROOT), (str(requests),), 1, options, only=frozenset((Kind.LOGITS,))
    ), folder / "faults.py"


def guilty(sides: tuple[Setup, Path], fault: str) -> tuple[GraftResult, ...]:
    control, faults = sides
    candidate = Setup(**{**vars(control), "mutant": (str(faults), fault)})
    tally, outcome = compare_sides(control, candidate, timeout=120)
    assert outcome.trouble is None
    first = tally.first_of_kind[Kind.LOGITS]
    assert (first.point, first.step) == (Point.DECODE, STEP)
    return blame(control, candidate, first, timeout=120)


@pytest.mark.parametrize(
    ("fault", "guilty_input"),
    [
        ("wrong_token", Input.TOKENS),
        ("short_length", Input.LENGTHS),
        ("zeroed_k", Input.KEYS),
        ("zeroed_v", Input.VALUES),
        ("zeroed_page", Input.KEYS_AND_VALUES),
        ("swapped_table", Input.PAGE_TABLE),
    ],
)
def test_the_input_that_was_spoilt_is_the_one_that_is_guilty(
    sides: tuple[Setup, Path], fault: str, guilty_input: Input
) -> None:
    results = guilty(sides, fault)
    assert [result.input for result in results if result.guilty] == [guilty_input], verdict(results)
    assert all(result.differing for result in results[:-1]), "the others ran, and healed nothing"
    assert verdict(results).startswith(f"guilty input: {guilty_input.value} ")


def test_a_forward_that_computes_otherwise_has_no_guilty_input(sides: tuple[Setup, Path]) -> None:
    assert verdict(guilty(sides, "scaled_weights")).startswith("no single input is guilty")


def test_only_logits_of_a_decode_step_can_be_explained(sides: tuple[Setup, Path]) -> None:
    control, faults = sides
    candidate = Setup(**{**vars(control), "mutant": (str(faults), "wrong_token"), "only": None})
    tally, _ = compare_sides(control, candidate, timeout=120)
    other = next(m for kind, m in tally.first_of_kind.items() if kind is not Kind.LOGITS)
    with pytest.raises(ValueError, match="logits of a decode step"):
        blame(control, candidate, other, timeout=120)
