"""The page table as FlashInfer reads it, against the torch backend's own reading of the same table."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from batchgen.attention import TorchPagedAttention
from batchgen.attention.flashinfer.arrays import paged_arrays
from tests.batchgen.attention.flashinfer_double import attend
from tests.batchgen.attention.test_torch_paged import HEADS, SCALE, dense, make_paged

lengths_and_pages = st.integers(1, 7).flatmap(
    lambda size: st.tuples(
        # Multiples of a page, one off them, empty rows: where these arrays go wrong.
        st.lists(
            st.one_of(st.integers(0, 19), st.sampled_from((0, size, size + 1, 2 * size))),
            min_size=1,
            max_size=6,
        ),
        st.just(size),
    )
)


@settings(max_examples=150, deadline=None)
@given(lengths_and_pages, st.integers(0, 1000))
def test_arrays_name_the_slots_that_the_reference_reads_and_writes(
    case: tuple[list[int], int], seed: int
) -> None:
    lengths, page_size = case
    paged = make_paged(lengths, page_size, seed)
    arrays = paged_arrays(paged.table, torch.tensor(lengths, dtype=torch.int32), page_size, paged.scratch)
    plan = paged.plan(TorchPagedAttention())
    assert {getattr(arrays, name).dtype for name in vars(arrays)} == {torch.int32}
    assert int(arrays.indptr[0]) == 0 and int(arrays.indptr[-1]) == len(arrays.indices)
    for row, length in enumerate(lengths):
        pages = arrays.indices[arrays.indptr[row] : arrays.indptr[row + 1]].long()
        slots = (pages[:, None] * page_size + torch.arange(page_size)).flatten()
        live = (len(pages) - 1) * page_size + int(arrays.last_page_len[row])
        assert 1 <= int(arrays.last_page_len[row]) <= page_size
        assert live == max(int(plan.kv_len[row]), 1) == max(length, 1)
        assert slots[:live].tolist() == plan.token_indices[row, :live].tolist()
        assert int(arrays.batch_indices[row]) == row
        assert int(slots[int(arrays.positions[row])]) == int(plan.write_indices[row])


@settings(max_examples=60, deadline=None)
@given(lengths_and_pages, st.integers(0, 1000))
def test_attention_over_the_arrays_is_that_of_the_reference(case: tuple[list[int], int], seed: int) -> None:
    lengths, page_size = case
    paged = make_paged(lengths, page_size, seed)
    for pool in (paged.k_pool, paged.v_pool):
        pool[paged.scratch, 0] = 0.5  # the slot of padded rows; every other dead one stays NaN
    arrays = paged_arrays(paged.table, torch.tensor(lengths), page_size, paged.scratch)
    q = torch.randn(len(lengths), HEADS, 8, generator=torch.Generator().manual_seed(seed))
    expected = TorchPagedAttention().decode(
        q, paged.k_pool, paged.v_pool, paged.plan(TorchPagedAttention()), scale=SCALE, row_exact=False
    )
    for row, length in enumerate(lengths):
        pages = arrays.indices[arrays.indptr[row] : arrays.indptr[row + 1]].long()
        live = (len(pages) - 1) * page_size + int(arrays.last_page_len[row])
        keys, values = (pool[pages].flatten(0, 1)[:live] for pool in (paged.k_pool, paged.v_pool))
        out = attend(q[row : row + 1], keys, values, SCALE, causal=False)[0]
        assert torch.allclose(out, expected[row], atol=1e-5)
        if length:
            assert torch.allclose(out, dense(q[row], paged.keys[row], paged.values[row]), atol=1e-5)


def test_what_the_reference_refuses_is_refused_with_the_same_words() -> None:
    def arrays(paged, **extra):
        return paged_arrays(paged.table, torch.tensor(paged.lengths), 4, paged.scratch, **extra)

    paged = make_paged([9, 6], 4, 0)
    paged.table[1, 1] = -1
    with pytest.raises(RuntimeError, match="row 1 has kv_len 6 but no page for position 4"):
        arrays(paged)
    paged.table = paged.table[:, :2]
    with pytest.raises(RuntimeError, match="needs 3 pages, the page table has 2 columns"):
        arrays(paged)
    with pytest.raises(ValueError, match="kv_len 9, more than max_seqlen 8"):
        arrays(make_paged([9], 4, 0), max_seqlen=8)
    nothing = torch.empty(2, 0, dtype=torch.int32)
    assert paged_arrays(nothing, torch.zeros(2), 4, 9).indices.tolist() == [9, 9]
    with pytest.raises(RuntimeError, match="row 1 has kv_len 3 but no page for position 0"):
        paged_arrays(nothing, torch.tensor([0, 3]), 4, 9)
