"""Draws a heat map: one path per shade, so that thousands of cells stay a few kilobytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reports.levels import level, thresholds
from reports.pictures import Axis, HeatMap
from reports.text import shorten, visible


@dataclass(frozen=True)
class Label:
    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Shade:
    """Cells of one look: their path in units of cells, and what the legend says of them."""

    css: str
    path: str
    legend: str
    count: int


@dataclass(frozen=True)
class HeatDrawing:
    title: str
    summary: str
    binning: str
    width: int
    height: int
    area: Box
    cell: Box
    shades: tuple[Shade, ...]
    lines: str  # the grid between the cells, in units of cells
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    mark: Box | None
    mark_text: str
    data: dict[str, Any]
    table: tuple[tuple[str, ...], ...]
    picture: HeatMap


def runs(looks: Sequence[Sequence[str]]) -> dict[str, str]:
    """For each look the path of its cells: a stroke a run, one unit high, along the middle of its row."""
    paths: dict[str, list[str]] = {}
    for y, row in enumerate(looks):
        start = 0
        for x in range(1, len(row) + 1):
            if x == len(row) or row[x] != row[start]:
                paths.setdefault(row[start], []).append(f"M{start} {y}.5h{x - start}")
                start = x
    return {look: "".join(parts) for look, parts in paths.items()}


def grid(rows: int, columns: int) -> str:
    across = "".join(f"M0 {y}h{columns}" for y in range(1, rows))
    return across + "".join(f"M{x} 0v{rows}" for x in range(1, columns))


def binning(*axes: Axis, kept: str = "Counts are exact.") -> str:
    """What was put together, in words; empty if nothing was."""
    parts = [f"{axis.title} by {axis.per_bin} ({axis.total:,} in all)" for axis in axes if axis.per_bin > 1]
    return f"Binned: {', '.join(parts)}. {kept}" if parts else ""


def _every(size: float, wanted: float) -> int:
    return max(1, -(-int(wanted) // max(1, int(size))))


def _legend(starts: tuple[int, ...], index: int, largest: int) -> str:
    low = starts[index]
    high = starts[index + 1] - 1 if index + 1 < len(starts) else largest
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _summary(picture: HeatMap, total: int, cells: int) -> str:
    rows, columns = picture.rows, picture.columns
    size = f"{columns.title} ({columns.total:,}) by {rows.title} ({rows.total:,})"
    return f"{size}. {picture.value}: {total:,}, in {cells:,} of {len(rows.labels) * len(columns.labels):,} cells."


def _mark_text(picture: HeatMap) -> str:
    if picture.marked is None:
        return ""
    row, column = picture.marked
    where = f"{picture.columns.title} {picture.columns.labels[column]}, "
    where += f"{picture.rows.title} {picture.rows.labels[row]}"
    return f"{picture.note}: {where}" if picture.note else where


def draw_heat(picture: HeatMap) -> HeatDrawing:
    """Pixels, paths, legend, and a table that says the same in words."""
    rows, columns = picture.rows.labels, picture.columns.labels
    largest = max((count or 0 for row in picture.cells for count in row), default=0)
    starts = thresholds(largest)
    looks = [
        ["none" if count is None else f"l{level(count, starts)}" for count in row] for row in picture.cells
    ]
    legend = {"l0": "equal", "none": "not compared"}
    for index, start in enumerate(starts):
        legend[f"l{level(start, starts)}"] = _legend(starts, index, largest)
    paths = runs(looks)
    flat = [look for row in looks for look in row]
    order = ("l0", "l1", "l2", "l3", "l4", "none")
    shades = tuple(Shade(css, paths[css], legend[css], flat.count(css)) for css in order if css in paths)
    names = [shorten(visible(name), 16) for name in rows]
    left = 22 + round(6.7 * max(map(len, names), default=0))
    wide = max(9.0, min(24.0, (960 - left) // max(1, len(columns))))
    high = 20.0 if len(rows) <= 24 else 13.0 if len(rows) <= 48 else 9.0
    area = Box(left, 32, wide * len(columns), high * len(rows))
    skip, hop = _every(high, 13), _every(wide, 12 + 6.7 * max(map(len, columns), default=0))
    mark = None
    if picture.marked is not None:
        row, column = picture.marked
        mark = Box(area.x + column * wide, area.y + row * high, wide, high)
    counts = [-1 if count is None else count for line in picture.cells for count in line]
    total = sum(count for count in counts if count > 0)
    return HeatDrawing(
        title=picture.title,
        summary=_summary(picture, total, sum(count > 0 for count in counts)),
        binning=binning(picture.columns, picture.rows),
        width=round(area.x + area.width + 14),
        height=round(area.y + area.height + 38),
        area=area,
        cell=Box(0, 0, wide, high),
        shades=shades,
        lines=grid(len(rows), len(columns)) if wide > 5 else "",
        rows=tuple(
            Label(area.x - 16, area.y + (y + 0.5) * high, names[y]) for y in range(0, len(rows), skip)
        ),
        columns=tuple(
            Label(
                area.x + (x + (0.0 if picture.columns.per_bin > 1 else 0.5)) * wide,
                area.y + area.height + 14,
                shorten(visible(columns[x]), 16),
            )
            for x in range(0, len(columns), hop)
        ),
        mark=mark,
        mark_text=_mark_text(picture),
        data={
            "area": [area.x, area.y, area.width, area.height],
            "size": [len(columns), len(rows)],
            "start": None if picture.marked is None else [picture.marked[1], picture.marked[0]],
            "titles": [visible(picture.columns.title), visible(picture.rows.title)],
            "labels": [[visible(name) for name in columns], [visible(name) for name in rows]],
            "counts": counts,
        },
        table=tuple(
            (
                name,
                f"{sum(count or 0 for count in line):,}",
                next((columns[x] for x, count in enumerate(line) if count), "-"),
                str(sum(bool(count) for count in line)),
            )
            for name, line in zip(rows, picture.cells, strict=True)
        ),
        picture=picture,
    )
