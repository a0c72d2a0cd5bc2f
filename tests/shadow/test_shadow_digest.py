from __future__ import annotations

import pytest
import torch

from shadow import digest
from shadow.digest import page_digests, position_digests

LAYERS, PAGES, SIZE, HEADS, DIM = 3, 6, 4, 2, 8


@pytest.fixture(params=["in place", "as on a device"], autouse=True)
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of reading a cache are held to the same."""
    if request.param == "as on a device":
        monkeypatch.setattr(digest, "_in_memory", lambda cache: False)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def cache(request: pytest.FixtureRequest) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(LAYERS, PAGES, SIZE, HEADS, DIM, generator=generator).to(request.param)


def test_equal_content_has_equal_digests_wherever_the_pages_lie(cache: torch.Tensor) -> None:
    moved = cache[:, [5, 4, 3, 2, 1, 0]]
    assert torch.equal(page_digests(cache, [0, 3, 1], 12), page_digests(moved, [5, 2, 4], 12))


def test_one_changed_element_changes_the_digest_of_its_layer_and_page_only(cache: torch.Tensor) -> None:
    before = page_digests(cache, [2, 4], 8)
    cache[1, 4, 2, 1, 5] += 1
    changed = before != page_digests(cache, [2, 4], 8)
    assert changed.tolist() == [[False, False], [False, True], [False, False]]


@pytest.mark.parametrize("axis", ["pages", "positions", "heads", "dims"])
def test_digests_see_swaps_that_sums_and_norms_do_not(cache: torch.Tensor, axis: str) -> None:
    before = page_digests(cache, [0, 1], 8)
    swapped = cache.clone()
    view = {
        "pages": (swapped[:, 0], swapped[:, 1]),
        "positions": (swapped[:, 0, 0], swapped[:, 0, 3]),
        "heads": (swapped[:, 0, 1, 0], swapped[:, 0, 1, 1]),
        "dims": (swapped[:, 0, 1, 0, 2], swapped[:, 0, 1, 0, 7]),
    }[axis]
    kept = view[0].clone()
    view[0].copy_(view[1])
    view[1].copy_(kept)
    assert (before != page_digests(swapped, [0, 1], 8)).any(dim=1).all()


def test_flipping_two_signs_is_seen(cache: torch.Tensor) -> None:
    before = page_digests(cache, [0], 4)
    cache[:, 0, 0, 0, 1] *= -1
    cache[:, 0, 0, 0, 3] *= -1
    assert (before != page_digests(cache, [0], 4)).all()


def test_what_lies_behind_the_live_prefix_does_not_count(cache: torch.Tensor) -> None:
    before = page_digests(cache, [0, 1], 6)
    cache[:, 1, 2:] = torch.nan
    assert torch.equal(before, page_digests(cache, [0, 1], 6))
    cache[:, 1, 1] = 0
    assert (before[:, 1] != page_digests(cache, [0, 1], 6)[:, 1]).all()


def test_digesting_leaves_the_cache_as_it_is(cache: torch.Tensor) -> None:
    before = cache.clone()
    page_digests(cache, [0, 1], 6)
    position_digests(cache, [(0, 1), (3, 2)])
    assert torch.equal(before, cache)


def test_nothing_live_is_no_digest(cache: torch.Tensor) -> None:
    assert page_digests(cache, [], 0).shape == (LAYERS, 0)
    assert position_digests(cache, []).shape == (LAYERS, 0)


def test_pages_that_cannot_hold_the_tokens_are_refused(cache: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="9 tokens need 3 pages of 4; the sequence has 2"):
        page_digests(cache, [0, 1], 9)


def test_a_position_is_digested_by_itself(cache: torch.Tensor) -> None:
    before = position_digests(cache, [(2, 1), (2, 3)])
    cache[2, 2, 3] += 1
    assert (before != position_digests(cache, [(2, 1), (2, 3)])).tolist() == [
        [False, False],
        [False, False],
        [False, True],
    ]


def test_zero_bits_alone_are_zero(cache: torch.Tensor) -> None:
    cache[:, [1, 2]] = 0
    cache[1, 2, 1] = -0.0
    assert (page_digests(cache, [1, 2], 6) == 0).tolist() == [[True, True], [True, False], [True, True]]
    assert (position_digests(cache, [(1, 3), (2, 1)]) == 0).tolist() == [
        [True, True],
        [True, False],
        [True, True],
    ]


def test_a_page_beyond_the_cache_is_an_error(cache: torch.Tensor) -> None:
    with pytest.raises(IndexError):
        page_digests(cache, [0, PAGES], 8)
    with pytest.raises(IndexError):
        position_digests(cache, [(PAGES, 0)])
