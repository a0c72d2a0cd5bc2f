"""Which input of a forward is guilty: the legacy's is transplanted into the candidate, one input at a time."""

from shadow.graft.input import Input

__all__ = ["Input"]
