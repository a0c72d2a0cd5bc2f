"""Labels of sequences: the request's custom_id, else the uuid, so that both sides name the same thing alike."""

from __future__ import annotations

from typing import Any


class Names:
    """Kept up to date by `refresh`, which each event calls, and by the first question after sequences came."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._seen: tuple[int, int] | None = None
        self._by_index: dict[int, str] = {}
        self.by_uuid: dict[str, str] = {}

    @staticmethod
    def label(entry: Any) -> str:
        return str(getattr(entry, "custom_id", None) or entry.uuid)

    def refresh(self) -> list[Any]:
        """All sequences of the worker's batch, in its order."""
        batch = getattr(self._worker, "global_batch", None)
        entries = [] if batch is None else list(batch)
        self._seen = (id(batch), len(entries))
        self._by_index = {entry.global_idx: self.label(entry) for entry in entries}
        self.by_uuid = {entry.uuid: self.label(entry) for entry in entries}
        return entries

    def of_index(self, global_idx: int) -> str:
        batch = getattr(self._worker, "global_batch", None)
        if batch is not None and self._seen != (id(batch), len(batch)):
            self.refresh()
        return self._by_index.get(int(global_idx), f"global index {global_idx}")
