"""Which row makes room when a decode runs out of KV blocks, and which when a new request needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from batchgen.scheduler.snapshots import VictimRow


class Route(StrEnum):
    SPILL = "spill"
    REQUEUE = "requeue"


@dataclass(frozen=True, slots=True)
class Park:
    """Park the row at `index`. A spill that fails becomes a requeue."""

    index: int
    route: Route


def choose_decode_victim(rows: Sequence[VictimRow], can_spill: bool) -> Park | None:
    """The row with the least generated, the lower KV slot on a tie; None: no row may be parked.

    Constrained rows never are: what their grammar has seen is in neither store. Rows that came back a short while ago
    (fewer outputs than `immune_until`) only where there is no other.
    """
    eligible = [index for index, row in enumerate(rows) if not row.constrained]
    if not eligible:
        return None
    mature = [index for index in eligible if rows[index].outputs >= rows[index].immune_until]
    index = min(mature or eligible, key=lambda i: (rows[i].outputs, rows[i].slot_idx))
    return Park(index, Route.SPILL if can_spill else Route.REQUEUE)


def choose_admission_victim(rows: Sequence[VictimRow]) -> int | None:
    """The row to spill for a new request: the one with the most blocks, the first on a tie. Another rule than for a
    decode on purpose: one large row makes room at once, and nothing that it has generated is lost."""
    eligible = [index for index, row in enumerate(rows) if not row.constrained]
    return max(eligible, key=lambda i: (rows[i].blocks, -i), default=None)
