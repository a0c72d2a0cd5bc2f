"""GPU and host pages of a live worker, as the KV manager may see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from batchgen.kv import DualHostKVCoordinator, DualKVCacheCoordinator, PagePointers
from batchgen.worker.protocols import AsyncHandle


class GpuKv:
    """`GpuKvBackend`. The worker is asked for at each call, and it for its pool: both may be other ones by then."""

    def __init__(self, worker: Callable[[], Any]) -> None:
        self._worker = worker

    def allocate_pages(self, uuid: str, n: int) -> list[int]:
        pages: list[int] = self._worker()._allocate_gpu_pages(uuid, n)
        return pages

    def release_pages(self, uuid: str) -> None:
        self._worker()._release_gpu_pages(uuid)

    def free_pages(self) -> int:
        free: int = self._worker()._get_gpu_kv_free_pages()
        return free


class HostKv:
    """`HostKvBackend`."""

    def __init__(self, worker: Callable[[], Any]) -> None:
        self._worker = worker

    def allocate_pages(self, uuid: str, n: int) -> list[int]:
        pages: list[int] = self._worker()._allocate_host_pages(uuid, n)
        return pages

    def load_to_gpu_async(self, uuid: str, page_ids: list[int]) -> AsyncHandle:
        """The host holds positions [0, current_context_length - 1): the newest token has no KV yet."""
        worker = self._worker()
        sequence = worker.global_batch.get_sequence(uuid)
        counts = torch.tensor([-(-(sequence.current_context_length - 1) // worker.PAGE_SIZE)])
        ids = torch.tensor([sequence.global_idx])
        rows = torch.tensor([page_ids], dtype=torch.int32)
        view, manager = worker.core_engine.host_paged_kv_worker_view, worker.gpu_paged_kv_cache_manager
        if isinstance(manager, DualKVCacheCoordinator) and isinstance(view, DualHostKVCoordinator):
            k, v = _targets(manager.primary, rows)
            return view.async_load_dual(ids, counts, k, v, _targets(manager.auxiliary, rows)[0])
        task: AsyncHandle = view.async_load_layer_paged_kv_to_device(ids, counts, *_targets(manager, rows))
        return task


def _targets(pool: Any, rows: torch.Tensor) -> tuple[PagePointers, PagePointers | None]:
    return PagePointers(pool.k_cache, rows), None if pool.v_cache is None else PagePointers(
        pool.v_cache, rows
    )
