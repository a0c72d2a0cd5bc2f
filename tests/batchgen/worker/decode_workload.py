"""`python -m tests.batchgen.worker.decode_workload MODEL`: a worker whose decode code meets every situation.

First batches whose decode phase is one step: static buffers that later steps overwrite are then what the phase left.
Then small pools that both fill up, so that sequences are extended, held, loaded beside the decode, evicted and
prefilled anew. No callbacks: what only a caller knows cannot be done twice, and a call that hands it something is not
compared. Prints the tokens of all requests, and the worker's counters, as one line of JSON.
"""

from __future__ import annotations

import json
import sys

from batchgen.engine import EngineOptions, build_worker

from .conftest import SMALL, random_requests, token_ids

TIGHT = {
    "gpu_kv_pages": 24,
    "host_kv_pages": 30,
    "max_batch_size": 4,
    "host_kv_chunk_size": 4,
    "adaptive_host_kv_chunk": False,
}
SHORT_BATCHES = 5


def main(model: str) -> None:
    worker = build_worker(EngineOptions(**{**SMALL, "model": model, **TIGHT}))
    interval, worker.args.completion_sync_interval = worker.args.completion_sync_interval, 1
    tokens = [
        token_ids(worker.generate(random_requests(3, seed=seed, new=(2, 2), ignore_eos=True)))
        for seed in range(SHORT_BATCHES)
    ]
    worker.args.completion_sync_interval = interval
    tokens.append(token_ids(worker.generate(random_requests(16, seed=3, prompt=(4, 30), new=(8, 40)))))
    counters = {name: count for name, count in worker.counters.items() if count}
    worker.close()
    print(json.dumps({"tokens": tokens, "counters": counters}))


if __name__ == "__main__":
    main(sys.argv[1])
