"""A worker that answers from the prompt alone, and a ``batchgen`` command that uses it.

``python -m tests.batchgen.requests.fake_worker run ...`` is the real command line with this worker in place of the
engine. FAKE_WORKER_DELAY (seconds) slows every result down; FAKE_WORKER_FAIL_AT makes that result a crash.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from batchgen.requests import GenerationResult, TokenizedRequest, WorkerProgress
from batchgen.sampling import TokenLogprob

BOS = 256


class FakeTokenizer:
    """One token a byte, and a token at the beginning."""

    vocab_size = 257
    special_tokens: ClassVar[dict[str, int]] = {}

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_chat(self, messages: list[dict[str, str]], **variables: Any) -> list[int]:
        if messages[0]["role"] == "assistant":
            raise ValueError("a conversation cannot begin with the assistant")
        return [BOS, *"".join(f"{m['role']}:{m['content']}\n" for m in messages).encode()]

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")


@dataclass(frozen=True)
class FakeConfig:
    max_position_embeddings: int = 512


class FakeWorker:
    """Answers with the prompt in reverse, cut at max_tokens; a prompt that holds "impossible" gives an error."""

    def __init__(self, *, delay: float = 0.0, fail_at: int | None = None) -> None:
        self.tokenizer = FakeTokenizer()
        self.model_config = FakeConfig()
        self.delay = delay
        self.fail_at = fail_at
        self.seen: list[TokenizedRequest] = []
        self.closed = False

    def generate(
        self,
        requests: Sequence[TokenizedRequest],
        *,
        on_result: Callable[[GenerationResult], None] | None = None,
        on_progress: Callable[[WorkerProgress], None] | None = None,
    ) -> list[GenerationResult]:
        self.seen += requests
        results: list[GenerationResult] = []
        generated = 0
        for number, request in enumerate(sorted(requests, key=lambda r: len(r.prompt_token_ids))):
            if self.delay:
                time.sleep(self.delay)
            if number == self.fail_at:
                raise RuntimeError("the fake engine\nbroke")
            result = self.answer(request)
            generated += len(result.token_ids)
            results.append(result)
            if on_result is not None:
                on_result(result)
            if on_progress is not None:
                left = len(requests) - len(results)
                on_progress(
                    WorkerProgress(generated, 0, len(results), len(requests), 1, left, 0, left, 9, left, 19)
                )
        return results

    def answer(self, request: TokenizedRequest) -> GenerationResult:
        prompt = request.prompt_token_ids
        if b"impossible" in bytes(i for i in prompt if i < 256):
            return GenerationResult(request.custom_id, (), "", "error", len(prompt), None, "needs 99 pages")
        ids = tuple(i for i in reversed(prompt) if i < 256)[: request.sampling.max_tokens]
        logprobs = None
        if request.sampling.logprobs:
            top = request.sampling.top_logprobs
            logprobs = tuple(TokenLogprob(i, -0.5, tuple((i + k, -0.5 - k) for k in range(top))) for i in ids)
        cut = len(ids) == request.sampling.max_tokens
        text = self.tokenizer.decode(ids)
        finish = ("length", "max_tokens") if cut else ("stop", "eos")
        return GenerationResult(request.custom_id, ids, text, finish[0], len(prompt), logprobs, finish[1])

    def stats(self) -> dict[str, int | float]:
        return {"requests": len(self.seen)}

    def close(self) -> None:
        self.closed = True


def main(arguments: Sequence[str] | None = None, worker: FakeWorker | None = None) -> int:
    """``batchgen.cli.main`` with a fake worker where it builds the engine."""
    import batchgen.engine
    from batchgen.cli import main as real_main

    if worker is None:
        fail_at = os.environ.get("FAKE_WORKER_FAIL_AT")
        worker = FakeWorker(
            delay=float(os.environ.get("FAKE_WORKER_DELAY", "0")), fail_at=int(fail_at) if fail_at else None
        )
    original = batchgen.engine.build_worker
    batchgen.engine.build_worker = lambda options: worker  # type: ignore[assignment,return-value]
    try:
        return real_main(arguments)
    finally:
        batchgen.engine.build_worker = original


if __name__ == "__main__":
    sys.exit(main())
