"""Tensors compared where they are, on a CUDA device: what shadow.numerics says of rows, in one pass over both sides.

`compare_rows` compares at once, `Ring` in each step of a loop, `first_flat` serves the gates (shadow.experiment).
The policy is that of shadow.numerics; `RowStatistics.scores` are its scores. Importing this loads neither torch nor
triton. Where the kernel cannot run, `unavailable` says why in one line, and nothing weaker takes its place: the same
is found by operations of torch (`compare_rows`, the gates, `comparison`) or refused (`Ring`). See docs/device.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shadow.device.availability import Unavailable, unavailable
    from shadow.device.compare import compare_rows, first_flat
    from shadow.device.ring import Late, Ring
    from shadow.device.statistics import RowStatistics
    from shadow.device.waiting import Waiting, comparison

__all__ = [
    "Late",
    "Ring",
    "RowStatistics",
    "Unavailable",
    "Waiting",
    "compare_rows",
    "comparison",
    "first_flat",
    "unavailable",
]

_WHERE = {
    "Late": "ring",
    "Ring": "ring",
    "RowStatistics": "statistics",
    "Unavailable": "availability",
    "Waiting": "waiting",
    "compare_rows": "compare",
    "comparison": "waiting",
    "first_flat": "compare",
    "unavailable": "availability",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
