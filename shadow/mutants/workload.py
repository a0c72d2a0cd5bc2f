"""The small runs that mutants are planted in: every one of them makes something scarce."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Ask:
    """One request: its label, its prompt (a token a byte) and how many tokens it gets."""

    label: str
    prompt: str
    tokens: int
    more: Mapping[str, Any] = field(default_factory=lambda: {"ignore_eos": True})

    def line(self) -> str:
        body = {"prompt": self.prompt, "max_tokens": self.tokens, **self.more}
        return json.dumps(
            {"custom_id": self.label, "method": "POST", "url": "/v1/completions", "body": body},
            sort_keys=True,
        )


@dataclass(frozen=True)
class Workload:
    """Batches that run back to back on one worker with these EngineOptions."""

    name: str
    about: str
    batches: tuple[tuple[Ask, ...], ...]
    options: Mapping[str, object]

    def write(self, folder: Path) -> tuple[str, ...]:
        """Writes one request file for each batch; returns their paths."""
        paths = []
        for number, batch in enumerate(self.batches):
            path = folder / f"{self.name}-{number}.jsonl"
            path.write_text("".join(f"{ask.line()}\n" for ask in batch))
            paths.append(str(path))
        return tuple(paths)


_SCARCE: dict[str, object] = {
    "model": "tiny",
    "page_size": 4,
    "gpu_kv_pages": 22,
    "host_kv_pages": 40,
    "max_batch_size": 4,
    "max_pool_size": 8,
    "initial_gpu_page_buffer": 1,
    "extension_gpu_page_buffer": 1,
    "decision_frequency_pages": 1,
    "host_kv_chunk_size": 4,
    "host_kv_watermark": 40,
    "adaptive_host_kv_chunk": False,
    "cuda_graph_num_buckets": 2,
    "device": "cpu",
}

PRESSURE = Workload(
    "pressure",
    # steps: what happens there. Buckets are 1 and 4, so that 2 and 3 rows are padded.
    "40 steps, a boundary every 4: 4 evicts a and loads e, 8 completes c, 12 holds e, 20 breaks off for a prefill "
    "while e, f and g load (a comes back, `one` ends with its prefill), 24 loads f, 28 loads h, 32 leaves two rows",
    (
        (
            Ask("a", "abcdefghij", 14),
            Ask("b", "the quick brown fox", 22),
            Ask("c", "hello", 9),
            Ask("d", "a somewhat longer prompt", 18),
            Ask("e", "x", 16),
            Ask("f", "late one", 12),
            Ask("g", "seventh", 10),
            Ask("one", "ends at once", 1),
            Ask("h", "the last of them all", 8),
        ),
    ),
    MappingProxyType(_SCARCE),
)

TWICE = Workload(
    "twice",
    "two batches on one live worker; both fit whole, and the second needs a larger pool than the first",
    (
        (Ask("p", "first batch", 9), Ask("q", "of two", 11)),
        (Ask("r", "the second batch is longer", 14), Ask("s", "than the first", 10), Ask("t", "by far", 6)),
    ),
    MappingProxyType({**_SCARCE, "gpu_kv_pages": 40, "host_kv_pages": 80}),
)

_DRAWN = {"temperature": 2.0, "ignore_eos": True}
SAMPLED = Workload(
    "sampled",
    "temperature, seeds, logprobs and stop strings, on rows that come and go",
    (
        (
            Ask("u", "draw one", 12, {**_DRAWN, "seed": 3}),
            Ask("v", "draw another", 9, {**_DRAWN, "seed": 4, "top_p": 0.9}),
            Ask("w", "greedy", 17, {"ignore_eos": True, "logprobs": 2}),
            Ask("x", "stops early", 14, {**_DRAWN, "seed": 5, "stop": ["t=5"]}),
        ),
    ),
    MappingProxyType(_SCARCE),
)

WORKLOADS = {workload.name: workload for workload in (PRESSURE, TWICE, SAMPLED)}
