"""What differs between the two sides by intent, and so must not count as a difference."""

from __future__ import annotations

from dataclasses import dataclass

from shadow.observation import Kind


@dataclass(frozen=True)
class Pairing:
    """A class of pairs of sides. `same` is the strictest: both do the same on the same machine.

    `pages_renamed`: pages may have other numbers, but one name on one side is one name on the other.
    `rows_reordered`: rows may come in another order. `ignored`: fields by (kind, name) that differ by intent,
    `ignored_kinds`: kinds of which every field does.
    """

    name: str
    pages_renamed: bool = False
    rows_reordered: bool = False
    ignored: frozenset[tuple[Kind, str]] = frozenset()
    ignored_kinds: frozenset[Kind] = frozenset()

    def ignores(self, kind: Kind, field: str) -> bool:
        return kind in self.ignored_kinds or (kind, field) in self.ignored


SAME = Pairing("same")
_NUMBERED = ("global_idx", "local_idx", "pool_slot", "pool_slot_index", "_buffer_slot", "uuid")
BATCH_ORDER = Pairing(
    "batch-order",
    pages_renamed=True,
    rows_reordered=True,
    # what a request is numbered by, and when it came
    ignored=frozenset((Kind.SEQUENCE, name) for name in _NUMBERED),
)
BUCKET = Pairing(
    "bucket",  # other buckets, or no static buffers: bit-equal where the engine is `row_exact`
    ignored_kinds=frozenset((Kind.LAUNCH, Kind.PLAN)),
    ignored=frozenset(
        (Kind.RESULT, f"stats.{name}")
        for name in ("graph_captures", "graph_steps", "eager_steps", "graph_ok", "graph_disabled")
    ),
)
THREADS = Pairing("threads")
DTYPE = Pairing(
    "dtype",  # what is computed differs, what is decided does not: tokens are forced where they part
    ignored_kinds=frozenset((Kind.TOKENS, Kind.LOGITS, Kind.KV, Kind.HOST_KV, Kind.STATE)),
)
PAIRINGS = {pairing.name: pairing for pairing in (SAME, BATCH_ORDER, BUCKET, THREADS, DTYPE)}


class Renaming:
    """Which page of the candidate is which of the legacy, by pool; grows as pages are seen together.

    One for each event: between events pages change hands.
    """

    def __init__(self) -> None:
        self._theirs: dict[tuple[str, int], int] = {}
        self._ours: dict[tuple[str, int], int] = {}

    def agrees(self, pool: str, ours: int, theirs: int) -> bool:
        """Whether the two may be the same page; False once either was seen beside another one."""
        mine = self._theirs.setdefault((pool, ours), theirs)
        other = self._ours.setdefault((pool, theirs), ours)
        return mine == theirs and other == ours
