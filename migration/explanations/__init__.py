"""What stands behind each code: `migrate explain CODE`. One entry for each code of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Explanation:
    """What the code says, why going on would be unsafe, and how to get past it.

    `before` and `after` are the smallest example: a file that is refused with the code and what to make of
    it, or what the user sees and what to do.
    """

    what: str
    why: str
    past: str
    before: str = ""
    after: str = ""


def explanations() -> dict[str, Explanation]:
    """Every explanation by its code, in the order of the codes."""
    from migration.explanations import (
        adapters,
        checking,
        declaring,
        files,
        methods,
        planning,
        slices,
        splitting,
        tracing,
        verification,
    )

    found: dict[str, Explanation] = {}
    for module in (
        methods,
        slices,
        verification,
        files,
        splitting,
        tracing,
        adapters,
        planning,
        declaring,
        checking,
    ):
        found |= module.EXPLANATIONS
    return dict(sorted(found.items()))
