"""What the handlers of the worker are given."""

from __future__ import annotations

from typing import Protocol


class AsyncHandle(Protocol):
    """Work under way."""

    def wait(self) -> None:
        """Until it is done; raises what it raised."""

    def done(self) -> bool: ...


class GpuKvBackend(Protocol):
    """Pages of this rank's GPU pool."""

    def allocate_pages(self, uuid: str, n: int) -> list[int]:
        """`n` more pages for a sequence; the new ones. KVExhausted, with nothing changed, when fewer are free."""

    def release_pages(self, uuid: str) -> None:
        """All pages of a sequence. KeyError when it has none."""

    def free_pages(self) -> int:
        """0 without a pool."""


class HostKvBackend(Protocol):
    """Pages of the host pool that the ranks of a node share."""

    def allocate_pages(self, uuid: str, n: int) -> list[int]:
        """`n` more pages for a sequence; the new ones. KVExhausted, with nothing changed, when fewer are free."""

    def load_to_gpu_async(self, uuid: str, page_ids: list[int]) -> AsyncHandle:
        """Starts to load the KV that the host has of a sequence into these pages of the GPU pool, in their order."""
