"""Capture and replay of decode steps on static buffers: CUDA graphs on a GPU, the same closures on a CPU."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from batchgen.cuda_graph.adapter import CudaGraphAdapter, GraphCaptureError, GraphMode, GraphSegment
from batchgen.cuda_graph.buffers import GraphPointerError, StaticBuffers

__all__ = ["GraphPointerError", "StaticGraphManager"]

logger = logging.getLogger(__name__)

_WARM_UP_RUNS = 2


@dataclass
class _Captured:
    adapter: CudaGraphAdapter
    gpu_kv_manager: Any
    signature: Hashable
    buffers: StaticBuffers
    prepare: Callable[[], None]
    run: Callable[[], None]


class StaticGraphManager:
    """Captured buckets by size.

    A bucket is captured with every row padded, so that warm-up runs touch no live page. Replay of a bucket
    whose buffers or pools have moved raises GraphPointerError instead of using stale addresses. `replays`
    counts per bucket; `replay_seconds` sums per bucket when BATCHGEN_DECODE_GRAPH_TIMING is on.
    """

    def __init__(self) -> None:
        self._captured: dict[int, _Captured] = {}
        self._memory_pool: Any = None
        self.failed_buckets: dict[int, str] = {}
        self.replays: Counter[int] = Counter()
        self.replay_seconds: dict[int, float] = {}

    def is_captured(self, bucket: int) -> bool:
        return bucket in self._captured

    def captured_buckets(self) -> tuple[int, ...]:
        return tuple(sorted(self._captured))

    def buffers(self, bucket: int) -> StaticBuffers:
        """KeyError when not captured."""
        return self._captured[bucket].buffers

    def capture(self, adapter: CudaGraphAdapter, bucket: int, gpu_kv_manager: Any) -> bool:
        """Capture (again) one bucket; False when that cannot be done, which `failed_buckets` then explains.

        The failure is remembered, by the adapter too: steps of this bucket run eagerly. Only
        GraphCaptureError, what CUDA reports while capturing, and lack of device memory count as such; other
        errors are raised.
        """
        self._captured.pop(bucket, None)
        try:
            if GraphMode.WHOLE_MODEL not in adapter.advertised_modes() or not adapter.is_supported():
                raise GraphCaptureError(f"{adapter.name} cannot be captured whole on this device")
            buffers = adapter.capture_inputs_for(bucket, gpu_kv_manager)
            segments = adapter.build_segments(buffers, gpu_kv_manager)

            def prepare() -> None:
                for segment in segments:
                    segment.prepare()

            with torch.inference_mode(), buffers.all_padding():
                prepare()
                run = self._record(segments, buffers)
        except (GraphCaptureError, torch.OutOfMemoryError) as error:
            self.failed_buckets[bucket] = str(error)
            adapter.note_failed(bucket)
            logger.warning("decode bucket %d was not captured, its steps run eagerly: %s", bucket, error)
            return False
        signature = adapter.capture_signature(bucket, gpu_kv_manager)
        self._captured[bucket] = _Captured(adapter, gpu_kv_manager, signature, buffers, prepare, run)
        self.failed_buckets.pop(bucket, None)
        adapter.note_captured(bucket, signature)
        return True

    def _record(self, segments: tuple[GraphSegment, ...], buffers: StaticBuffers) -> Callable[[], None]:
        def run_segments() -> None:
            for segment in segments:
                segment.run()

        device = next(iter(buffers.inputs.values())).device
        if device.type != "cuda":
            run_segments()
            return run_segments
        try:
            return self._record_on_gpu(run_segments, device)
        except RuntimeError as error:
            raise GraphCaptureError(f"{type(error).__name__}: {error}") from error

    def _record_on_gpu(self, run_segments: Callable[[], None], device: torch.device) -> Callable[[], None]:
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP_RUNS):
                run_segments()
        torch.cuda.current_stream(device).wait_stream(side)
        if self._memory_pool is None:
            self._memory_pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory_pool):
            run_segments()
        return graph.replay

    def replay(self, bucket: int, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run one step; `inputs` as from `prepare_replay_inputs`. Returns the static output buffers: logits
        float32 [bucket, vocab], kv_k / kv_v [layers, bucket, heads, dim], kv_aux [layers, bucket, dim] where
        the model has it, probes. They are valid until the next replay of this bucket; rows beyond the live
        ones are noise.

        RuntimeError when the bucket is not captured; GraphPointerError, before anything is written, when a
        buffer or a pool is not the captured one any more.
        """
        captured = self._captured.get(bucket)
        if captured is None:
            raise RuntimeError(
                f"decode bucket {bucket} is not captured (captured: {self.captured_buckets()}); "
                "ask eligibility() before replay()"
            )
        captured.buffers.audit()
        signature = captured.adapter.capture_signature(bucket, captured.gpu_kv_manager)
        if signature != captured.signature:
            raise GraphPointerError(
                f"decode bucket {bucket} was captured for {captured.signature}, now is {signature}; "
                "capture it again after a pool was rebuilt"
            )
        started = time.perf_counter()
        with torch.inference_mode():
            captured.buffers.fill(inputs, int(inputs["input_ids"].shape[0]))
            captured.prepare()
            captured.run()
        self.replays[bucket] += 1
        if captured.adapter.debug_options().timing:
            device = inputs["input_ids"].device
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds = time.perf_counter() - started
            self.replay_seconds[bucket] = self.replay_seconds.get(bucket, 0.0) + seconds
            logger.info("decode bucket %d replayed in %.3f ms", bucket, seconds * 1e3)
        return dict(captured.buffers.outputs)

    def release(self) -> None:
        """Drop graphs, buffers and their memory pool; failed buckets stay known."""
        self._captured.clear()
        self._memory_pool = None
