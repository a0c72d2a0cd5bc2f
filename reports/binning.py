"""Makes pictures from data of any size: what does not fit is put together in bins, with exact counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from reports.pictures import (
    FREE,
    MAX_CELLS,
    MAX_COLUMNS,
    MAX_OWNERS,
    MAX_PAIRS,
    MAX_ROWS,
    MIXED,
    SHARED,
    Axis,
    Band,
    Frame,
    HeatMap,
    Line,
    PageMap,
    Pair,
    Series,
    SideBySide,
    Span,
    is_finite,
)
from reports.text import shorten, shorten_pair


def axis(title: str, items: int | Sequence[str], limit: int, first: int = 0) -> Axis:
    """Bins of equal size, at most `limit`. `items`: their names, or how many there are, numbered from `first`."""
    names = [str(first + i) for i in range(items)] if isinstance(items, int) else list(items)
    per_bin = max(1, -(-len(names) // limit))
    labels = []
    for start in range(0, len(names), per_bin):
        end = min(start + per_bin, len(names)) - 1
        labels.append(names[start] if start == end else f"{names[start]}–{names[end]}")
    return Axis(title, tuple(labels), len(names), per_bin)


def heat_map(
    title: str,
    value: str,
    rows: tuple[str, int | Sequence[str]],
    columns: tuple[str, int | Sequence[str]],
    cells: Mapping[tuple[int, int], int] | Iterable[tuple[tuple[int, int], int]],
    *,
    marked: tuple[int, int] | None = None,
    note: str = "",
    compared: Iterable[tuple[int, int]] | None = None,
) -> HeatMap:
    """`rows` and `columns` are (title, names or number); `cells` count by (row, column), those equal may be left out.

    `compared` lists the cells that were looked at; all of them if it is not given. A cell with a count was.
    """
    down, across = axis(*rows, MAX_ROWS), axis(*columns, MAX_COLUMNS)
    start = 0 if compared is None else None
    grid: list[list[int | None]] = [[start] * len(across.labels) for _ in down.labels]
    for row, column in () if compared is None else compared:
        grid[row // down.per_bin][column // across.per_bin] = 0
    for (row, column), count in cells.items() if isinstance(cells, Mapping) else cells:
        y, x = row // down.per_bin, column // across.per_bin
        grid[y][x] = (grid[y][x] or 0) + count
    spot = None if marked is None else (marked[0] // down.per_bin, marked[1] // across.per_bin)
    if marked is not None and max(down.per_bin, across.per_bin) > 1:
        names = [
            str(at) if isinstance(of, int) else of[at]
            for at, (_, of) in zip(marked, (rows, columns), strict=True)
        ]
        note = f"{note} (at {columns[0]} {names[1]}, {rows[0]} {names[0]})".strip()
    return HeatMap(title, value, down, across, tuple(map(tuple, grid)), spot, note)


def _span(values: Sequence[float | None]) -> Span:
    known = [value for value in values if value is not None]
    finite = [value for value in known if is_finite(value)]
    if not finite:
        return Span(None, None, len(known), len(known))
    return Span(min(finite), max(finite), len(known), len(known) - len(finite))


def series(
    title: str,
    x: str,
    y: str,
    lines: Mapping[str, Sequence[float | None]],
    *,
    band: Band | None = None,
    logarithmic: bool = False,
    marked: int | None = None,
    note: str = "",
    first: int = 0,
) -> Series:
    """Each line has a value per x, None where there is none; a shorter line ends early. `marked` is an x."""
    across = axis(x, max(map(len, lines.values()), default=0), MAX_COLUMNS, first)
    starts = range(0, across.total, across.per_bin)
    drawn = tuple(
        Line(name, tuple(_span(values[start : start + across.per_bin]) for start in starts))
        for name, values in lines.items()
    )
    spot = None if marked is None else (marked - first) // across.per_bin
    if marked is not None and across.per_bin > 1:
        note = f"{note} (at {x} {marked})".strip()
    return Series(title, across, y, drawn, band, logarithmic, spot, note)


Ownership = Mapping[int, Sequence[str]]
"""Owners by page: a page that nobody owns may be left out; one with two owners is shared."""


def _natural(name: str) -> list[tuple[int, str]]:
    """b1-9 before b1-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _named(frames: Mapping[str, Ownership], marked: int | None) -> tuple[list[str], int]:
    """Who gets a colour: the owners of the marked page, then those with most pages; and how many others."""
    most: Counter[str] = Counter()
    first: dict[str, None] = {}
    for pages in frames.values():
        if marked is not None:
            first.update(dict.fromkeys(pages.get(marked, ())))
        for owners in pages.values():
            most.update(set(owners))
    for owner, _ in sorted(most.items(), key=lambda item: (-item[1], item[0])):
        first.setdefault(owner)
    names = list(first)
    if len(names) <= MAX_OWNERS:
        return sorted(names, key=_natural), 0
    return sorted(names[: MAX_OWNERS - 1], key=_natural), len(names) - (MAX_OWNERS - 1)


