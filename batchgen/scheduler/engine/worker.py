"""The step policy behind the interface that a run knows: requests in, one result each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from batchgen.models import LoadedModel
from batchgen.requests.types import GenerationResult, TokenizedRequest, WorkerProgress
from batchgen.scheduler.engine.admission import GROWTH_BLOCKS, never_fits
from batchgen.scheduler.engine.answer import answer, failure
from batchgen.scheduler.engine.device import ModelDevice
from batchgen.scheduler.engine.loop import Arrival, Knobs, StepLoop
from batchgen.scheduler.engine.reply import Reply, StopStrings
from batchgen.scheduler.engine.rows import new_row, token_ids_of
from batchgen.scheduler.file_spill import FileSpill
from batchgen.scheduler.ports import Clock, Io, Levers, Limits, SchedCtx
from batchgen.scheduler.sequences import TokenIds
from batchgen.scheduler.tokens.vocabulary import vocabulary_of


class MonotonicClock:
    def now(self) -> float:
        return time.monotonic()


class Counts:
    """`Telemetry`: what has happened, by name."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by


class StepWorker:
    """One process, one device. `spill` None: rows that make room are prefilled again when they come back."""

    def __init__(
        self,
        loaded: LoadedModel,
        device: ModelDevice,
        *,
        max_batch: int,
        knobs: Knobs,
        spill: FileSpill | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.tokenizer, self.model_config = loaded.tokenizer, loaded.config
        self.device, self.spill = device, spill
        self.telemetry = Counts()
        self._clock = clock or MonotonicClock()
        self._ids = token_ids_of(loaded.tokenizer)
        # A row that writes more than its budget, by tokens that are dropped, must still fit the pool.
        room = (device.total_blocks - GROWTH_BLOCKS) * device.block_size
        self._context = loaded.config.max_position_embeddings
        sched = SchedCtx(
            Io(device, self._clock, self.telemetry),
            levers=Levers(tool_response_stop=loaded.tokenizer.special_tokens.get("<tool_response>")),
            limits=Limits(max_batch=max_batch, max_seq_len=min(self._context, room)),
            vocabulary=None if self._ids == TokenIds() else vocabulary_of(loaded.tokenizer),
        )
        self.loop = StepLoop(device, sched, self._ids, knobs, spill)
        self._replies: dict[str, Reply] = {}

    def generate(
        self,
        requests: Sequence[TokenizedRequest],
        *,
        on_result: Callable[[GenerationResult], None] | None = None,
        on_progress: Callable[[WorkerProgress], None] | None = None,
    ) -> list[GenerationResult]:
        """Runs all requests to their end; the results in order of completion, also through `on_result` as they come.

        ValueError for a custom_id that occurs twice; RuntimeError where the device is lost.
        """
        twice = [name for name, times in Counter(r.custom_id for r in requests).items() if times > 1]
        if twice:
            raise ValueError(f"custom_id {twice[0]!r} occurs twice in one batch")
        results: list[GenerationResult] = []

        def deliver(result: GenerationResult) -> None:
            results.append(result)
            if on_result is not None:
                on_result(result)

        try:
            for request in requests:
                self.submit(request, deliver)
            while not self.loop.is_idle:
                self.tick()
                if on_progress is not None:
                    on_progress(self._progress(len(requests), len(results)))
        except BaseException:
            self._abandon()
            raise
        return results

    def submit(self, request: TokenizedRequest, deliver: Callable[[GenerationResult], None]) -> None:
        """Queues a request; `deliver` gets its one result, at once where it can never run here."""
        if request.custom_id in self._replies:
            raise ValueError(f"custom_id {request.custom_id!r} is being answered already")
        prompt, device = len(request.prompt_token_ids), self.device
        why = never_fits(
            prompt, request.sampling.max_tokens, device.block_size, device.total_blocks, self._context
        )
        if why is not None:
            self.telemetry.count("rejected")
            deliver(failure(request, why))
            return
        eos = frozenset(self.tokenizer.eos_token_ids)

        def ended(reply: Reply) -> None:
            del self._replies[request.custom_id]
            self.telemetry.count("completed")
            assert reply.row is not None
            self.telemetry.count("generated_tokens", len(reply.row.output_tokens))
            deliver(answer(request, reply, self.tokenizer, self._context))

        reply = Reply(StopStrings(request.sampling.stop, self.tokenizer), ended)
        reply.row = new_row(request, reply, self._ids, eos, self._clock.now())
        self._replies[request.custom_id] = reply
        self.loop.inbox.append(Arrival(reply.row, request.prompt_token_ids))

    def cancel(self, custom_id: str) -> bool:
        """Ends a request at the next tick, wherever it is; False: it has ended."""
        reply = self._replies.get(custom_id)
        if reply is None or reply.row is None:
            return False
        reply.row.cancelled = True
        return True

    def stats(self) -> dict[str, int | float]:
        """Counters since the worker was built."""
        zero = Counter(dict.fromkeys(("preempted", "spilled", "requeued", "resumed", "swapped_in"), 0))
        zero.update(self.telemetry.counts)
        zero.update(self.device.counts)
        counts: dict[str, int | float] = dict(sorted(zero.items()))
        if self.spill is not None:
            usage = self.spill.usage()
            counts |= {"spill_bytes": usage.bytes, "spill_peak_bytes": usage.peak_bytes}
        return counts

    def close(self) -> None:
        """Frees everything; the spill folder of this process goes."""
        self._abandon()
        if self.spill is not None:
            self.spill.close()
        self.device.close()

    def tick(self) -> None:
        """One round of the loop. RuntimeError: the device is lost, or nothing can go on, which is a fault here."""
        loop, before = self.loop, self._standing()
        loop.tick()
        if loop.sched.shutdown_requested:
            raise RuntimeError("the device is lost; start the run again for what is missing")
        if not loop.is_idle and not loop.active and not loop.inbox and self._standing() == before:
            raise RuntimeError(f"[SCHED_INVARIANT] no request can go on: {self._standing()}")

    def _standing(self) -> tuple[int, int, int, int]:
        loop = self.loop
        return len(loop.waiting), len(loop.active), len(loop.swapped), len(loop.preempted)

    def _progress(self, total: int, completed: int) -> WorkerProgress:
        loop, device = self.loop, self.device
        running = [*loop.active, *(s.a for s in loop.swapped), *(p.a for p in loop.preempted)]
        counts = self.telemetry.counts
        return WorkerProgress(
            generated_tokens=counts["generated_tokens"] + sum(len(row.output_tokens) for row in running),
            prompt_tokens=counts["prefill_tokens"],
            completed=completed,
            total=total,
            running=len(loop.active),
            queued=len(loop.waiting) + len(loop.inbox),
            on_hold=loop.parked,
            gpu_pages_used=device.total_blocks - device.free_blocks - device.cached_blocks,
            gpu_pages_total=device.total_blocks,
            host_pages_used=0,
            host_pages_total=0,
        )

    def _abandon(self) -> None:
        """After an interrupt or an error: nothing is held, and the next batch can run."""
        self.loop.abandon()
        self._replies.clear()
