"""The one error that loading a model raises."""

from __future__ import annotations

__all__ = ["ModelLoadError"]


class ModelLoadError(RuntimeError):
    """One line: what could not be loaded, where, why, and what to do."""
