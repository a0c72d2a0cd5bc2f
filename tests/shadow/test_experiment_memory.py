"""Memory that nobody has written yet holds anything: the handler gets what the legacy body got."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.shadow.experiment_support import Worker, assert_equal, fresh_gates, gated, only

__all__ = ["fresh_gates"]
ROWS = 4096


class Holder(Worker):
    """Makes its buffer on first use, as a worker makes what it reads tokens back to."""

    buffer: Any = None


def in_torch(self: Any, rows: int) -> None:
    self.buffer = torch.empty(rows, dtype=torch.int64)


def in_torch_moved(self: Any, rows: int) -> None:
    self.worker.buffer = torch.empty(rows, dtype=torch.int64)


def like(self: Any, rows: int) -> None:
    self.buffer = torch.empty_like(torch.arange(rows))


def like_moved(self: Any, rows: int) -> None:
    self.worker.buffer = torch.empty_like(torch.arange(rows))


def in_numpy(self: Any, rows: int) -> None:
    self.buffer = np.empty(rows, dtype=np.int64)


def in_numpy_moved(self: Any, rows: int) -> None:
    self.worker.buffer = np.empty(rows, dtype=np.int64)


def leave_traces() -> None:
    """Free memory of the size that the methods ask for, with other numbers in each piece."""
    pieces = [torch.full((ROWS,), number, dtype=torch.int64) for number in range(1, 64)]
    arrays = [np.full(ROWS, number, dtype=np.int64) for number in range(64, 128)]
    del pieces, arrays


@pytest.mark.parametrize(
    ("legacy", "handler"),
    [(in_torch, in_torch_moved), (like, like_moved), (in_numpy, in_numpy_moved)],
    ids=["torch.empty", "torch.empty_like", "numpy.empty"],
)
def test_what_a_fresh_buffer_happens_to_hold_is_no_divergence(legacy: Any, handler: Any) -> None:
    worker, gate = gated(legacy, handler, base=Holder)
    for _ in range(30):
        leave_traces()
        worker.act(ROWS)
    assert_equal(gate, 30)


def fill(self: Any, rows: int) -> None:
    self.buffer = torch.empty(rows, dtype=torch.int64)
    self.buffer[:3] = 7


def fill_less(self: Any, rows: int) -> None:
    self.worker.buffer = torch.empty(rows, dtype=torch.int64)
    self.worker.buffer[:2] = 7
    self.worker.buffer[2] = 6


def test_what_is_written_to_a_fresh_buffer_is_compared() -> None:
    worker, gate = gated(fill, fill_less, base=Holder)
    worker.act(ROWS)
    assert only(gate).path == "self.buffer[2]"
