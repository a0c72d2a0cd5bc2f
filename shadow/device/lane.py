"""How a slot gets from the device to the host while the device goes on: on a side stream, ordered by events."""

from __future__ import annotations

from typing import Protocol

import torch

Pairs = tuple[tuple[torch.Tensor, torch.Tensor], ...]
"""(from, to)."""


class Lane(Protocol):
    def copy(self, slot: int, pairs: Pairs) -> None:
        """After all that the current stream has been given so far. The host goes on at once."""

    def copied(self, slot: int) -> bool:
        """Whether the last copy of the slot has ended; asks, does not wait."""

    def wait(self, slot: int) -> None:
        """Until the last copy of the slot has ended."""

    def spare(self, slot: int) -> None:
        """The current stream goes on only when the last copy of the slot has ended; the host at once."""


class SideStream:
    """For a CUDA device. One event of each kind for each slot, made once."""

    def __init__(self, device: torch.device, slots: int) -> None:
        self._device, self._side = device, torch.cuda.Stream(device)
        self._written = [torch.cuda.Event() for _ in range(slots)]
        self._copied = [torch.cuda.Event() for _ in range(slots)]

    def copy(self, slot: int, pairs: Pairs) -> None:
        self._written[slot].record(torch.cuda.current_stream(self._device))
        self._side.wait_event(self._written[slot])
        with torch.cuda.stream(self._side):
            for source, target in pairs:
                target.copy_(source, non_blocking=True)
            self._copied[slot].record(self._side)

    def copied(self, slot: int) -> bool:
        return self._copied[slot].query()

    def wait(self, slot: int) -> None:
        self._copied[slot].synchronize()

    def spare(self, slot: int) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._copied[slot])


class AtOnce:
    """For the CPU, where a copy has ended when it returns."""

    def copy(self, slot: int, pairs: Pairs) -> None:
        for source, target in pairs:
            target.copy_(source)

    def copied(self, slot: int) -> bool:
        return True

    def wait(self, slot: int) -> None: ...

    def spare(self, slot: int) -> None: ...


def lane_for(device: torch.device, slots: int) -> Lane:
    return SideStream(device, slots) if device.type == "cuda" else AtOnce()
