"""One member of a Protocol, with its evidence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """One member of a Protocol. `evidence` says how its type is known, `used_by` cites `method:line`."""

    name: str
    text: str
    written: bool
    lazy: bool
    evidence: str
    used_by: tuple[str, ...]
