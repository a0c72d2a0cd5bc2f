"""Parking a row in the spill store: its KV blocks and recurrent state as bytes, its blocks free."""

from __future__ import annotations

import contextlib
import logging
from typing import BinaryIO

from batchgen.scheduler.drain import release_seq
from batchgen.scheduler.errors import LaunchError, SpillError
from batchgen.scheduler.ports import SchedCtx, SpillIo
from batchgen.scheduler.sequences import ActiveSeq, SwappedSeq

log = logging.getLogger(__name__)

SPILL_FAILURES = (SpillError, LaunchError, OSError)


def spill_out_sequence(sched: SchedCtx, a: ActiveSeq, spill: SpillIo) -> SwappedSeq:
    """The row as it waits in the store.

    Raises:
        SpillError: it could not be stored. The row is as it was, on the device, and no entry is left.
    """
    try:
        swap_id, writer = spill.create()
    except SPILL_FAILURES as error:
        raise SpillError(f"cannot create a spill entry: {error}") from error
    try:
        _save(sched, a, spill, swap_id, writer)
    except SPILL_FAILURES as error:
        remove_entry(spill, swap_id)
        raise SpillError(f"cannot spill slot {a.seq.slot_idx}: {error}") from error
    swapped = SwappedSeq(a, list(a.seq.tokens), a.seq.seq_len, a.num_blocks, swap_id)
    release_seq(sched, a.seq, cache=False)
    sched.io.telemetry.count("spilled")
    return swapped


def _save(sched: SchedCtx, a: ActiveSeq, spill: SpillIo, swap_id: int, writer: BinaryIO) -> None:
    try:
        sched.io.device.save(a.seq, writer)
    except BaseException:
        with contextlib.suppress(*SPILL_FAILURES):
            writer.close()  # what is still buffered may fail again: the first error is the one to tell
        raise
    writer.close()
    spill.record_usage(swap_id)


def remove_entry(spill: SpillIo, swap_id: int) -> None:
    """Best effort: an entry that stays behind is swept when the store is next opened."""
    try:
        spill.remove(swap_id)
    except SPILL_FAILURES as error:
        log.warning("spill entry %d is left behind: %s", swap_id, error)
