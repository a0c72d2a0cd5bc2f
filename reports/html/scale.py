"""The y axis of a graph: linear or logarithmic, with ticks; on a logarithmic one 0 has a lane of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Maps values to pixels between `top` and `bottom`; `floor` is where 0 lies."""

    low: float  # of the axis: a value, or its power of ten
    high: float
    top: float
    bottom: float
    floor: float
    logarithmic: bool

    def at(self, value: float) -> float:
        if self.logarithmic:
            if value <= 0:
                return self.floor
            value = math.log10(value)
        share = (value - self.low) / (self.high - self.low)
        return round(self.bottom - min(1.0, max(0.0, share)) * (self.bottom - self.top), 1)

    @property
    def ticks(self) -> tuple[float, ...]:
        """Round values along the axis, 0 of a logarithmic one included."""
        if self.logarithmic:
            powers = range(round(self.low), round(self.high) + 1)
            shown = powers[:: max(1, -(-len(powers) // 6))]
            return (0.0, *(10.0**power for power in shown))
        step = _step((self.high - self.low) / 4)
        first = math.ceil(self.low / step)
        return tuple(i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1))


def _step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next((power * factor for factor in (1, 2, 2.5, 5) if power * factor >= rough), power * 10)


def scale(values: Iterable[float], top: float, bottom: float, *, logarithmic: bool) -> Scale:
    """An axis that holds all of `values`; a linear one starts at 0 unless some are below it."""
    numbers = list(values)
    if logarithmic:
        powers = [math.log10(value) for value in numbers if value > 0] or [0.0]
        least, most = math.floor(min(powers)), math.ceil(max(powers))
        lane = 24.0
        return Scale(least, max(most, least + 1), top, bottom - lane, bottom, True)
    low, high = min(0.0, *numbers, 0.0), max(0.0, *numbers, 0.0)
    if high == low:
        high = low + 1.0
    return Scale(low, high + (high - low) * 0.05, top, bottom, bottom, False)
