"""How far a row may still go: its own budget, and the longest sequence the model takes."""

from __future__ import annotations

import logging

from batchgen.scheduler.ports import Limits
from batchgen.scheduler.sequences import ActiveSeq

log = logging.getLogger(__name__)


def consume(row: ActiveSeq) -> bool:
    """Takes one token from the budget. False: none was left; the row is finished and the budget stays 0."""
    if row.remaining > 0:
        row.remaining -= 1
        return True
    log.warning("%s: a token beyond the budget of the request; finishing it", row.request_id)
    row.finished = True
    return False


def at_context_end(row: ActiveSeq, limits: Limits) -> bool:
    """Whether the token just chosen is the last that fits the model's context."""
    return 0 < limits.max_seq_len <= row.seq.seq_len + 1


def at_hard_ceiling(row: ActiveSeq, limits: Limits) -> bool:
    """No budget or no context is left: nothing may hold the row open."""
    return row.remaining == 0 or at_context_end(row, limits)
