"""Buffers that calls hand out over and over, such as the outputs of a replayed graph: the candidate's copies follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shadow.experiment import arrays

_DEEPEST = 3  # containers within containers that a buffer is looked for in
_BYTES = 64 * 2**20  # what one control's buffers may come to


@dataclass(frozen=True)
class Refill:
    """A tensor in an answer: copies of what it held when it was handed out before, and now."""

    live: Any
    before: Any
    after: Any


class Refills:
    """Looks at each answer of one control."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[Any, Any]] = {}
        self._views: dict[tuple[str, int], set[int]] = {}
        #: Identities of tensors whose memory a later answer held in other views.
        self.superseded: set[int] = set()
        self._left = _BYTES

    def look(self, answer: Any) -> list[Refill]:
        """What an earlier answer held already, with other numbers. What is too much to copy is not noted."""
        tensors = list(_tensors(answer, _DEEPEST))
        self._note_views(tensors)
        found = []
        for live in tensors:
            known = self._last.get(id(live))
            if known is not None and arrays.same(known[1], live):
                continue
            if arrays.size_in_bytes(live) > self._left:
                continue
            self._left -= arrays.size_in_bytes(live)
            copied = arrays.cloned(live)
            self._last[id(live)] = (live, copied)
            if known is not None:
                found.append(Refill(live, known[1], copied))
        return found

    def _note_views(self, tensors: list[Any]) -> None:
        now: dict[tuple[str, int], set[int]] = {}
        for live in tensors:
            if (memory := arrays.memory_of(live)) is not None:
                now.setdefault(memory, set()).add(id(live))
        for memory, views in now.items():
            self.superseded |= self._views.get(memory, set()) - views
            self.superseded -= views
        self._views |= now


def _tensors(value: Any, depth: int) -> Iterator[Any]:
    if arrays.is_tensor(value) or arrays.is_ndarray(value):
        yield value
    elif depth and type(value) in (list, tuple, dict):
        for item in value.values() if type(value) is dict else value:
            yield from _tensors(item, depth - 1)
