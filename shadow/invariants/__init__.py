"""What must hold on one path alone, whatever the other does; see docs/invariants.md."""

from shadow.invariants.cleanup import Leftovers, PhaseCleanup
from shadow.invariants.invariant import Invariant, PlainInvariant
from shadow.invariants.lengths import ContextLength, HeldPages, SequenceMetadata
from shadow.invariants.pages import Conservation, Mirrored, NoAlias, NoDoubleFree, NoUseAfterFree, PagesExist
from shadow.invariants.reading import Coverage, Poison, WritesOwnPosition
from shadow.invariants.replay import CapturedPointers, PadRows
from shadow.invariants.slots import StateSlots
from shadow.invariants.tables import LengthIdentity, RowOrder, TrailingColumns

INVARIANTS: tuple[Invariant, ...] = (
    NoAlias(),
    PagesExist(),
    Conservation(),
    NoDoubleFree(),
    NoUseAfterFree(),
    Mirrored(),
    SequenceMetadata(),
    ContextLength(),
    HeldPages(),
    StateSlots(),
    RowOrder(),
    LengthIdentity(),
    TrailingColumns(),
    PadRows(),
    CapturedPointers(),
    Coverage(),
    WritesOwnPosition(),
    Poison(),
    PhaseCleanup(),
    Leftovers(),
)

__all__ = ["INVARIANTS", "Invariant", "PlainInvariant"]
