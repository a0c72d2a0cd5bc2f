"""Token selection: greedy ties, the nucleus, and independence of everything but (row, seed, position)."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batchgen.sampling import SamplingParams, draw, select_tokens, token_logprob


def rows(count: int, vocab: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, vocab, generator=torch.Generator().manual_seed(seed)) * 2


def test_greedy_takes_the_first_maximum() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, -1.0], [5.0, 5.0, 5.0, 5.0]])
    tokens, logprobs = select_tokens(logits, [SamplingParams()] * 2, [0, 0])
    assert tokens.tolist() == [1, 0] and tokens.dtype == torch.int64
    assert logprobs == [None, None]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**63), position=st.integers(0, 10_000), order=st.permutations(list(range(5))))
def test_a_row_draws_the_same_token_in_any_batch(seed: int, position: int, order: list[int]) -> None:
    logits = rows(5, 50)
    params = [SamplingParams(temperature=0.3 + i, top_p=1 - i / 10, seed=seed + i) for i in range(5)]
    positions = [position + i for i in range(5)]
    together, _ = select_tokens(logits, params, positions)
    shuffled, _ = select_tokens(logits[order], [params[i] for i in order], [positions[i] for i in order])
    assert shuffled.tolist() == together[order].tolist()
    for i in range(5):
        assert int(select_tokens(logits[i : i + 1], [params[i]], [positions[i]])[0]) == int(together[i])


def test_draws_follow_the_tempered_distribution() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    draws = 5_000
    for temperature in (0.7, 1.5):
        params = SamplingParams(temperature=temperature, seed=7)
        counts = Counter(int(select_tokens(logits, [params], [at])[0]) for at in range(draws))
        expected = torch.softmax(logits[0].double() / temperature, 0)
        for token in range(4):
            p = float(expected[token])
            assert abs(counts[token] / draws - p) < 5 * math.sqrt(p * (1 - p) / draws)


def test_seed_and_position_both_change_the_draw() -> None:
    logits = rows(1, 1000)
    by_seed = {int(select_tokens(logits, [SamplingParams(1.0, seed=s)], [3])[0]) for s in range(30)}
    by_position = {int(select_tokens(logits, [SamplingParams(1.0, seed=3)], [p])[0]) for p in range(30)}
    assert len(by_seed) > 15 and len(by_position) > 15


@pytest.mark.parametrize(
    ("top_p", "expected"),
    [(0.0, {0}), (0.5, {0}), (0.51, {0, 1}), (0.8, {0, 1}), (0.9, {0, 1, 2}), (1.0, {0, 1, 2})],
)
def test_the_nucleus_is_the_shortest_prefix_that_reaches_top_p(top_p: float, expected: set[int]) -> None:
    logits = torch.tensor([[math.log(0.5), math.log(0.3), math.log(0.2), float("-inf")]])
    drawn = {
        int(select_tokens(logits, [SamplingParams(1.0, top_p=top_p, seed=s)], [0])[0]) for s in range(200)
    }
    assert drawn == expected


def test_a_prefix_that_reaches_top_p_exactly_is_enough() -> None:
    logits = torch.zeros(1, 4)
    drawn = {int(select_tokens(logits, [SamplingParams(1.0, 0.5, seed=s)], [0])[0]) for s in range(100)}
    assert drawn == {0, 1}


def test_logprobs_are_those_of_the_unscaled_distribution() -> None:
    logits = rows(2, 20)
    asked = SamplingParams(temperature=3.0, logprobs=True, top_logprobs=4, seed=5)
    tokens, logprobs = select_tokens(logits, [asked, SamplingParams()], [0, 0])
    reference = torch.log_softmax(logits[0].double(), 0)
    first = logprobs[0]
    assert first is not None and logprobs[1] is None
    assert first.token_id == int(tokens[0])
    assert first.logprob == pytest.approx(float(reference[first.token_id]))
    best = reference.topk(4)
    assert [token for token, _ in first.top] == best.indices.tolist()
    assert [value for _, value in first.top] == pytest.approx(best.values.tolist())


def test_more_top_logprobs_than_tokens_gives_them_all() -> None:
    _, logprobs = select_tokens(rows(1, 3), [SamplingParams(logprobs=True, top_logprobs=20)], [0])
    assert logprobs[0] is not None and len(logprobs[0].top) == 3


def test_damaged_logits_are_refused_with_row_and_position() -> None:
    logits = rows(3, 10)
    logits[1, 4] = float("nan")
    with pytest.raises(FloatingPointError, match=r"row 1 \(position 8\)"):
        select_tokens(logits, [SamplingParams()] * 3, [7, 8, 9])


def test_an_empty_batch_and_mismatched_lengths() -> None:
    tokens, logprobs = select_tokens(torch.empty(0, 10), [], [])
    assert tokens.shape == (0,) and logprobs == []
    with pytest.raises(ValueError, match="2 rows, 1 params, 2 positions"):
        select_tokens(rows(2, 4), [SamplingParams()], [0, 1])


def test_the_logits_are_left_alone() -> None:
    logits = rows(2, 30)
    before = logits.clone()
    select_tokens(logits, [SamplingParams(0.5, logprobs=True)] * 2, [0, 1])
    assert torch.equal(logits, before)


def sorted_draw(row: torch.Tensor, at: float, top_p: float, top_k: int, min_p: float) -> int:
    """The draw by sorting everything."""
    probs = torch.softmax(row.double(), 0).tolist()
    order = sorted(range(len(probs)), key=lambda token: (-probs[token], token))
    may = order[:top_k] if top_k else order
    mass, total, nucleus = sum(probs[token] for token in may), 0.0, []
    for token in may:
        if nucleus and top_p < 1 and total >= top_p * mass:
            break
        total += probs[token]
        nucleus.append(token)
    nucleus = [token for token in nucleus if probs[token] >= min_p * probs[order[0]]]
    target, total = at * sum(probs[token] for token in nucleus), 0.0
    for token in nucleus:
        total += probs[token]
        if total > target:
            return token
    return nucleus[-1]


@settings(max_examples=60, deadline=None)
@example(seed=0, spread=0.01, rounded=True, at=0.5, top_p=1.0, top_k=0, min_p=0.0)
@given(
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.01, 1.0, 5.0]),
    rounded=st.booleans(),
    at=st.floats(0, 0.999),
    top_p=st.sampled_from([1.0, 0.9731, 0.3]),
    top_k=st.sampled_from([0, 3, 700]),
    min_p=st.sampled_from([0.0, 0.051]),
)
def test_a_large_vocabulary_is_drawn_from_as_if_it_were_sorted(
    seed: int, spread: float, rounded: bool, at: float, top_p: float, top_k: int, min_p: float
) -> None:
    row = rows(1, 20_000, seed)[0] * spread
    row = row.round() if rounded else row  # many ties: of equal ones the first comes first
    found = draw(row, 1.0, at, top_p=top_p, top_k=top_k, min_p=min_p)
    if found != sorted_draw(row, at, top_p, top_k, min_p):
        # At the very edge between two tokens the order of the additions decides: both sides of it are right.
        edges = [
            (at * (1 + a * 1e-12), top_p if top_p == 1 else top_p * (1 + p * 1e-12))
            for a in (-1, 0, 1)
            for p in (-1, 0, 1)
        ]
        assert found in {sorted_draw(row, a, p, top_k, min_p) for a, p in edges}


def test_the_best_token_may_always_be_drawn() -> None:
    row = torch.tensor([0.0, 3.0, 1.0])
    for bound in ({"top_k": 1}, {"min_p": 1.0}, {"min_p": 5.0}, {"top_n_sigma": 1e-9}, {"top_p": 0.0}):
        assert draw(row, 1.0, 0.999, **bound) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(("sigmas", "expected"), [(0.5, {1}), (1.0, {1, 2}), (3.0, {0, 1, 2})])
def test_top_n_sigma_counts_from_the_best_logit_whatever_the_temperature(
    sigmas: float, expected: set[int]
) -> None:
    row = torch.tensor([0.0, 3.0, 2.0, float("-inf")])  # a deviation of 1.25 among those that are possible
    for temperature in (0.5, 3.0):
        assert {draw(row, temperature, at / 1000, top_n_sigma=sigmas) for at in range(1000)} == expected


def test_the_most_likely_of_a_large_vocabulary_are_named_in_order() -> None:
    row = rows(1, 20_000)[0].round()
    best = sorted(range(20_000), key=lambda token: (-float(row[token]), token))[:30]
    assert [token for token, _ in token_logprob(row, 0, 30).top] == best
    assert token_logprob(row, 0, 0).top == ()
