"""Blocks of integers [rows, events], written row by row in whichever way takes the fewest bits.

Most rows never change and many grow by one an event: those take a first value and a slope, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shadow.record.packing import pack, pack_steps, unpack, unpack_steps

LINE, RAW, DELTA, CURVE = range(4)
"""first + slope * event; the integers as they are; their differences; the differences of those."""


@dataclass(frozen=True)
class PackedMatrix:
    modes: bytes
    first: bytes
    slope: bytes
    rest: bytes


def _bits(rows: np.ndarray) -> np.ndarray:
    """float64 [rows]: about how many bits the integers take once compressed."""
    return np.log2(1.0 + np.abs(rows.astype(np.float64))).sum(axis=1)


def pack_matrix(matrix: np.ndarray, order: np.ndarray) -> PackedMatrix:
    """int64 [rows, events], one event at least. `order` permutes the rows so that alike ones are neighbours."""
    rows, events = matrix.shape
    slope = np.zeros(rows, np.int64)
    modes = np.zeros(rows, np.uint8)
    rest: list[np.ndarray] = []
    if events > 1:
        delta = np.diff(matrix, axis=1)
        slope = delta[:, 0].copy()
        curve = np.diff(delta, axis=1)
        bent = np.flatnonzero(curve.any(axis=1))
        costs = np.stack([_bits(matrix[bent, 1:]), _bits(delta[bent]), _bits(curve[bent])])
        modes[bent] = RAW + costs.argmin(axis=0)
        slope[(modes == RAW) | (modes == DELTA)] = 0
        rest = [matrix[modes == RAW, 1:], delta[modes == DELTA], curve[modes == CURVE]]
    flat = np.concatenate([part.ravel() for part in rest]) if rest else np.zeros(0, np.int64)
    return PackedMatrix(modes.tobytes(), pack_steps(matrix[order, 0]), pack_steps(slope[order]), pack(flat))


def unpack_matrix(packed: PackedMatrix, order: np.ndarray, events: int) -> np.ndarray:
    """int64 [rows, events]. ValueError for what `pack_matrix` does not write."""
    rows = len(order)
    modes = np.frombuffer(packed.modes, np.uint8)
    if len(modes) != rows or events < 1:
        raise ValueError(f"{len(modes)} modes for {rows} rows of {events} events")
    first, slope = np.empty(rows, np.int64), np.empty(rows, np.int64)
    first[order], slope[order] = unpack_steps(packed.first, rows), unpack_steps(packed.slope, rows)
    matrix = slope[:, None] * np.arange(events, dtype=np.int64)
    matrix += first[:, None]
    raw, delta, curve = (np.flatnonzero(modes == mode) for mode in (RAW, DELTA, CURVE))
    cuts = np.cumsum([len(raw) * (events - 1), len(delta) * (events - 1), len(curve) * max(0, events - 2)])
    flat = unpack(packed.rest, int(cuts[-1]))
    if len(raw):
        matrix[raw, 1:] = flat[: cuts[0]].reshape(len(raw), -1)
    if len(delta):
        steps = flat[cuts[0] : cuts[1]].reshape(len(delta), -1)
        matrix[delta, 1:] += np.cumsum(steps, axis=1)
    if len(curve):
        bends = flat[cuts[1] :].reshape(len(curve), -1)
        matrix[curve, 2:] += np.cumsum(np.cumsum(bends, axis=1), axis=1)
    return matrix
