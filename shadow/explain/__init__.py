"""How a divergence came about, in plain words."""

from shadow.explain.account import Narrator
from shadow.explain.history import History, SideHistory

__all__ = ["History", "Narrator", "SideHistory"]
