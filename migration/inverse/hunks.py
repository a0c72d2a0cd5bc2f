"""Differences of two texts as hunks that can be applied again, also when the text around them has moved."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Hunk:
    """Between the line `before` and the line `after` (None at either end) `old` becomes `new`."""

    line: int
    before: str | None
    old: tuple[str, ...]
    new: tuple[str, ...]
    after: str | None


def difference(old: Sequence[str], new: Sequence[str]) -> tuple[Hunk, ...]:
    """What has to be done to `old` to make it `new`."""
    found: list[Hunk] = []
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    middle, other = old[head : len(old) - tail], new[head : len(new) - tail]
    matcher = difflib.SequenceMatcher(None, middle, other, autojunk=False)
    for kind, *bounds in matcher.get_opcodes():
        if kind != "equal":
            start, end, new_start, new_end = (bound + head for bound in bounds)
            before = old[start - 1] if start else None
            after = old[end] if end < len(old) else None
            found.append(Hunk(start, before, tuple(old[start:end]), tuple(new[new_start:new_end]), after))
    return tuple(found)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines two texts share at their start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def apply(lines: Sequence[str], hunks: Sequence[Hunk]) -> tuple[list[str], tuple[Hunk, ...]]:
    """The lines with the hunks applied, and the hunks for which no unique place was found."""
    result: list[str] = []
    position = shift = 0
    lost: list[Hunk] = []
    for hunk in hunks:
        place = _place(lines, hunk, hunk.line + shift, position)
        if place is None:
            lost.append(hunk)
            continue
        shift = place - hunk.line
        result += lines[position:place]
        result += hunk.new
        position = place + len(hunk.old)
    return [*result, *lines[position:]], tuple(lost)


def _place(lines: Sequence[str], hunk: Hunk, expected: int, first: int) -> int | None:
    if expected >= first and _fits(lines, hunk, expected):
        return expected
    found = [at for at in range(first, len(lines) - len(hunk.old) + 1) if _fits(lines, hunk, at)]
    return found[0] if len(found) == 1 else None


def _fits(lines: Sequence[str], hunk: Hunk, at: int) -> bool:
    end = at + len(hunk.old)
    return (
        tuple(lines[at:end]) == hunk.old
        and (lines[at - 1] if at else None) == hunk.before
        and (lines[end] if end < len(lines) else None) == hunk.after
    )


def text_lines(data: bytes) -> list[str]:
    """Lines with their ends, of which only \\n is one; latin-1 maps every byte to itself."""
    parts = data.decode("latin-1").split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def text_bytes(lines: Sequence[str]) -> bytes:
    return "".join(lines).encode("latin-1")
