"""Which row comes first: ascending by state slot, so that the states of a batch lie one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from batchgen.scheduler.snapshots import RowSlots


def order_rows(rows: Sequence[RowSlots]) -> tuple[int, ...]:
    """Old indices in new order: stable, by SSM slot, or KV slot where a row has none; both are one space of numbers.

    One row, or none, is left alone.
    """
    keys = [row.slot_idx if row.ssm_slot is None else row.ssm_slot for row in rows]
    return tuple(sorted(range(len(keys)), key=keys.__getitem__))
