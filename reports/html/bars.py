"""Draws stacked bars; the numbers stand beside them."""

from __future__ import annotations

from dataclasses import dataclass

from reports.html.heat import Label
from reports.pictures import Bars

WIDTH, ROW = 600, 30


@dataclass(frozen=True)
class Piece:
    css: str
    x: float
    y: float
    width: float


@dataclass(frozen=True)
class BarsDrawing:
    title: str
    summary: str
    width: int
    height: int
    pieces: tuple[Piece, ...]
    rows: tuple[Label, ...]
    totals: tuple[Label, ...]
    legend: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    table: tuple[tuple[str, ...], ...]
    picture: Bars
    binning: str = ""
    mark_text: str = ""


def draw_bars(picture: Bars) -> BarsDrawing:
    """The longest bar takes the width, the others their share of it."""
    totals = [sum(row.values) for row in picture.rows]
    unit = (WIDTH - 130) / (max(totals, default=0) or 1)
    pieces, names, sums = [], [], []
    for index, (row, total) in enumerate(zip(picture.rows, totals, strict=True)):
        y, x = index * (ROW + 22) + 20, 0.0
        names.append(Label(0, y - 6, row.name))
        for part, value in enumerate(row.values):
            if value:
                pieces.append(Piece(f"p{part}", round(x, 1), y, max(0.5, round(value * unit - 1, 1))))
            x += value * unit
        sums.append(Label(round(x + 8, 1), y + ROW / 2, f"{total:.1f} {picture.unit}"))
    columns = ("", *(f"{part} ({picture.unit})" for part in picture.parts), f"all ({picture.unit})")
    return BarsDrawing(
        title=picture.title,
        summary="; ".join(
            f"{row.name} {total:.1f} {picture.unit}" for row, total in zip(picture.rows, totals, strict=True)
        ),
        width=WIDTH,
        height=len(picture.rows) * (ROW + 22) + 4,
        pieces=tuple(pieces),
        rows=tuple(names),
        totals=tuple(sums),
        legend=tuple((f"p{i}", part) for i, part in enumerate(picture.parts)),
        columns=columns,
        table=tuple(
            (row.name, *(f"{value:.1f}" for value in row.values), f"{total:.1f}")
            for row, total in zip(picture.rows, totals, strict=True)
        ),
        picture=picture,
    )
