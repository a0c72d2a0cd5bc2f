"""Integers as bytes: signed to unsigned, the narrowest width that holds them all, byte planes apart.

Planes of equal bytes and runs of equal differences are what the compressor behind this works best on.
"""

from __future__ import annotations

import numpy as np

Ints = np.ndarray
"""int64, one-dimensional unless said otherwise."""

_WIDTHS = (1, 2, 4, 8)


def pack(values: Ints) -> bytes:
    """Any int64 array; the first byte says the width."""
    flat = np.ascontiguousarray(values, dtype=np.int64).ravel()
    unsigned = ((flat << 1) ^ (flat >> 63)).view(np.uint64)
    largest = int(unsigned.max()) if flat.size else 0
    width = next(w for w in _WIDTHS if largest < 1 << (8 * w))
    planes = unsigned.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T
    return bytes([width]) + planes.tobytes()


def unpack(data: bytes, count: int | None = None) -> Ints:
    """What was packed, flat. ValueError unless the bytes are exactly `count` integers (None: any number)."""
    width = data[0] if data else 0
    if width not in _WIDTHS or (len(data) - 1) % width:
        raise ValueError(f"{len(data)} bytes are not packed integers")
    size = (len(data) - 1) // width
    if count is not None and size != count:
        raise ValueError(f"{size} integers where {count} belong")
    planes = np.frombuffer(data, np.uint8, offset=1).reshape(width, size)
    unsigned = planes[0].astype(np.uint64)
    for plane in range(1, width):
        unsigned |= planes[plane].astype(np.uint64) << np.uint64(8 * plane)
    return (unsigned >> np.uint64(1)).view(np.int64) ^ -(unsigned & np.uint64(1)).view(np.int64)


def pack_steps(values: Ints) -> bytes:
    """As `pack`, of the differences (modulo 2^64): for integers that grow or hardly change."""
    return pack(np.diff(values, prepend=np.int64(0)))


def unpack_steps(data: bytes, count: int | None = None) -> Ints:
    return np.cumsum(unpack(data, count), dtype=np.int64)
