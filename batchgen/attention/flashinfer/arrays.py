"""The page table of a decode batch as FlashInfer reads it; torch only, pure."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from batchgen.attention.checks import check_longest, no_page

__all__ = ["PagedArrays", "paged_arrays"]


@dataclass(frozen=True)
class PagedArrays:
    """Row i reads the pages ``indices[indptr[i] : indptr[i + 1]]``, of the last one ``last_page_len[i]`` slots, and
    writes its new token, which is counted already, at position ``positions[i]``.  All int32.

    A padded row reads and writes the first slot of the scratch page.  Planning needs ``indptr`` and
    ``last_page_len`` on the CPU; a kernel needs all on the device.
    """

    indptr: Tensor
    indices: Tensor
    last_page_len: Tensor
    batch_indices: Tensor
    positions: Tensor

    def to(self, device: torch.device) -> PagedArrays:
        return PagedArrays(*(getattr(self, field.name).to(device) for field in fields(self)))


def paged_arrays(
    page_table: Tensor,
    kv_len: Tensor,
    page_size: int,
    scratch_page_id: int,
    max_seqlen: int | None = None,
) -> PagedArrays:
    """Of ``page_table`` [B, P] (-1 padded) and ``kv_len`` [B]: ``indices`` on the table's device, the rest on the CPU.

    Reads ``kv_len`` back, once.  ValueError when a row is longer than ``max_seqlen``, RuntimeError when it has more
    pages than the table has columns, and on CPU (a GPU would have to be waited for) when a live position has no page.
    """
    live = kv_len.to(device="cpu", dtype=torch.int64)
    lengths = live.clamp_min(1)
    check_longest(int(lengths.max()) if len(lengths) else 1, page_table, page_size, max_seqlen)
    last = lengths - 1
    indptr = torch.zeros(len(lengths) + 1, dtype=torch.int64)
    torch.cumsum(last // page_size + 1, 0, out=indptr[1:])
    rows = torch.repeat_interleave(last // page_size + 1)
    columns = torch.arange(len(rows)) - indptr[rows]
    if page_table.shape[1] == 0:
        page_table = page_table.new_full((len(lengths), 1), -1)
    places = torch.stack((rows, columns, live[rows])).to(page_table.device)
    indices = torch.where(places[2] > 0, page_table[places[0], places[1]].int(), scratch_page_id)
    if page_table.device.type == "cpu" and bool((indices < 0).any()):
        at = int((indices < 0).nonzero()[0])
        row = int(rows[at])
        raise no_page(row, int(live[row]), int(columns[at]) * page_size)
    return PagedArrays(
        indptr=indptr.int(),
        indices=indices,
        last_page_len=(last % page_size + 1).int(),
        batch_indices=torch.arange(len(lengths), dtype=torch.int32),
        positions=last.int(),
    )
