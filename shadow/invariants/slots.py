"""Recurrent-state slots."""

from __future__ import annotations

from collections import Counter
from typing import Any

from shadow.invariants.invariant import PlainInvariant
from shadow.observation import Point, Violation
from shadow.observe.probe import Subject


class StateSlots(PlainInvariant):
    """Every slot is free or belongs to one sequence, and every row that decodes has one."""

    name = "state-slots"
    points = frozenset((Point.PREFILL, Point.DECODE, Point.BOUNDARY, Point.END))

    def missing(self, subject: Subject) -> str | None:
        return None if _pool(subject) is not None else "it has no state slots"

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        pool = _pool(subject)
        owned: dict[int, int] = pool._slots
        found = []
        slots = list(owned.values())
        sound = len(pool._free) + len(slots) == pool.num_slots and len(set(slots)) == len(slots)
        if sound and point is not Point.DECODE:  # there are thousands: not at every step
            sound = sorted([*pool._free, *slots]) == list(range(pool.num_slots))
        if not sound:
            placed = Counter([*pool._free, *slots])
            wrong = next((slot for slot in range(pool.num_slots) if placed[slot] != 1), None)
            text = f"slot {wrong} is in {placed[wrong] if wrong is not None else 0} places"
            owners = [index for index, slot in owned.items() if slot == wrong]
            label = subject.names.of_index(owners[0]) if owners else None
            found.append(Violation(self.name, text, label))
        if point is Point.DECODE:
            for entry in subject.entries:
                if entry.global_idx not in owned:
                    label = subject.names.label(entry)
                    found.append(Violation(self.name, f"{label} decodes without a state slot", label))
        return len(owned) + 1, found


def _pool(subject: Subject) -> Any:
    pool = getattr(getattr(subject.worker, "core_engine", None), "state_slot_pool", None)
    return pool if hasattr(pool, "_slots") and hasattr(pool, "_free") else None
