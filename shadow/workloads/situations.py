"""The boundary situations that a workload is to reach, with what each means and what reaches it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Situation:
    """`reached_by`: what to do when a run is short of it. `not_here`: why this harness cannot reach it."""

    name: str
    means: str
    reached_by: str = ""
    not_here: str = ""


_CAPS = "caps and prompts around multiples of the page size"
_TIGHT_GPU = "fewer --gpu-pages than the rows will need"
_TIGHT_HOST = "fewer --host-pages than all sequences will need, small host_kv_chunk_size"
_QUEUE = "more requests than max_pool_size, a lower host_kv_watermark"
_BATCHES = "a second batch"

SITUATIONS = (
    Situation("kv_len at a page end", "kv_len % page_size == 0 in a decode step", _CAPS),
    Situation("kv_len just over a page", "kv_len % page_size == 1", _CAPS),
    Situation("kv_len just under a page", "kv_len % page_size == page_size - 1", _CAPS),
    Situation("last page live", "the last page of the GPU pool holds live tokens", _TIGHT_GPU),
    Situation("batch shrinks, then grows", "fewer rows than the step before, later more", _TIGHT_GPU),
    Situation("bucket padded", "a decode step has fewer rows than its bucket", "cuda_graph_num_buckets"),
    Situation("bucket full", "a decode step has as many rows as its bucket", "cuda_graph_num_buckets"),
    Situation(
        "past the captured maximum",
        "a row longer than what was captured: the step runs eagerly",
        "BATCHGEN_DECODE_GRAPH_MAX_SEQLEN below the longest context",
    ),
    Situation(
        "page shared, then forked",
        "two sequences on one page, then one of them writes",
        not_here="no page of this engine belongs to two sequences: it has no prefix cache",
    ),
    Situation(
        "preempted in flight",
        "a hold, an eviction or a watermark break while a load is pending",
        _TIGHT_GPU,
    ),
    Situation("short and long caps", "caps of one page and of four in one batch", _CAPS),
    Situation("extension fits", "a boundary gives rows more GPU pages", "caps above initial_gpu_page_buffer"),
    Situation("extension does not fit", "a boundary puts rows on hold", _TIGHT_GPU),
    Situation("held, then loaded", "a held sequence is decoded again", _TIGHT_GPU),
    Situation("load pending at a boundary", "a boundary settles the load of the one before", _TIGHT_GPU),
    Situation("only loads left", "a boundary leaves no row to decode, but a load", _TIGHT_GPU),
    Situation("EOS at prefill", "the first token of all is EOS", "a prompt that the model answers with EOS"),
    Situation("first token is last", "max_tokens is 1", "a request with max_tokens 1"),
    Situation("ends at its cap", "a result of finish reason length", "ignore_eos"),
    Situation("repetition stop", "the worker ends a row that repeats itself", "BATCHGEN_REP_DETECTION=1"),
    Situation("ends at a page end", "the last token of a row fills its page", _CAPS),
    Situation("done row decoded again", "a finished row waits for its boundary in the batch", _CAPS),
    Situation("all rows end at once", "every row of a batch gets its last token in one step", "equal caps"),
    Situation("host grows", "a boundary gives sequences more host pages", "small host_kv_chunk_size"),
    Situation("evicted, then prefilled", "an evicted sequence is prefilled again", _TIGHT_HOST),
    Situation("evicted twice", "one sequence is evicted twice", _TIGHT_HOST),
    Situation("watermark break", "decoding pauses because host pages lie idle and work waits", _QUEUE),
    Situation(
        "watermark break with a load pending", "the same, at a boundary that has launched a load", _QUEUE
    ),
    Situation("second batch", "a batch on a worker that has run one", _BATCHES),
    Situation("slot reused", "a sequence of a later batch sits where one of an earlier batch did", _BATCHES),
    Situation(
        "pool destroyed, then ensured", "decode, prefill, decode: the pool was given up between", _QUEUE
    ),
    Situation("pool replaced", "a larger GPU pool took the place of a smaller one", "a second, larger batch"),
    Situation("no cap given", "a request without max_tokens", "a request without max_tokens"),
    Situation("cap of zero", "a request with max_tokens 0 is refused", "a request with max_tokens 0"),
    Situation(
        "larger than the pool", "a request that no pool can hold is refused", "a very large max_tokens"
    ),
    Situation("more candidates than rows", "more sequences are ready than max_batch_size", "--max-batch"),
    Situation(
        "empty local batch",
        "a rank without rows in a decode step of the others",
        not_here="both sides are one rank; tests/batchgen/worker/test_multirank.py has it",
    ),
    Situation(
        "ranks of unequal free pages",
        "boundary decisions over ranks of unequal load",
        not_here="both sides are one rank; tests/batchgen/worker has it",
    ),
    Situation(
        "failure on one rank",
        "a collective in which one rank has failed",
        not_here="both sides are one rank; tests/batchgen/worker has it",
    ),
)
REACHABLE = frozenset(situation.name for situation in SITUATIONS if not situation.not_here)
