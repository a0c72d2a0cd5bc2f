"""All rows of a step through the host's pipeline, one after the other or side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from batchgen.scheduler.ports import DecodeOutcome, SchedCtx
from batchgen.scheduler.sequences import ActiveSeq, TokenIds
from batchgen.scheduler.tokens.sample import Sampled, sample_row
from batchgen.scheduler.tokens.staging import Row, logit_rows


def sample_rows(
    rows: Sequence[tuple[int, ActiveSeq]],
    outcome: DecodeOutcome,
    staging: bytearray,
    ids: TokenIds,
    adaptive_sampling: bool,
    sched: SchedCtx,
) -> list[Sampled]:
    """One choice for each (row of the staging buffer, sequence). ReadbackError.

    Side by side gives the same as one by one: a choice reads and writes its own row only.
    """
    logits = logit_rows(staging, outcome, [index for index, _ in rows])

    def choose(job: tuple[Row, ActiveSeq]) -> Sampled:
        return sample_row(*job, ids, adaptive_sampling, sched)

    jobs = list(zip(logits, (row for _, row in rows), strict=True))
    if sched.levers.parallel_sampling and len(jobs) > 1:
        return list(_pool().map(choose, jobs))
    return [choose(job) for job in jobs]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="host-sampling")
