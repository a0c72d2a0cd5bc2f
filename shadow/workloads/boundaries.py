"""A small workload that reaches every boundary situation: tight pools, odd lengths, four batches in a row."""

from __future__ import annotations

import random

from shadow.workloads.requests import Batch, Request, random_prompt
from shadow.workloads.situations import REACHABLE
from shadow.workloads.workload import Workload

PAGE, ROWS = 4, 7
# Greedy `tiny` answers the first with EOS, and the second with one token over and over.
EOS_FIRST = (37, 98, 124, 56, 121)
REPEATS = (53, 53)

OPTIONS: dict[str, object] = {
    "model": "tiny",
    "page_size": PAGE,
    "gpu_kv_pages": 40,
    "host_kv_pages": 90,
    "max_batch_size": ROWS,
    "max_pool_size": 16,
    "initial_gpu_page_buffer": 3,
    "extension_gpu_page_buffer": 2,
    "decision_frequency_pages": 2,
    "host_kv_chunk_size": PAGE,
    "adaptive_host_kv_chunk": False,
    "host_kv_eviction_watermark": 0,
    "host_kv_watermark": 50,
    "cuda_graph_num_buckets": 3,
}
ENVIRONMENT = {"BATCHGEN_DECODE_GRAPH_MAX_SEQLEN": "72", "BATCHGEN_REP_DETECTION": "1"}


def boundaries(seed: int = 0) -> Workload:
    """Other seeds give other lengths and prompts, and reach the same situations."""
    rng = random.Random(f"boundaries:{seed}")
    return Workload(
        "boundaries",
        (_together(rng), _odd(rng), _queue(rng), _long(rng)),
        options=OPTIONS,
        environment=ENVIRONMENT,
        required=REACHABLE,
    )


def _together(rng: random.Random) -> Batch:
    """Small and equal, one more than fit a step: all rows end at once, one is left to load; in a small pool."""
    return Batch("together", tuple(Request(f"equal-{i}", random_prompt(rng, 5), 7) for i in range(ROWS + 1)))


def _odd(rng: random.Random) -> Batch:
    """One of every kind."""
    requests = [
        Request("one-token", random_prompt(rng, 7), 1),
        Request("eos-first", EOS_FIRST, 12, ignore_eos=False),
        Request("repeats", REPEATS, 60),
        Request("no-cap", random_prompt(rng, 5), None, ignore_eos=False),
        Request("zero-cap", random_prompt(rng, 5), 0),
        Request("too-large", random_prompt(rng, 8), 200),
        Request("stop-string", random_prompt(rng, 6), 40, stop=("e", "a", "0", " ")),
    ]
    for pages in (1, 2, 3):
        for offset in (-1, 0, 1):
            length = pages * PAGE + offset
            cap = rng.choice((PAGE, 4 * PAGE, 5 * PAGE + 1))
            requests.append(Request(f"prompt-{pages}pages{offset:+}-{cap}", random_prompt(rng, length), cap))
    return Batch("odd", tuple(requests))


def _queue(rng: random.Random) -> Batch:
    """More requests than slots, of which a few outlive the others by far: work waits, host pages lie idle."""
    requests = [
        Request(f"brief-{i}", random_prompt(rng, rng.randint(4, 6)), rng.randint(3, 8)) for i in range(30)
    ]
    for index in (0, 9):
        requests.insert(index, Request(f"outlives-{index}", random_prompt(rng, 5), rng.randint(90, 110)))
    return Batch("queue", tuple(requests))


def _long(rng: random.Random) -> Batch:
    """More than either pool can hold at once: holds, loads, evictions."""
    requests = (
        Request(f"long-{i}", random_prompt(rng, rng.randint(4, 12)), rng.randint(60, 80)) for i in range(16)
    )
    return Batch("long", tuple(requests))
