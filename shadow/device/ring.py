"""A comparison in each step of a loop that must not wait: written on the device, read one step late."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch

from shadow.device.lane import lane_for
from shadow.device.launch import Launch
from shadow.device.statistics import RowStatistics


@dataclass(frozen=True, eq=False)
class Late:
    """What was found of the step-th comparison since the beginning (or `restart`)."""

    step: int
    rows: RowStatistics


class Ring:
    """Compares two tensors in each step, without a host sync; all of the shape, dtype and device of `like`.

        ring = Ring(logits)
        for ...:
            ...
            ring.compare(logits, other)  # this may be part of a captured graph, replayed here
            for late in ring.turn():  # each step: that of the step before, as a rule
                late.rows.scores()
        ring.drain()

    Slots, pinned memory and events are made here, once. `turn` asks whether copies have ended and does not wait for
    them, unless the device is `slots` steps behind: then it waits for the oldest, so that nothing is lost, and
    `stalls` counts it.

    Raises:
        Unavailable: where the kernel cannot run.
        ValueError: fewer than two slots, or a tensor that cannot be compared (see `Launch`).
    """

    def __init__(self, like: torch.Tensor, slots: int = 4) -> None:
        if slots < 2:
            raise ValueError(f"a ring of {slots} slots: what is read a step late needs at least 2")
        self._launch = Launch(like, slots)
        self._lane = lane_for(like.device, slots)
        pinned = like.device.type == "cuda"
        self._words = torch.zeros(self._launch.words.shape, dtype=torch.int32, pin_memory=pinned)
        self._steps = torch.zeros(slots, dtype=torch.int64, pin_memory=pinned)
        self._turns = 0
        self._pending: deque[int] = deque()
        self.stalls = 0

    def compare(self, control: torch.Tensor, candidate: torch.Tensor) -> None:
        """Launches on the current stream. ValueError: not contiguous, or unlike `like`."""
        self._launch(control, candidate)

    def turn(self) -> tuple[Late, ...]:
        """Once after each comparison (after each replay of its graph): what has arrived of steps before this one.

        RuntimeError where comparisons and turns have not alternated.
        """
        slots = self._launch.slots
        arrived = []
        if len(self._pending) == slots:
            self.stalls += not self._lane.copied(self._pending[0] % slots)
            arrived.append(self._taken())
        slot = self._turns % slots
        pairs = (self._launch.words[slot], self._words[slot]), (self._launch.steps[slot], self._steps[slot])
        self._lane.copy(slot, pairs)
        self._pending.append(self._turns)
        self._turns += 1
        if self._turns >= slots:
            self._lane.spare(self._turns % slots)
        while self._pending[0] < self._turns - 1 and self._lane.copied(self._pending[0] % slots):
            arrived.append(self._taken())
        return tuple(arrived)

    def drain(self) -> tuple[Late, ...]:
        """All that is left; waits for it."""
        return tuple(self._taken() for _ in range(len(self._pending)))

    def restart(self) -> None:
        """Counts from 0 again: after warming up and capturing. RuntimeError where results have not been drained."""
        if self._pending:
            raise RuntimeError(f"{len(self._pending)} comparisons were not drained before the restart")
        self._launch.restart()
        self._turns = 0

    def _taken(self) -> Late:
        step = self._pending.popleft()
        slot = step % self._launch.slots
        self._lane.wait(slot)
        held = int(self._steps[slot])
        if held != step:
            raise RuntimeError(
                f"slot {slot} holds step {held} in place of {step}: one turn for each comparison"
            )
        return Late(step, self._launch.decoded(self._words[slot]))
