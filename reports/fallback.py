"""Pictures as small tables, for the forms that hold only text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reports.levels import level, thresholds
from reports.model import Report, Table
from reports.pictures import Bars, HeatMap, PageMap, Picture, Series, SideBySide, Span
from reports.text import shorten_pair

_SHADES = "·▁▃▅█"
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 32


def number(value: float | None) -> str:
    """Three digits, as short as they go."""
    return "-" if value is None else f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e")


def _bounded(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]], limit: int) -> Table:
    if len(rows) <= limit:
        return Table(title, columns, tuple(rows))
    return Table(f"{title} ({limit} of {len(rows):,} rows)", columns, tuple(rows[:limit]))


def _chunks(width: int) -> list[range]:
    step = max(1, -(-width // _WIDTH))
    return [range(start, min(start + step, width)) for start in range(0, width, step)]


def _heat(picture: HeatMap, limit: int) -> Table:
    labels = picture.columns.labels
    chunks = _chunks(len(labels))
    rows: list[tuple[int, int, tuple[str, ...]]] = []
    sums = [
        [None if all(row[i] is None for i in chunk) else sum(row[i] or 0 for i in chunk) for chunk in chunks]
        for row in picture.cells
    ]
    starts = thresholds(max((count or 0 for line in sums for count in line), default=0))
    for index, (name, row, line) in enumerate(zip(picture.rows.labels, picture.cells, sums, strict=True)):
        shades = "".join(" " if count is None else _SHADES[level(count, starts)] for count in line)
        total = sum(count or 0 for count in row)
        first = next((labels[i] for i, count in enumerate(row) if count), "-")
        rank = 0 if picture.marked is not None and picture.marked[0] == index else 1 if total else 2
        rows.append((rank, index, (name, shades, f"{total:,}", first)))
    kept = sorted(sorted(rows)[:limit], key=lambda item: item[1])
    across = f"{picture.columns.title} {labels[0]} to {labels[-1]}" if labels else picture.columns.title
    title = picture.title if len(kept) == len(rows) else f"{picture.title} ({len(kept)} of {len(rows)} rows)"
    columns = (picture.rows.title, across, picture.value, "first at")
    return Table(title, columns, tuple(cells for _, _, cells in kept))


def _spark(spans: Sequence[Span], *, logarithmic: bool) -> str:
    """One glyph a span, by its highest value; on a logarithmic scale the lowest is kept for 0."""

    def scaled(value: float) -> float | None:
        return value if not logarithmic else math.log10(value) if value > 0 else None

    values = [scaled(span.high) for span in spans if span.high is not None]
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    low = low - (high - low) / 7 if logarithmic else min(low, 0.0)
    out = ""
    for span in spans:
        value = None if span.high is None else scaled(span.high)
        share = (value - low) / (high - low) if value is not None and high > low else 0.0
        out += "∞" if span.infinite else " " if span.high is None else _BARS[round(share * 7)]
    return out


def _series(picture: Series, limit: int) -> Table:
    rows: list[tuple[str, ...]] = []
    for line in picture.lines:
        shown = [span for span in line.spans if span.high is not None]
        high = max((span.high for span in shown if span.high is not None), default=None)
        low = min((span.low for span in shown if span.low is not None), default=None)
        tops = [
            max(
                (line.spans[i] for i in chunk),
                key=lambda span: (span.infinite > 0, span.high is not None, span.high or 0.0),
            )
            for chunk in _chunks(len(line.spans))
        ]
        spark = _spark(tops, logarithmic=picture.logarithmic)
        infinite = sum(span.infinite for span in line.spans)
        rows.append(
            (line.name, spark, number(low), number(high) + (f", {infinite} not finite" if infinite else ""))
        )
    if picture.band is not None:
        rows.append((picture.band.name, "", number(picture.band.low), number(picture.band.high)))
    labels = picture.x.labels
    across = f"{picture.x.title} {labels[0]} to {labels[-1]}" if labels else picture.x.title
    return _bounded(f"{picture.title}: {picture.y}", ("", across, "lowest", "highest"), rows, limit)


def page_rows(picture: PageMap) -> list[tuple[str, ...]]:
    """Exact numbers of pages by owner, a column a frame; free and shared ones last."""
    rows = [
        (owner, *(f"{frame.counts[index]:,}" for frame in picture.frames))
        for index, owner in enumerate(picture.owners)
    ]
    rows.append(("(free)", *(f"{frame.free:,}" for frame in picture.frames)))
    if any(frame.shared for frame in picture.frames):
        rows.append(("(owned twice)", *(f"{frame.shared:,}" for frame in picture.frames)))
    return rows


def _pages(picture: PageMap, limit: int) -> Table:
    title = f"{picture.title}: {picture.pages:,} pages"
    if picture.marked is not None:
        title += f", page {picture.marked}: {picture.note}" if picture.note else f", page {picture.marked}"
    columns = ("owner", *(frame.name for frame in picture.frames))
    return _bounded(title, columns, page_rows(picture), limit)


def _sides(picture: SideBySide, limit: int) -> Table:
    rows: list[tuple[str, ...]] = []
    for row in picture.rows:
        if row.differs:
            absent = "(absent)"
            left, right = (absent if text is None else text for text in (row.left, row.right))
            rows.append((row.path, *shorten_pair(left, right, 60)))
    title = f"{picture.title}: {picture.differing:,} of {picture.total:,} fields differ"
    return _bounded(title, ("field", *picture.sides), rows, limit)


def _bars(picture: Bars, limit: int) -> Table:
    columns = ("", *(f"{part} {picture.unit}" for part in picture.parts), f"all {picture.unit}")
    rows = [(row.name, *(f"{v:.1f}" for v in row.values), f"{sum(row.values):.1f}") for row in picture.rows]
    return _bounded(picture.title, columns, rows, limit)


def as_table(picture: Picture, limit: int = 8) -> Table:
    """At most `limit` rows: those that differ before those that do not."""
    match picture:
        case HeatMap():
            return _heat(picture, limit)
        case Series():
            return _series(picture, limit)
        case PageMap():
            return _pages(picture, limit)
        case SideBySide():
            return _sides(picture, limit)
        case Bars():
            return _bars(picture, limit)


def pictures_of(report: Report) -> tuple[Picture, ...]:
    """Those that a text needs: not the ones that draw a table of the same title, nor a map on which nothing is."""
    titles = {table.title for table in report.tables}
    return tuple(
        picture
        for picture in report.pictures
        if picture.title not in titles
        and not (isinstance(picture, HeatMap) and not any(count for row in picture.cells for count in row))
    )


def prose(report: Report) -> tuple[Table, ...]:
    """Tables of one column: sentences, which belong beside the first finding."""
    return tuple(table for table in report.tables if len(table.columns) == 1)
