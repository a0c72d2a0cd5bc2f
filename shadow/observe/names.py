"""Labels of sequences: the request's custom_id, else the uuid, so that both sides name the same thing alike."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

_TOGETHER = 64  # indices asked for together, the rows of a table above all, are asked for many times an event
_named = attrgetter("global_idx", "uuid", "custom_id")


class Names:
    """Kept up to date by `refresh`, which each event calls, and by the first question after sequences came.

    `by_uuid` is another object as soon as one name is another.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._seen: tuple[int, int] | None = None
        self._named: list[tuple[Any, ...]] = []
        self._by_index: dict[int, str] = {}
        self._together: dict[tuple[int, ...], list[str]] = {}
        self.by_uuid: dict[str, str] = {}

    @staticmethod
    def label(entry: Any) -> str:
        return str(getattr(entry, "custom_id", None) or entry.uuid)

    def refresh(self) -> list[Any]:
        """All sequences of the worker's batch, in its order."""
        batch = getattr(self._worker, "global_batch", None)
        entries = [] if batch is None else list(batch)
        self._seen = (id(batch), len(entries))
        try:
            named = list(map(_named, entries))
        except AttributeError:  # a tree that knows no custom_id
            named = [(e.global_idx, e.uuid, getattr(e, "custom_id", None)) for e in entries]
        if named != self._named:
            self._named = named
            self._together = {}
            self._by_index = {entry.global_idx: self.label(entry) for entry in entries}
            self.by_uuid = {entry.uuid: self.label(entry) for entry in entries}
        return entries

    def of_index(self, global_idx: int) -> str:
        return self.of_indices((global_idx,))[0]

    def of_indices(self, indices: Iterable[int]) -> list[str]:
        """In their order."""
        batch = getattr(self._worker, "global_batch", None)
        if batch is not None and self._seen != (id(batch), len(batch)):
            self.refresh()
        wanted, known = tuple(indices), self._by_index
        if set(map(type, wanted)) != {
            int
        }:  # what else an index may be is not known to be hashable by its value
            return [known.get(int(index)) or f"global index {index}" for index in wanted]
        if wanted not in self._together:
            if len(self._together) >= _TOGETHER:
                self._together.clear()
            self._together[wanted] = [known.get(index) or f"global index {index}" for index in wanted]
        return self._together[wanted].copy()
