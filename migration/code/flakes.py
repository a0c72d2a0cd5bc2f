"""Undefined and unused names of a module, as pyflakes sees them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from pyflakes import checker, messages

from migration.code.source import read_source

_KINDS = (
    messages.UndefinedName,
    messages.UndefinedExport,
    messages.UndefinedLocal,
    messages.UnusedImport,
    messages.UnusedVariable,
    messages.RedefinedWhileUnused,
    messages.ImportStarUsed,
    messages.ImportShadowedByLoopVar,
)


@dataclass(frozen=True, order=True)
class Flake:
    """One finding without its position, so that moved code compares equal."""

    kind: str
    name: str


@lru_cache(maxsize=8)
def flakes(data: bytes, path: str) -> Counter[Flake]:
    """Findings of one file. The counter is shared between callers: do not change it."""
    found = checker.Checker(read_source(path, data).tree, filename=path).messages
    return Counter(Flake(type(m).__name__, str(m.message_args[0])) for m in found if isinstance(m, _KINDS))
