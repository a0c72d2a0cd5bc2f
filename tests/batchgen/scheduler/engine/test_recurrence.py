"""What the sort of rows by state slot is for: without it the recurrence is hardly ever batched."""

from __future__ import annotations

import pytest

from batchgen.scheduler import step
from tests.batchgen.scheduler.engine.conftest import SCARCE, MakeWorker, by_id, random_requests


def share(stats: dict[str, int | float]) -> float:
    """Of the steps with several rows, those that were batched."""
    several = sum(stats.get(f"recurrence_{route}", 0) for route in ("batched", "unsorted", "gap"))
    return stats.get("recurrence_batched", 0) / several


@pytest.mark.slow
@pytest.mark.parametrize(("pages", "sorted_share", "unsorted_share"), [(400, 0.8, 0.1), (SCARCE, 0.4, 0.2)])
def test_sorted_rows_reach_the_batched_recurrence_and_the_same_tokens(
    make_worker: MakeWorker,
    monkeypatch: pytest.MonkeyPatch,
    pages: int,
    sorted_share: float,
    unsorted_share: float,
) -> None:
    requests = random_requests(48)
    options = {"model": "tiny-hybrid", "row_exact": True, "gpu_kv_pages": pages}
    worker = make_worker(**options)
    expected, stats = by_id(worker.generate(requests)), worker.stats()
    assert (stats["preempted"] > 0) is (pages == SCARCE)
    assert stats.get("recurrence_unsorted", 0) == 0
    assert (
        sum(count for name, count in stats.items() if name.startswith("recurrence_")) == stats["decode_steps"]
    )

    monkeypatch.setattr(step, "sort_rows", lambda sched, active: None)
    unsorted = make_worker(**options)
    assert by_id(unsorted.generate(requests)) == expected
    assert unsorted.stats()["recurrence_unsorted"] > 0
    assert share(stats) > sorted_share > unsorted_share > share(unsorted.stats())
