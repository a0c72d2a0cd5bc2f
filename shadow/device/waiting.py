"""What a ring does, where the kernel cannot run: by operations of torch, and each step waits for them."""

from __future__ import annotations

from collections import deque

import torch

from shadow.device.availability import said_once, unavailable
from shadow.device.compare import compare_rows
from shadow.device.ring import Late, Ring


class Waiting:
    """The calls of `Ring`, with what `compare_rows` finds; `stalls` counts the comparisons, for each has waited."""

    def __init__(self) -> None:
        self._found: deque[Late] = deque()
        self.stalls = 0

    def compare(self, control: torch.Tensor, candidate: torch.Tensor) -> None:
        """ValueError: as of `compare_rows`."""
        self._found.append(Late(self.stalls, compare_rows(control, candidate)))
        self.stalls += 1

    def turn(self) -> tuple[Late, ...]:
        return self.drain()

    def drain(self) -> tuple[Late, ...]:
        found = tuple(self._found)
        self._found.clear()
        return found


def comparison(like: torch.Tensor) -> Ring | Waiting:
    """For a loop over tensors like this one: a `Ring`, or what takes its place here, which is logged.

    ValueError: a tensor that cannot be compared.
    """
    reason = unavailable(like.device)
    if reason is None:
        return Ring(like)
    said_once(reason)
    return Waiting()
