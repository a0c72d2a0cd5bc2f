"""Paged KV memory: the pool that attention uses, the host pool of a node, and their coordinators."""

from __future__ import annotations

from batchgen.kv.dual import DualKVCacheCoordinator
from batchgen.kv.gpu import GPUPagedKVCacheManager
from batchgen.kv.host import HostPagedKVWorkerView, open_host_pool
from batchgen.kv.host_dual import DualHostKVCoordinator
from batchgen.kv.pool import KVExhausted, KVPoolConfig, KVStats, PagePointers
from batchgen.kv.state_slots import StateSlotPool
from batchgen.kv.tasks import AsyncTask, DualAsyncLoadTask

__all__ = [
    "AsyncTask",
    "DualAsyncLoadTask",
    "DualHostKVCoordinator",
    "DualKVCacheCoordinator",
    "GPUPagedKVCacheManager",
    "HostPagedKVWorkerView",
    "KVExhausted",
    "KVPoolConfig",
    "KVStats",
    "PagePointers",
    "StateSlotPool",
    "open_host_pool",
]
