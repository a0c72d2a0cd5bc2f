"""The kernels: one pass over both tensors, 32 bytes for each row of a tile, and the step counter.

All sums are float32: memory is the limit then, on devices with few float64 units too. What float32 lacks in range is
made up for: each row of a tile is scaled by a power of two, so that its largest error (its largest control value)
lies near 1; squares neither overflow nor vanish but where they are below 1e-30 of the largest. What it lacks in
digits stays: a sum over a tile of 2048 is within 1e-6 of itself, and tiles are added up in float64 (see `decoded`).
The error of two values beyond 2^126 is taken of their quarters.

The bits come in as integers: equality is that of the bits, bfloat16 needs no support of its own.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# (Triton compiles annotations, too.)

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _value(bits, KIND: tl.constexpr):
    if KIND == "float32":
        return bits.to(tl.float32, bitcast=True)
    elif KIND == "float16":
        return bits.to(tl.float16, bitcast=True).to(tl.float32)
    else:
        return (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def _magnitude(value):
    """The bits of |value|: ordered as the numbers are, infinities and NaN above them."""
    return value.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def _exponent(magnitude):
    """Of the scale: from -100 to 100, so that it and its inverse are normal numbers."""
    return tl.minimum(tl.maximum((magnitude >> 23) - 127, -100), 100)


@triton.jit
def _power(exponent):
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def compare_tile(
    control,
    candidate,
    ring,
    counter,
    rows,
    length,
    slots,
    tiles,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Tile [ROWS, COLUMNS] of two tensors [rows, length] given as bits; `tiles` make up a row.

    ring: int32 [slots, tiles, words, rows], words as in statistics.Word; the slot is that of the step in `counter`.
    """
    tile = (tl.program_id(0) % tiles).to(tl.int64)
    row = (tl.program_id(0) // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tile.to(tl.int32) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < length)[None, :]
    place = row[:, None] * length + column[None, :]
    ours = tl.load(control + place, mask=inside, other=0)
    theirs = tl.load(candidate + place, mask=inside, other=0)
    unequal = ours != theirs
    x = _value(ours, KIND)
    y = _value(theirs, KIND)

    error = y - x
    longest = tl.max(_magnitude(x), axis=1)
    top = tl.max(_magnitude(error), axis=1)
    exponent = _exponent(top)
    scale = _power(-exponent)
    largest = top.to(tl.float32, bitcast=True) * scale
    one_side = tl.zeros([ROWS], tl.int32)
    both_sides = tl.zeros([ROWS], tl.int32)
    # Beyond 2^126 on either side, infinities and NaN: then the control or the error is.
    if tl.max(tl.maximum(longest, top), axis=0) >= 0x7E800000:
        wild_x = _magnitude(x) >= 0x7F800000
        wild_y = _magnitude(y) >= 0x7F800000
        one_side = tl.sum((wild_x != wild_y).to(tl.int32), axis=1)
        both_sides = tl.sum((wild_x & wild_y).to(tl.int32), axis=1)
        infinite = tl.max(((wild_x | wild_y) & unequal).to(tl.int32), axis=1)
        x = tl.where(wild_x, 0.0, x)
        longest = tl.max(_magnitude(x), axis=1)
        y = tl.where(wild_x | wild_y, x, y)
        # No error there now; where bits differ it becomes infinite below.
        huge = tl.maximum(_magnitude(x), _magnitude(y)) >= 0x7E800000
        unit = tl.where(huge, 0.25, 1.0)
        error = y * unit - x * unit
        top = tl.max(_magnitude(tl.where(huge, 0.0, error)), axis=1)
        beyond = tl.max(_magnitude(tl.where(huge, error, 0.0)), axis=1)
        exponent = tl.minimum(tl.maximum(_exponent(beyond) + 2, _exponent(top)), 100)
        scale = _power(-exponent)
        error = error * scale[:, None] * tl.where(huge, 4.0, 1.0)
        error = tl.where(infinite[:, None] > 0, float("inf"), error)
        largest = tl.max(tl.abs(error), axis=1)
        scale = tl.full([ROWS], 1.0, tl.float32)
    of_control = _exponent(longest)
    x = x * _power(-of_control)[:, None]
    error = error * scale[:, None]
    first = tl.min(tl.where(unequal, column[None, :], 0x7FFFFFFF), axis=1)
    slot = tl.load(counter) % slots
    out = ring + (slot * tiles + tile) * 8 * rows + row
    here = row < rows
    tl.store(out, tl.sum(error * error, axis=1).to(tl.int32, bitcast=True), mask=here)
    out += rows
    tl.store(out, tl.sum(x * x, axis=1).to(tl.int32, bitcast=True), mask=here)
    out += rows
    tl.store(out, largest.to(tl.int32, bitcast=True), mask=here)
    out += rows
    tl.store(out, ((of_control + 128) << 8) + exponent + 128, mask=here)
    out += rows
    tl.store(out, first, mask=here)
    out += rows
    tl.store(out, tl.sum(unequal.to(tl.int32), axis=1), mask=here)
    out += rows
    tl.store(out, one_side, mask=here)
    out += rows
    tl.store(out, both_sides, mask=here)


@triton.jit
def next_step(counter, steps, slots):
    """Notes which step the slot belongs to, and counts on. One program, after all tiles of the step."""
    step = tl.load(counter)
    tl.store(steps + step % slots, step)
    tl.store(counter, step + 1)
