"""What every backend refuses in a page table and its lengths."""

from __future__ import annotations

from torch import Tensor

__all__ = ["check_longest", "no_page"]


def check_longest(longest: int, page_table: Tensor, page_size: int, max_seqlen: int | None) -> None:
    """ValueError for a row of more than ``max_seqlen`` tokens, RuntimeError for one with more pages than columns."""
    if max_seqlen is not None and longest > max(max_seqlen, 1):
        raise ValueError(f"plan_decode: a row has kv_len {longest}, more than max_seqlen {max_seqlen}")
    if longest > max(page_table.shape[1], 1) * page_size:
        raise RuntimeError(
            f"plan_decode: kv_len {longest} needs {-(-longest // page_size)} pages, the page table has "
            f"{page_table.shape[1]} columns; grow the sequence and rebuild the table first"
        )


def no_page(row: int, kv_len: int, position: int) -> RuntimeError:
    return RuntimeError(
        f"plan_decode: row {row} has kv_len {kv_len} but no page for position {position}; "
        "the page table is stale or the sequence was not grown"
    )
