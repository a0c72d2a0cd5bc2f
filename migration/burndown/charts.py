"""The charts of the page as numbers: one panel a measure, its curves as paths, gaps where nothing could be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migration.burndown.rows import POINTS, Row, thin
from migration.burndown.table import day
from reports.html.scale import Scale, scale

WIDTH, HEIGHT = 352, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 14, 26

Value = Callable[[Row], int | None]


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Curve:
    """`path` breaks off where a commit could not be read. `first` and `last` are the values at its ends."""

    name: str
    path: str
    points: tuple[Point, ...]
    first: int
    last: int

    @property
    def change(self) -> str:
        """From the first value to the last, in words."""
        return f"{self.first:,} → {self.last:,}" if self.first != self.last else f"{self.last:,} throughout"


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class Panel:
    title: str
    says: str
    curves: tuple[Curve, ...]
    ticks: tuple[Tick, ...]
    days: tuple[Tick, ...]
    faults: tuple[float, ...]


def _monolith(name: str) -> Value:
    def value(row: Row) -> int | None:
        if row.monolith is not None:
            return int(getattr(row.monolith, name))
        return None if row.faults else 0

    return value


def _handlers(name: str) -> Value:
    return lambda row: int(getattr(row, name)) if row.whole else None


_PANELS: tuple[tuple[str, str, tuple[tuple[str, Value], ...]], ...] = (
    (
        "Lines left",
        "of the file and of the class in it",
        (("file", _monolith("lines")), ("class", _monolith("class_lines"))),
    ),
    ("Methods", "that the class itself has", (("methods", _monolith("methods")),)),
    ("Asking for attributes", "hasattr and getattr calls on self", (("calls", _monolith("asks")),)),
    ("Handlers", "lines of the modules that took over", (("lines", _handlers("handler_lines")),)),
    ("Protocol width", "members of the handlers' Protocols", (("members", _handlers("width")),)),
    ("Open gates", "methods whose legacy body stands behind a gate", (("methods", _monolith("gated")),)),
)


def panels(rows: Sequence[Row]) -> tuple[Panel, ...]:
    """All panels, over the same commits at equal distances; at most `POINTS` of them."""
    drawn = thin(rows, POINTS)
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(drawn) - 1)
    # A single commit stands in the middle.
    first = _LEFT if len(drawn) > 1 else (_LEFT + WIDTH - _RIGHT) / 2
    xs = [round(first + index * step, 1) for index in range(len(drawn))]
    return tuple(_panel(title, says, lines, drawn, xs) for title, says, lines in _PANELS)


def _panel(
    title: str, says: str, lines: Sequence[tuple[str, Value]], rows: Sequence[Row], xs: Sequence[float]
) -> Panel:
    values = [[value(row) for row in rows] for _, value in lines]
    known = [float(number) for line in values for number in line if number is not None]
    axis = scale(known, _TOP, HEIGHT - _BOTTOM, logarithmic=False)
    curves = tuple(
        _curve(name, numbers, rows, xs, axis) for (name, _), numbers in zip(lines, values, strict=True)
    )
    ends = (0, len(rows) - 1) if len(rows) > 1 else (0,)
    return Panel(
        title,
        says,
        curves,
        tuple(Tick(axis.at(tick), f"{tick:,.0f}") for tick in axis.ticks if tick == int(tick)),
        tuple(Tick(xs[end], day(rows[end].commit.time)) for end in ends),
        tuple(x for x, row in zip(xs, rows, strict=True) if not row.whole),
    )


def _curve(
    name: str, numbers: Sequence[int | None], rows: Sequence[Row], xs: Sequence[float], axis: Scale
) -> Curve:
    path, points, broken = [], [], True
    for x, row, number in zip(xs, rows, numbers, strict=True):
        if number is None:
            broken = True
            continue
        y = axis.at(number)
        path.append(f"{'M' if broken else 'L'}{x:g} {y:g}")
        text = f"{number:,} {name}, {row.commit.id[:7]} of {day(row.commit.time)}: {row.commit.subject}"
        points.append(Point(x, y, text))
        broken = False
    known = [number for number in numbers if number is not None]
    return Curve(name, "".join(path), tuple(points), known[0] if known else 0, known[-1] if known else 0)
