"""The kernel on the CPU: in a process of its own, where triton was loaded to interpret.

What triton has once been loaded for holds for the process, and the gates compare otherwise under TRITON_INTERPRET.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from shadow.device import RowStatistics
from shadow.device.bits import bits

Plain = tuple[np.ndarray, str]


class Interpreter:
    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function of a module of tests returns there."""
        return self._pool.submit(function, *args).result()

    def compare_rows(self, control: torch.Tensor, candidate: torch.Tensor) -> RowStatistics:
        found: RowStatistics = self.run(_compare_rows, plain(control), plain(candidate))
        return found


@contextmanager
def interpreter() -> Iterator[Interpreter]:
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    with patch.dict(os.environ, TRITON_INTERPRET="1"):
        pool.submit(torch.set_num_threads, 1).result()  # it has the variable now, and keeps it
    with pool:
        yield Interpreter(pool)


def plain(tensor: torch.Tensor) -> Plain:
    return bits(tensor.contiguous()).numpy().copy(), str(tensor.dtype).removeprefix("torch.")


def tensor_of(given: Plain) -> torch.Tensor:
    return torch.from_numpy(given[0]).view(getattr(torch, given[1]))


def _compare_rows(control: Plain, candidate: Plain) -> RowStatistics:
    from shadow.device import compare_rows, unavailable

    assert unavailable(torch.device("cpu")) is None
    return compare_rows(tensor_of(control), tensor_of(candidate))
