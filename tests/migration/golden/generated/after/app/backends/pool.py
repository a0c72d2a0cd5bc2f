"""GpuKvBackend on Pool: passes on every parameter of what it wraps. Generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.parts.cache import GpuKvBackend
    from app.pool import Pool


class PoolBackend:
    """GpuKvBackend on the Pool that `wrapped` gives at each call, never an older one."""

    def __init__(self, wrapped: Callable[[], Pool]) -> None:
        self._wrapped = wrapped

    @classmethod
    def of(cls, wrapped: Pool) -> PoolBackend:
        """For an object that is never replaced."""
        return cls(lambda: wrapped)

    @property
    def closed(self) -> bool:
        return self._wrapped().closed

    @closed.setter
    def closed(self, value: bool) -> None:
        self._wrapped().closed = value

    def allocate_pages(self, uuid: str, n: int, *, pin: bool = False) -> list[int]:
        return self._wrapped().allocate(uuid, n, pin=pin)

    def free_pages(self) -> int:
        return self._wrapped().left()


if TYPE_CHECKING:  # the type checker holds the adapter against its Protocol

    def _GpuKvBackend(adapter: PoolBackend) -> GpuKvBackend:
        return adapter
