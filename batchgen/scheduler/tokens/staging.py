"""The rows of logits in a step's staging buffer, as float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from batchgen.scheduler.errors import ReadbackError
from batchgen.scheduler.ports import DecodeOutcome

Row = NDArray[np.float32]


def logit_rows(staging: bytearray, outcome: DecodeOutcome, wanted: Sequence[int]) -> list[Row]:
    """A copy of each wanted row: the buffer may be resized as soon as this returns.

    ReadbackError where the buffer is too small, or its values are neither float32 nor bfloat16.
    """
    count = outcome.rows * outcome.vocab
    if outcome.itemsize not in (2, 4) or len(staging) < count * outcome.itemsize:
        raise ReadbackError(
            f"{outcome.rows} rows of {outcome.vocab} logits in {outcome.itemsize} bytes each: the staging buffer has "
            f"{len(staging)} bytes; expected float32 (4) or bfloat16 (2), and room for all"
        )
    if outcome.itemsize == 4:
        rows = np.frombuffer(staging, np.float32, count).reshape(outcome.rows, outcome.vocab)
        return [rows[index].copy() for index in wanted]
    # bfloat16 is the upper half of float32.
    halves = np.frombuffer(staging, np.uint16, count).reshape(outcome.rows, outcome.vocab)
    return [(halves[index].astype(np.uint32) << 16).view(np.float32) for index in wanted]
