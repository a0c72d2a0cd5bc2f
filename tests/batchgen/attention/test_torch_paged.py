"""Paged attention against a dense reference written out row by row, with every dead slot poisoned."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from batchgen.attention import DecodePlan, IndexInputs, TorchPagedAttention

HEADS, KV_HEADS, DIM, SCALE = 4, 2, 8, 0.3


@dataclass
class Paged:
    """Rows of random KV scattered over pages; ``table`` is -1 padded, the last page is scratch."""

    lengths: list[int]
    page_size: int
    table: Tensor
    k_pool: Tensor
    v_pool: Tensor
    keys: list[Tensor]
    values: list[Tensor]

    @property
    def scratch(self) -> int:
        return self.k_pool.shape[0] - 1

    def plan(self, backend: TorchPagedAttention, **extra: int) -> DecodePlan:
        lengths = torch.tensor(self.lengths, dtype=torch.int32)
        return backend.plan_decode(self.table, lengths, self.page_size, self.scratch, **extra)


def make_paged(lengths: list[int], page_size: int, seed: int, *, new_token: bool = False) -> Paged:
    """Every slot that holds no live token is NaN; with ``new_token`` the last position is not yet written."""
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-n // page_size) for n in lengths]
    total = sum(counts) + 3
    order = torch.randperm(total, generator=generator).tolist()
    k_pool = torch.full((total + 1, page_size, KV_HEADS, DIM), float("nan"))
    v_pool = k_pool.clone()
    table = torch.full((len(lengths), max(counts, default=0) + 1), -1, dtype=torch.int32)
    keys, values = [], []
    for row, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        pages = [order.pop() for _ in range(count)]
        table[row, :count] = torch.tensor(pages, dtype=torch.int32)
        keys.append(torch.randn(length, KV_HEADS, DIM, generator=generator))
        values.append(torch.randn(length, KV_HEADS, DIM, generator=generator))
        for at in range(length - new_token):
            k_pool[pages[at // page_size], at % page_size] = keys[-1][at]
            v_pool[pages[at // page_size], at % page_size] = values[-1][at]
    return Paged(lengths, page_size, table, k_pool, v_pool, keys, values)


def dense(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query [Hq, D] over [L, Hkv, D] in float64."""
    group = HEADS // KV_HEADS
    rows = []
    for head in range(HEADS):
        scores = keys[:, head // group].double() @ q[head].double() * SCALE
        rows.append(torch.softmax(scores, 0) @ values[:, head // group].double())
    return torch.stack(rows).float()


def last_of(tensors: list[Tensor]) -> Tensor:
    shape = (KV_HEADS, DIM)
    return torch.stack([t[-1] if len(t) else torch.full(shape, 7.0) for t in tensors])


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 19), min_size=1, max_size=6),
    page_size=st.integers(1, 7),
    seed=st.integers(0, 1000),
    row_exact=st.booleans(),
)
def test_decode_reads_live_slots_only_and_padded_rows_stay_on_the_scratch_page(
    lengths: list[int], page_size: int, seed: int, row_exact: bool
) -> None:
    backend = TorchPagedAttention()
    paged = make_paged(lengths, page_size, seed, new_token=True)
    before = paged.k_pool.clone()
    plan = paged.plan(backend)
    backend.append(last_of(paged.keys), last_of(paged.values), paged.k_pool, paged.v_pool, plan)
    q = torch.randn(len(lengths), HEADS, DIM, generator=torch.Generator().manual_seed(seed))
    out = backend.decode(q, paged.k_pool, paged.v_pool, plan, scale=SCALE, row_exact=row_exact)
    assert torch.isfinite(out).all()
    for row, length in enumerate(lengths):
        if length:
            assert torch.allclose(out[row], dense(q[row], paged.keys[row], paged.values[row]), atol=1e-5)
    changed = ((paged.k_pool != before) & ~(paged.k_pool.isnan() & before.isnan())).flatten(2).any(2)
    written = {tuple(slot) for slot in changed.nonzero().tolist()}
    expected = {
        (int(paged.table[row, (n - 1) // page_size]), (n - 1) % page_size)
        for row, n in enumerate(lengths)
        if n
    }
    assert written == expected | ({(paged.scratch, 0)} if 0 in lengths else set())


def test_gather_blocks_of_an_earlier_longer_batch_do_not_leak() -> None:
    backend = TorchPagedAttention()
    for lengths in ([40, 3, 17], [2], [5, 1], [60]):
        paged = make_paged(lengths, 4, seed=len(lengths))
        q = torch.randn(len(lengths), HEADS, DIM)
        out = backend.decode(q, paged.k_pool, paged.v_pool, paged.plan(backend), scale=SCALE, row_exact=False)
        for row in range(len(lengths)):
            assert torch.allclose(out[row], dense(q[row], paged.keys[row], paged.values[row]), atol=1e-5)


def test_a_full_batch_needs_no_mask_and_a_ragged_one_has_it() -> None:
    backend = TorchPagedAttention()
    assert make_paged([5, 5], 4, 0).plan(backend).mask is None
    mask = make_paged([5, 3, 0], 4, 0).plan(backend).mask
    assert mask is not None and mask.sum(1).tolist() == [5, 3, 1]


def test_a_plan_for_no_rows_and_for_padding_only() -> None:
    backend = TorchPagedAttention()
    empty = backend.plan_decode(torch.empty(0, 4, dtype=torch.int32), torch.empty(0, dtype=torch.int32), 4, 9)
    assert empty.token_indices.shape == (0, 1)
    q = torch.empty(0, HEADS, DIM)
    pool = torch.zeros(10, 4, KV_HEADS, DIM)
    assert backend.decode(q, pool, pool, empty, scale=SCALE, row_exact=False).shape == (0, HEADS, DIM)
    padding = backend.plan_decode(
        torch.full((2, 3), -1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32), 4, 9
    )
    assert padding.token_indices.tolist() == [[36], [36]] and padding.write_indices.tolist() == [36, 36]


def test_a_live_position_without_a_page_is_refused() -> None:
    backend = TorchPagedAttention()
    paged = make_paged([9, 6], 4, 0)
    paged.table[1, 1] = -1
    with pytest.raises(RuntimeError, match="row 1 has kv_len 6 but no page for position 4"):
        paged.plan(backend)
    narrow = make_paged([9], 4, 0)
    narrow.table = narrow.table[:, :2]
    with pytest.raises(RuntimeError, match="needs 3 pages, the page table has 2 columns"):
        narrow.plan(backend)
    with pytest.raises(ValueError, match="kv_len 9, more than max_seqlen 8"):
        make_paged([9], 4, 0).plan(backend, max_seqlen=8)


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
    row_exact=st.booleans(),
    chosen=st.booleans(),
)
def test_prefill_is_causal_inside_each_packed_sequence(
    lengths: list[int], seed: int, row_exact: bool, chosen: bool
) -> None:
    backend = TorchPagedAttention()
    generator = torch.Generator().manual_seed(seed)
    total = sum(lengths)
    q = torch.randn(total, HEADS, DIM, generator=generator)
    k, v = (torch.randn(total, KV_HEADS, DIM, generator=generator) for _ in range(2))
    bounds = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    allowed = None
    positions = [at for n in lengths for at in range(n)]
    if chosen:
        allowed = torch.full((total, 3), -1)
        for row, at in enumerate(positions):
            some = torch.randperm(at + 1, generator=generator)[:3].sort().values
            allowed[row, : len(some)] = some
    cu_seqlens = torch.tensor(bounds, dtype=torch.int32)
    out = backend.prefill(q, k, v, cu_seqlens, scale=SCALE, row_exact=row_exact, allowed=allowed)
    for row, at in enumerate(positions):
        start = row - at
        seen = torch.arange(at + 1) if allowed is None else allowed[row][allowed[row] >= 0]
        assert torch.allclose(out[row], dense(q[row], k[start + seen], v[start + seen]), atol=1e-5)


def best_positions(q: Tensor, keys: Tensor, weights: Tensor, topk: int) -> list[int]:
    """The selection rule, written out: score each position, take the best, the earlier one at a tie."""
    scores = []
    for position, key in enumerate(keys):
        per_head = [max(0.0, float(query @ key)) * float(w) for query, w in zip(q, weights, strict=True)]
        scores.append((-sum(per_head), position))
    return sorted(position for _, position in sorted(scores)[:topk])


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=4),
    page_size=st.integers(1, 5),
    seed=st.integers(0, 1000),
    row_exact=st.booleans(),
)
def test_index_selection_takes_the_best_live_positions(
    lengths: list[int], page_size: int, seed: int, row_exact: bool
) -> None:
    backend = TorchPagedAttention()
    generator = torch.Generator().manual_seed(seed)
    # Small integers: scores are exact and tie often.
    paged = make_paged(lengths, page_size, seed)
    pool = torch.full((paged.k_pool.shape[0], page_size, 1, 4), float("nan"))
    keys = [torch.randint(-2, 3, (n, 4), generator=generator).float() for n in lengths]
    for row, n in enumerate(lengths):
        for at in range(n):
            pool[paged.table[row, at // page_size], at % page_size, 0] = keys[row][at]
    q = torch.randint(-2, 3, (len(lengths), 2, 4), generator=generator).float()
    weights = torch.randint(-1, 3, (len(lengths), 2), generator=generator).float()
    index = IndexInputs(q, torch.empty(len(lengths), 1, 4), weights, 5)
    chosen = backend.select_decode(index, pool, paged.plan(backend), row_exact=row_exact)
    assert chosen.shape == (len(lengths), 5)
    for row in range(len(lengths)):
        expected = best_positions(q[row], keys[row], weights[row], 5)
        assert chosen[row].tolist() == expected + [-1] * (5 - len(expected))
    query = torch.randn(len(lengths), HEADS, DIM, generator=generator)
    out = backend.decode(
        query,
        paged.k_pool,
        paged.v_pool,
        paged.plan(backend),
        scale=SCALE,
        row_exact=row_exact,
        topk=chosen,
    )
    for row in range(len(lengths)):
        live = chosen[row][chosen[row] >= 0]
        expected_row = dense(query[row], paged.keys[row][live], paged.values[row][live])
        assert torch.allclose(out[row], expected_row, atol=1e-5)


@pytest.mark.parametrize("row_exact", [False, True])
def test_prefill_selection_sees_only_earlier_positions_of_its_own_sequence(row_exact: bool) -> None:
    backend = TorchPagedAttention()
    generator = torch.Generator().manual_seed(3)
    lengths = [7, 1, 9]
    q = torch.randint(-2, 3, (17, 2, 4), generator=generator).float()
    k = torch.randint(-2, 3, (17, 1, 4), generator=generator).float()
    weights = torch.randint(-1, 3, (17, 2), generator=generator).float()
    bounds = [0, 7, 8, 17]
    chosen = backend.select_prefill(IndexInputs(q, k, weights, 3), bounds, row_exact=row_exact)
    for start, length in zip(bounds, lengths, strict=False):
        for at in range(length):
            row = start + at
            expected = best_positions(q[row], k[start : row + 1, 0], weights[row], 3)
            assert chosen[row].tolist() == expected + [-1] * (3 - len(expected))