def _frame(
    name: str, owned: Ownership, pages: range, per_cell: int, index: Mapping[str, int], size: int
) -> Frame:
    counts, shared, taken = [0] * size, 0, 0
    cells = [FREE] * -(-len(pages) // per_cell)
    for page, owners in owned.items():
        if not owners:
            continue
        if page not in pages:
            raise ValueError(f"{name}: page {page} is not one of {pages.start} to {pages.stop - 1}")
        who = {index.get(owner, size - 1) for owner in owners}
        for owner in who:
            counts[owner] += 1
        taken += 1
        twice = len(set(owners)) > 1
        shared += twice
        cell = (page - pages.start) // per_cell
        state, before = SHARED if twice else who.pop(), cells[cell]
        cells[cell] = (
            state if before == FREE or state == SHARED else before if before in (state, SHARED) else MIXED
        )
    return Frame(name, tuple(cells), tuple(counts), len(pages) - taken, shared)


def page_map(
    title: str,
    pages: int | range,
    frames: Mapping[str, Ownership],
    *,
    marked: int | None = None,
    note: str = "",
) -> PageMap:
    """`pages`: how many there are, or which of them to show. `frames` by name, in order."""
    window = range(pages) if isinstance(pages, int) else pages
    if not isinstance(pages, int):
        frames = {name: {p: o for p, o in owned.items() if p in window} for name, owned in frames.items()}
    per_cell = max(1, -(-len(window) // MAX_CELLS))
    names, others = _named(frames, marked)
    labels = (*names, f"{others:,} others") if others else tuple(names)
    index = {name: position for position, name in enumerate(names)}
    drawn = tuple(_frame(name, owned, window, per_cell, index, len(labels)) for name, owned in frames.items())
    return PageMap(title, len(window), per_cell, labels, drawn, marked, note, window.start)


def neighbours(page: int, pages: int, width: int = 256) -> range:
    """The pages around `page`, `width` of them: what a map of a large pool shows page by page."""
    start = max(0, min(page - width // 2, pages - width))
    return range(start, min(start + width, pages))


def _pair(path: str, left: str | None, right: str | None, width: int) -> Pair:
    if left is not None and right is not None:
        return Pair(path, *shorten_pair(left, right, width), left != right)
    short = [None if text is None else shorten(text, width) for text in (left, right)]
    return Pair(path, short[0], short[1], left != right)


def side_by_side(
    title: str,
    sides: tuple[str, str],
    rows: Sequence[tuple[str, str | None, str | None]],
    *,
    limit: int = MAX_PAIRS,
    width: int = 2000,
) -> SideBySide:
    """`rows` are (field path, left, right). Too many: those that differ come first in line for a place.

    Values longer than `width` are cut around their first difference.
    """
    differs = [left != right for _, left, right in rows]
    ranked = sorted(range(len(rows)), key=lambda i: not differs[i])[:limit]
    kept = tuple(_pair(*rows[i], width) for i in sorted(ranked))
    return SideBySide(title, sides, kept, len(rows), sum(differs))
