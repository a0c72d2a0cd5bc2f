"""Paged KV memory: the pool that attention uses, the host pool of a node, and their coordinators."""

from __future__ import annotations

from batchgen.kv.dual import DualKVCacheCoordinator
from batchgen.kv.gpu import GPUPagedKVCacheManager
from batchgen.kv.pool import KVExhausted, KVPoolConfig, KVStats, PagePointers

__all__ = [
    "DualKVCacheCoordinator",
    "GPUPagedKVCacheManager",
    "KVExhausted",
    "KVPoolConfig",
    "KVStats",
    "PagePointers",
]
