"""What must hold on one path alone, whatever the other does."""

from shadow.invariants.invariant import Invariant, PlainInvariant
from shadow.invariants.pages import NoAlias

INVARIANTS: tuple[Invariant, ...] = (NoAlias(),)

__all__ = ["INVARIANTS", "Invariant", "PlainInvariant"]
