"""Draws a series: per bin the range of its values, a band of what is expected, the marked place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reports.fallback import number
from reports.html.heat import Box, Label, binning
from reports.html.scale import Scale, scale
from reports.pictures import Line, Series, Span
from reports.text import shorten, visible

WIDTH, HEIGHT = 920, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 16, 30, 44


@dataclass(frozen=True)
class Curve:
    """`area` spans from the lowest to the highest value of each bin; `points` are drawn where there is room."""

    css: str
    name: str
    path: str
    area: str
    points: str
    infinite: str
    range: str


@dataclass(frozen=True)
class GraphDrawing:
    title: str
    summary: str
    binning: str
    width: int
    height: int
    area: Box
    ticks: tuple[Label, ...]
    columns: tuple[Label, ...]
    band: Box | None
    curves: tuple[Curve, ...]
    mark: float | None
    mark_text: str
    mark_at_end: bool
    data: dict[str, Any]
    table: tuple[tuple[str, ...], ...]
    picture: Series


def _stretches(spans: Sequence[Span]) -> list[list[int]]:
    """Indices of neighbouring bins that have a finite value."""
    out: list[list[int]] = []
    for index, span in enumerate(spans):
        if span.high is None:
            continue
        if out and out[-1][-1] == index - 1:
            out[-1].append(index)
        else:
            out.append([index])
    return out


def _marker(kind: int, x: float, y: float) -> str:
    """Another shape for each line, so that colour is not alone."""
    shapes = ("m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0", "m-3-3h6v6h-6z", "m0-4l4 7h-8z", "m0-4l4 4l-4 4l-4-4z")
    return f"M{x:g} {y:g}{shapes[kind % len(shapes)]}"


def _curve(line: Line, index: int, xs: Sequence[float], y: Scale, top: float) -> Curve:
    path, area = [], []
    for stretch in _stretches(line.spans):
        high = [(xs[i], y.at(line.spans[i].high or 0.0)) for i in stretch]
        low = [(xs[i], y.at(line.spans[i].low or 0.0)) for i in stretch]
        path.append("M" + "L".join(f"{px:g} {py:g}" for px, py in high))
        if high != low:
            area.append("M" + "L".join(f"{px:g} {py:g}" for px, py in high + low[::-1]) + "z")
    some = [(i, span) for i, span in enumerate(line.spans) if span.high is not None]
    roomy = len(xs) <= 48
    shown = some if roomy else some[:: max(1, len(some) // 12)]
    infinite = "".join(_marker(2, xs[i], top - 8) for i, span in enumerate(line.spans) if span.infinite)
    low_end = min((span.low for _, span in some if span.low is not None), default=None)
    high_end = max((span.high for _, span in some if span.high is not None), default=None)
    return Curve(
        f"c{index}",
        line.name,
        "".join(path),
        "".join(area),
        "".join(_marker(index, xs[i], y.at(span.high or 0.0)) for i, span in shown),
        infinite,
        f"{number(low_end)} to {number(high_end)}",
    )


def _reading(picture: Series, index: int) -> str:
    parts = []
    for line in picture.lines:
        span = line.spans[index]
        if not span.count:
            continue
        text = number(span.high) if span.low == span.high else f"{number(span.low)} to {number(span.high)}"
        if span.infinite:
            text = f"{text}, {span.infinite} not finite" if span.high is not None else "not finite"
        parts.append(f"{visible(line.name)} {text}")
    return f"{visible(picture.x.title)} {visible(picture.x.labels[index])}: {'; '.join(parts) or 'nothing'}"


def _table(picture: Series, curves: Sequence[Curve]) -> tuple[tuple[str, ...], ...]:
    rows = []
    for line, curve in zip(picture.lines, curves, strict=True):
        count, infinite = sum(s.count for s in line.spans), sum(s.infinite for s in line.spans)
        over = "-"
        if picture.band is not None:
            limit = picture.band.high
            above = [i for i, s in enumerate(line.spans) if s.infinite or (s.high or 0.0) > limit]
            over = f"first at {picture.x.labels[above[0]]}" if above else "never"
        rows.append((line.name, f"{count:,}", curve.range, f"{infinite:,}", over))
    return tuple(rows)


def draw_graph(picture: Series) -> GraphDrawing:
    """Pixels and paths, what each bin says when pointed at, and a table of the same."""
    count = len(picture.x.labels)
    area = Box(_LEFT, _TOP, WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM)
    step = area.width / max(1, count)
    xs = [round(area.x + (i + 0.5) * step, 1) for i in range(count)]
    values = [v for line in picture.lines for s in line.spans for v in (s.low, s.high) if v is not None]
    if picture.band is not None:
        values += [picture.band.low, picture.band.high]
    y = scale(values, _TOP + 14, _TOP + area.height, logarithmic=picture.logarithmic)
    curves = tuple(_curve(line, i, xs, y, _TOP + 14) for i, line in enumerate(picture.lines))
    band = None
    if picture.band is not None:
        top, bottom = y.at(picture.band.high), y.at(picture.band.low)
        band = Box(area.x, top, area.width, max(1.5, bottom - top))
    hop = max(1, -(-int(12 + 6.7 * max(map(len, picture.x.labels), default=0)) // max(1, int(step))))
    mark = None if picture.marked is None else xs[picture.marked]
    mark_text = ""
    if picture.marked is not None:
        where = f"{picture.x.title} {picture.x.labels[picture.marked]}"
        mark_text = f"{picture.note}: {where}" if picture.note else where
    return GraphDrawing(
        title=picture.title,
        summary=f"{picture.y} by {picture.x.title}: "
        + "; ".join(f"{curve.name} {curve.range}" for curve in curves)
        + (f"; {picture.band.name}: up to {number(picture.band.high)}." if picture.band else "."),
        binning=binning(
            picture.x, kept="Lines show the highest value of a bin, areas reach down to the lowest."
        ),
        width=WIDTH,
        height=HEIGHT,
        area=area,
        ticks=tuple(Label(area.x - 8, y.at(tick), number(tick)) for tick in y.ticks),
        columns=tuple(
            Label(
                xs[i] - (step / 2 if picture.x.per_bin > 1 else 0.0),
                area.y + area.height + 16,
                shorten(visible(picture.x.labels[i]), 16),
            )
            for i in range(0, count, hop)
        ),
        band=band,
        curves=curves,
        mark=mark,
        mark_text=mark_text,
        mark_at_end=mark is not None and mark > area.x + area.width / 2,
        data={
            "area": [area.x, area.y, area.width, area.height],
            "size": [count, 1],
            "start": None if picture.marked is None else [picture.marked, 0],
            "texts": [_reading(picture, i) for i in range(count)],
        },
        table=_table(picture, curves),
        picture=picture,
    )
