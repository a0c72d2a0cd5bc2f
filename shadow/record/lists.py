"""Lists of integers, each as what it keeps of an earlier one and what comes after: page lists grow at the end."""

from __future__ import annotations

import msgspec
import numpy as np

from shadow.record.packing import pack, pack_steps, unpack, unpack_steps


class Lists(msgspec.Struct, frozen=True, array_like=True):
    """List i is the first `keep` of list `base` (-1: none; always below i), then `size` integers of `tail`.

    All packed (see shadow.record.packing); `tail` holds the tails of all lists, as differences.
    """

    base: bytes
    keep: bytes
    size: bytes
    tail: bytes


def common_length(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """How many leading integers two lists share."""
    shorter = min(len(first), len(second))
    if first[:shorter] == second[:shorter]:
        return shorter
    low, high = 0, shorter - 1  # the first `low` are equal, the first `high + 1` are not
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def pack_lists(lists: list[tuple[int, ...]], bases: list[int]) -> Lists:
    """`bases[i]` is the list below i that list i is likely to continue, or -1."""
    keep = [
        0 if base < 0 else common_length(lists[base], own) for own, base in zip(lists, bases, strict=True)
    ]
    tails = [own[kept:] for own, kept in zip(lists, keep, strict=True)]
    flat = [number for tail in tails for number in tail]
    return Lists(
        pack(np.asarray(bases, np.int64)),
        pack(np.asarray(keep, np.int64)),
        pack(np.asarray([len(tail) for tail in tails], np.int64)),
        pack_steps(np.asarray(flat, np.int64)),
    )


def unpack_lists(packed: Lists) -> list[tuple[int, ...]]:
    """ValueError or IndexError for what `pack_lists` does not write."""
    base, keep, size = (unpack(part).tolist() for part in (packed.base, packed.keep, packed.size))
    flat = unpack_steps(packed.tail).tolist()
    lists: list[tuple[int, ...]] = []
    start = 0
    for before, kept, length in zip(base, keep, size, strict=True):
        tail = tuple(flat[start : start + length])
        if before >= len(lists) or length < 0 or len(tail) != length or kept < 0:
            raise ValueError("a list continues one that is not before it")
        lists.append(lists[before][:kept] + tail if before >= 0 else tail)
        start += length
    if start != len(flat):
        raise ValueError("integers that belong to no list")
    return lists
