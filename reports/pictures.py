"""Pictures of a report: a closed union of frozen values, text and numbers only.

Each has a bound that its constructor enforces, so that a report of any run stays small; `reports.binning` makes
them from data of any size. What was put together keeps exact counts, and says how many items a bin holds.
"""

from __future__ import annotations

import math

from msgspec import Struct

MAX_ROWS, MAX_COLUMNS, MAX_LINES = 96, 96, 8
MAX_CELLS, MAX_FRAMES, MAX_OWNERS = 1024, 4, 13
MAX_PAIRS, MAX_BARS = 200, 20

LARGEST = 1e300
"""Beyond this a number counts as infinite: no axis could be laid out for it."""

FREE, MIXED, SHARED = -1, -2, -3
"""What a cell of a page map shows in place of an owner: nobody's, pages of several, one page that several own."""


def is_finite(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= LARGEST


def _refuse(wrong: bool, what: str) -> None:
    if wrong:
        raise ValueError(what)


class Axis(Struct, frozen=True):
    """`labels` name the bins, first to last; each holds `per_bin` of the `total` items, the last what is left."""

    title: str
    labels: tuple[str, ...]
    total: int
    per_bin: int = 1

    def __post_init__(self) -> None:
        needed = -(-self.total // max(1, self.per_bin))
        _refuse(
            self.per_bin < 1 or needed != len(self.labels),
            f"axis {self.title!r}: {len(self.labels)} labels for {self.total} items by {self.per_bin}",
        )


class HeatMap(Struct, frozen=True, tag="heat_map", tag_field="picture"):
    """How many values differ, rows by columns; `None` where nothing was compared. `value` says what is counted."""

    title: str
    value: str
    rows: Axis
    columns: Axis
    cells: tuple[tuple[int | None, ...], ...]
    marked: tuple[int, int] | None = None  # row, column
    note: str = ""  # what is marked

    def __post_init__(self) -> None:
        height, width = len(self.rows.labels), len(self.columns.labels)
        _refuse(
            height > MAX_ROWS or width > MAX_COLUMNS, f"heat map {self.title!r}: {height} x {width} cells"
        )
        ragged = len(self.cells) != height or any(len(row) != width for row in self.cells)
        _refuse(ragged, f"heat map {self.title!r}: cells are not {height} x {width}")
        counts = [count for row in self.cells for count in row if count is not None]
        _refuse(any(count < 0 for count in counts), f"heat map {self.title!r}: a count below 0")
        if self.marked is not None:
            row, column = self.marked
            inside = 0 <= row < height and 0 <= column < width
            _refuse(not inside, f"heat map {self.title!r}: marks ({row}, {column})")


class Span(Struct, frozen=True):
    """The `count` values of one bin: the finite ones lie from `low` to `high`; `infinite` counts the others."""

    low: float | None
    high: float | None
    count: int
    infinite: int = 0

    def __post_init__(self) -> None:
        for value in (self.low, self.high):
            infinite = value is not None and not is_finite(value)
            _refuse(infinite, f"span with {value}: count it as infinite")
        finite = self.count > self.infinite
        shown = self.low is not None and self.high is not None
        _refuse(finite != shown or self.infinite > self.count, "span: counts and limits do not agree")


class Line(Struct, frozen=True):
    name: str
    spans: tuple[Span, ...]


class Band(Struct, frozen=True):
    """What is no news: from `low` to `high` of the y axis, and where that comes from."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        _refuse(
            not (is_finite(self.low) and is_finite(self.high) and self.low <= self.high),
            f"band {self.name!r}",
        )


class Series(Struct, frozen=True, tag="series", tag_field="picture"):
    """Lines over one x axis, with the band of what is to be expected, and one marked bin of x."""

    title: str
    x: Axis
    y: str
    lines: tuple[Line, ...]
    band: Band | None = None
    logarithmic: bool = False
    marked: int | None = None
    note: str = ""

    def __post_init__(self) -> None:
        width = len(self.x.labels)
        _refuse(width > MAX_COLUMNS, f"series {self.title!r}: {width} bins")
        _refuse(len(self.lines) > MAX_LINES, f"series {self.title!r}: {len(self.lines)} lines")
        ragged = any(len(line.spans) != width for line in self.lines)
        _refuse(ragged, f"series {self.title!r}: a line has not {width} spans")
        outside = self.marked is not None and not 0 <= self.marked < width
        _refuse(outside, f"series {self.title!r}: marks {self.marked}")


class Frame(Struct, frozen=True):
    """One moment of the pages: per cell the owner of all its owned pages by index, or FREE, MIXED, SHARED.

    `counts` are exact numbers of pages, by owner.
    """

    name: str
    cells: tuple[int, ...]
    counts: tuple[int, ...]
    free: int
    shared: int = 0


class PageMap(Struct, frozen=True, tag="page_map", tag_field="picture"):
    """Who owns which of `pages` pages from `first` on, `per_cell` of them a cell, in some frames (before, after)."""

    title: str
    pages: int
    per_cell: int
    owners: tuple[str, ...]
    frames: tuple[Frame, ...]
    marked: int | None = None  # a page, not a cell
    note: str = ""
    first: int = 0

    def __post_init__(self) -> None:
        size = -(-self.pages // max(1, self.per_cell))
        _refuse(self.per_cell < 1 or size > MAX_CELLS, f"page map {self.title!r}: {size} cells")
        _refuse(len(self.frames) > MAX_FRAMES, f"page map {self.title!r}: {len(self.frames)} frames")
        _refuse(len(self.owners) > MAX_OWNERS, f"page map {self.title!r}: {len(self.owners)} owners")
        for frame in self.frames:
            _refuse(len(frame.cells) != size, f"page map {self.title!r}: {frame.name!r} has not {size} cells")
            _refuse(
                len(frame.counts) != len(self.owners)
                or any(not SHARED <= cell < len(self.owners) for cell in frame.cells),
                f"page map {self.title!r}: {frame.name!r} names other owners than {len(self.owners)}",
            )
        outside = self.marked is not None and not 0 <= self.marked - self.first < self.pages
        _refuse(outside, f"page map {self.title!r}: marks page {self.marked}")


class Pair(Struct, frozen=True):
    """One field on both sides; None where a side has no such field."""

    path: str
    left: str | None
    right: str | None
    differs: bool


class SideBySide(Struct, frozen=True, tag="side_by_side", tag_field="picture"):
    """Two values field by field. `rows` may hold fewer than the `total` fields, of which `differing` differ."""

    title: str
    sides: tuple[str, str]
    rows: tuple[Pair, ...]
    total: int
    differing: int

    def __post_init__(self) -> None:
        _refuse(len(self.rows) > MAX_PAIRS, f"side by side {self.title!r}: {len(self.rows)} rows")
        listed = sum(row.differs for row in self.rows)
        wrong = self.total < len(self.rows) or not listed <= self.differing <= self.total
        _refuse(wrong, f"side by side {self.title!r}: counts below the rows listed")


class Bar(Struct, frozen=True):
    name: str
    values: tuple[float, ...]


class Bars(Struct, frozen=True, tag="bars", tag_field="picture"):
    """Stacked bars, one a row; `parts` name the values of each."""

    title: str
    unit: str
    parts: tuple[str, ...]
    rows: tuple[Bar, ...]

    def __post_init__(self) -> None:
        _refuse(len(self.rows) > MAX_BARS, f"bars {self.title!r}: {len(self.rows)} rows")
        _refuse(len(self.parts) > MAX_LINES, f"bars {self.title!r}: {len(self.parts)} parts")
        for row in self.rows:
            _refuse(len(row.values) != len(self.parts), f"bars {self.title!r}: {row.name!r} is ragged")
            good = all(is_finite(value) and value >= 0 for value in row.values)
            _refuse(not good, f"bars {self.title!r}: {row.name!r} has a value that no bar can show")


Picture = HeatMap | Series | PageMap | SideBySide | Bars
