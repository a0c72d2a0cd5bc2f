"""Prompts packed one behind the other, and what a linear recurrence does along each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from batchgen.attention.protocol import as_int_list

__all__ = ["Packed"]


@dataclass(frozen=True)
class Packed:
    """`last`: the last row of each sequence. `before`: for each row the rows of the inputs that end at it, oldest
    first, one beyond the last row where the sequence had not begun. `by_time`: all rows, those of position 0 first, of
    each position the longest sequences first; `alive`: how many there are of each position."""

    last: Tensor
    before: Tensor
    by_time: Tensor
    alive: tuple[int, ...]

    @classmethod
    def of(cls, cu_seqlens: Tensor | Sequence[int], window: int, device: torch.device) -> Packed:
        bounds = torch.tensor(as_int_list(cu_seqlens), dtype=torch.int64)
        starts, lengths = bounds[:-1], bounds.diff()
        total = int(bounds[-1])
        sequence = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        position = torch.arange(total) - starts[sequence]
        back = torch.arange(window - 1, -1, -1)
        before = torch.where(position[:, None] >= back, torch.arange(total)[:, None] - back, total)
        rank = torch.empty_like(lengths)
        rank[torch.sort(lengths, descending=True, stable=True).indices] = torch.arange(len(lengths))
        by_time = torch.argsort(position * len(lengths) + rank[sequence])
        alive = tuple(torch.bincount(position).tolist())
        return cls((bounds[1:] - 1).to(device), before.to(device), by_time.to(device), alive)

    def windows(self, values: Tensor) -> Tensor:
        """[T, width] -> [T, window, width]: the inputs that end at each row, zeros before its sequence begins."""
        return torch.cat((values, values.new_zeros(1, values.shape[1])))[self.before]

    def scan(self, decay: Tensor, entering: Tensor) -> Tensor:
        """``h = decay * h + entering`` from h = 0, position after position, all sequences beside each other."""
        decay, entering = decay[self.by_time], entering[self.by_time]
        states = torch.empty_like(decay)
        current, row = states.new_zeros(self.alive[0], states.shape[1]), 0
        for alive in self.alive:
            here = slice(row, row + alive)
            current = torch.mul(current[:alive], decay[here], out=states[here]).add_(entering[here])
            row += alive
        packed = torch.empty_like(states)
        packed[self.by_time] = states
        return packed
