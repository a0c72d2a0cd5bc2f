"""A boundary decision does not depend on the plan of the growth being free of contradictions.

In a file of its own, which does not name the worker's module: what is patched here may move with its callers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from batchgen.continuous_batching import HostKVGrowthEvictionPlan, NodeHostStats, PageClaim

from .conftest import MakeWorker
from .test_boundary import Node


def test_what_a_plan_evicts_does_not_grow_even_if_the_plan_says_so(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def contradicting(
        claims: Sequence[PageClaim], stats: NodeHostStats, *, enable_eviction: bool
    ) -> HostKVGrowthEvictionPlan:
        assert enable_eviction
        return HostKVGrowthEvictionPlan(("goes",), ("goes", "grows"), (2, 8), feasible=True)

    worker = make_worker(max_batch_size=4)
    for name in (type(worker).__module__, "batchgen.worker.decode"):  # wherever the decision is made by now
        if name in sys.modules:
            monkeypatch.setattr(f"{name}.plan_host_kv_growth_evictions", contradicting, raising=False)
    node = Node(worker, gpu_free=50, host_free=4)
    node.decodes("grows", decoded=50, grow=8)
    node.decodes("goes", decoded=3, grow=2)
    decision = node.decide()
    assert decision.host_evicted_uuids == ("goes",)
    assert (decision.host_growth_uuids, decision.host_growth_pages) == (("grows",), (8,))
