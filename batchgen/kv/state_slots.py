"""Recurrent-state slots: one row of a state tensor for each running sequence."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import torch

CPU = torch.device("cpu")


class StateSlotPool:
    """A fixed number of slots, the lowest free one given first.

    `states` is [num_slots, *state_shape], zeroed for a sequence when it gets its slot; with an empty
    `state_shape` it is [num_slots]. `storage` has one slot more, nobody's: what padded rows may write to.

    `keeps(gid)` says whether a sequence that gives its slot back will go on where it was. Its state then waits on the
    CPU, and is in the next slot that it gets instead of zeros, unless it is forgotten before.
    """

    def __init__(
        self,
        num_slots: int,
        state_shape: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float32,
        device: torch.device = CPU,
    ) -> None:
        if num_slots < 1:
            raise ValueError(f"a state pool needs at least one slot, got {num_slots}")
        with torch.inference_mode(False):
            self.storage = torch.zeros((num_slots + 1, *state_shape), dtype=dtype, device=device)
        self.states = self.storage[:num_slots]
        self.num_slots = num_slots
        self.keeps: Callable[[int], bool] | None = None
        self._free = list(range(num_slots))
        self._slots: dict[int, int] = {}
        self._kept: dict[int, torch.Tensor] = {}

    def allocate(self, gids: Sequence[int]) -> list[int]:
        """A slot for each id, in order, with the state that was kept for it or zeros; atomic.

        RuntimeError when too few are free, ValueError when an id has one already or is named twice.
        """
        taken = [gid for gid in gids if gid in self._slots]
        if taken or len(set(gids)) != len(gids):
            raise ValueError(f"state slots asked for {list(gids)}: ids repeat, or {taken} have one already")
        if len(gids) > len(self._free):
            raise RuntimeError(
                f"{len(gids)} state slots needed, {len(self._free)} of {self.num_slots} free; release some "
                "sequences first or configure more slots"
            )
        slots = [heapq.heappop(self._free) for _ in gids]
        self._slots.update(zip(gids, slots, strict=True))
        self.states[slots] = 0
        for gid, slot in zip(gids, slots, strict=True):
            if gid in self._kept:
                self.states[slot] = self._kept.pop(gid)
        return slots

    def release(self, gids: Sequence[int]) -> None:
        """KeyError on an id that has no slot, or is named twice, before anything changes."""
        self._check_known(gids)
        if len(set(gids)) != len(gids):
            raise KeyError(f"state slots of {list(gids)} would be released twice in one call")
        for gid in gids:
            slot = self._slots.pop(gid)
            heapq.heappush(self._free, slot)
            if self.keeps is not None and self.keeps(gid):
                self._kept[gid] = self.states[slot].to(CPU, copy=True)

    def forget(self, gids: Sequence[int]) -> None:
        """Drop what is kept for these; those of which nothing is kept are passed over."""
        for gid in gids:
            self._kept.pop(gid, None)

    def slots_for(self, gids: Sequence[int]) -> torch.Tensor:
        """int64 [len(gids)] on the device of the states. KeyError on an id that has no slot."""
        self._check_known(gids)
        slots = [self._slots[gid] for gid in gids]
        return torch.tensor(slots, dtype=torch.int64, device=self.states.device)

    def _check_known(self, gids: Sequence[int]) -> None:
        for gid in gids:
            if gid not in self._slots:
                raise KeyError(f"sequence {gid} has no state slot")

    def has(self, gid: int) -> bool:
        return gid in self._slots

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return len(self._slots)

    @property
    def num_kept(self) -> int:
        """Sequences without a slot whose state waits for them."""
        return len(self._kept)

    def check_invariants(self) -> None:
        """Every slot is free or belongs to one sequence, which has its state there and not kept as well.

        AssertionError naming slots and sequences.
        """
        placed = sorted(self._free + list(self._slots.values()))
        if placed != list(range(self.num_slots)):
            raise AssertionError(
                f"state slots: free {sorted(self._free)} and owned {self._slots} are not each of "
                f"0..{self.num_slots - 1} once"
            )
        if twice := self._slots.keys() & self._kept.keys():
            raise AssertionError(f"sequences {sorted(twice)} have a state slot and a kept state")
