"""The line that says, at every step and at debug level, which rows go into it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from batchgen.scheduler.sequences import ActiveSeq

log = logging.getLogger(__name__)

#: The first block of an empty table: u32::MAX, as the engine studied prints it.
NO_BLOCK = 4294967295


def log_rows(active: Sequence[ActiveSeq]) -> None:
    """`slot` is the KV slot, also where rows are sorted by SSM slot. Nothing is built unless it is logged."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    rows = " ".join(
        f"[{i}: slot={a.seq.slot_idx} seq_len={a.seq.seq_len} "
        f"bt={a.seq.block_table[0] if a.seq.block_table else NO_BLOCK}/{len(a.seq.block_table)} "
        f"last={a.last_token} out_n={len(a.output_tokens)}]"
        for i, a in enumerate(active)
    )
    log.debug("CONC_DIAG n=%d: %s", len(active), rows)
