"""What is done with a ring, in the process that interprets; plain values come back."""

from __future__ import annotations

from collections.abc import Iterable
from unittest.mock import patch

import numpy as np
import torch

from benchmarks import device_compare
from shadow.device import Late, Ring, compare_rows
from shadow.device.lane import AtOnce, Pairs
from shadow.experiment import arrays
from tests.shadow.device.interpreted import Plain, tensor_of
from tests.shadow.device.pairs import assert_same

SHAPE = (3, 2, 5)


def at_step(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of step n, element n differs, by n + 1."""
    control = torch.ones(SHAPE)
    candidate = control.clone()
    candidate.view(-1)[step] += step + 1
    return control, candidate


def seen(arrived: Iterable[Late]) -> list[tuple[int, int, float]]:
    """(step, first element, largest error)."""
    return [(late.step, late.rows.first_flat(), float(late.rows.max_abs.max())) for late in arrived]


def arrivals(slots: int, steps: int) -> list[list[tuple[int, int, float]]]:
    """Of each turn, and of the drain."""
    ring = Ring(at_step(0)[0], slots)
    found = []
    for step in range(steps):
        ring.compare(*at_step(step))
        found.append(seen(ring.turn()))
    return [*found, seen(ring.drain())]


def statistics_are_those_of_one_comparison(steps: int) -> int:
    """How many rings' results were looked at."""
    ring, looked = Ring(at_step(0)[0]), 0
    for step in range(steps):
        ring.compare(*at_step(step))
        for late in ring.turn():
            assert_same(late.rows, compare_rows(*at_step(late.step)))
            looked += 1
    return looked


class _Slow(AtOnce):
    """A device that copies nothing until it is waited for, or its stream needs the slot again."""

    def __init__(self) -> None:
        self._under_way: dict[int, Pairs] = {}
        self.spared: list[int] = []

    def copy(self, slot: int, pairs: Pairs) -> None:
        self._under_way[slot] = pairs

    def copied(self, slot: int) -> bool:
        return slot not in self._under_way

    def wait(self, slot: int) -> None:
        for source, target in self._under_way.pop(slot, ()):
            target.copy_(source)

    def spare(self, slot: int) -> None:
        self.wait(slot)
        self.spared.append(slot)


class _Late(_Slow):
    """The same, far behind its host: what a copy takes with it is right, and not there until it is waited for."""

    def copy(self, slot: int, pairs: Pairs) -> None:
        super().copy(slot, tuple((source.clone(), target) for source, target in pairs))

    def spare(self, slot: int) -> None: ...


def slow_arrivals(slots: int, steps: int) -> tuple[list[list[tuple[int, int, float]]], list[int]]:
    """(of each turn and the drain, slots that the stream was told to wait for)."""
    lane = _Slow()
    with patch("shadow.device.ring.lane_for", lambda _device, _slots: lane):
        ring = Ring(at_step(0)[0], slots)
    found = []
    for step in range(steps):
        ring.compare(*at_step(step))
        found.append(seen(ring.turn()))
    return [*found, seen(ring.drain())], lane.spared


def far_behind(slots: int, steps: int) -> tuple[list[list[tuple[int, int, float]]], int]:
    """(of each turn and the drain, stalls)."""
    with patch("shadow.device.ring.lane_for", lambda _device, _slots: _Late()):
        ring = Ring(at_step(0)[0], slots)
    found = []
    for step in range(steps):
        ring.compare(*at_step(step))
        found.append(seen(ring.turn()))
    return [*found, seen(ring.drain())], ring.stalls


def after_a_restart() -> list[tuple[int, int, float]]:
    """Two comparisons that are thrown away, as warming up and capturing are."""
    ring = Ring(at_step(0)[0])
    ring.compare(*at_step(5))
    ring.compare(*at_step(6))
    ring.restart()
    ring.compare(*at_step(0))
    ring.turn()
    return seen(ring.drain())


def a_restart_too_early() -> None:
    ring = Ring(at_step(0)[0])
    ring.compare(*at_step(0))
    ring.turn()
    ring.restart()


def a_turn_left_out() -> None:
    ring = Ring(at_step(0)[0], 2)
    ring.compare(*at_step(0))
    ring.compare(*at_step(1))
    ring.compare(*at_step(2))
    ring.turn()
    ring.drain()


def of_other_tensors(kind: str) -> None:
    ring = Ring(torch.zeros(4, 6))
    others = {"shape": torch.zeros(4, 5), "dtype": torch.zeros(4, 6).half(), "strides": torch.zeros(6, 4).T}
    ring.compare(torch.zeros(4, 6), others[kind])


def too_few_slots() -> None:
    Ring(torch.zeros(4, 6), 1)


def gate_finds(control: Plain, candidate: Plain) -> tuple[tuple[int, ...] | None, int]:
    """What the gates' comparison finds, and how often it asked the kernel."""
    with patch("shadow.device.compare.compare_rows", wraps=compare_rows) as asked:
        found = arrays.first_unequal(tensor_of(control), tensor_of(candidate))
    return found, asked.call_count


def gate_finds_in_integers() -> tuple[tuple[int, ...] | None, int]:
    table = np.arange(12).reshape(3, 4)
    other = table.copy()
    other[2, 1] += 1
    with patch("shadow.device.compare.compare_rows", wraps=compare_rows) as asked:
        found = arrays.first_unequal(torch.from_numpy(table), torch.from_numpy(other))
    return found, asked.call_count


def bench_report() -> str:
    """The benchmark's own report of small tensors; its figures mean nothing here."""
    cpu = torch.device("cpu")
    shapes = {"rows": (3, 40), "heads": (2, 3, 8)}
    return device_compare.report(
        [
            device_compare.measured(name, shape, dtype, cpu, turns=1, launches=2)
            for name, shape in shapes.items()
            for dtype in device_compare.DTYPES
        ],
        cpu,
    )
