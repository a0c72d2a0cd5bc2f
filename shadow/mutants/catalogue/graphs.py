"""Capture and replay: what a capture leaves behind, and a replay that is not the step it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shadow.mutants.patch import around, module
from shadow.mutants.registry import Fault, Plant, Where, mutant
from shadow.observation import Kind


@mutant(
    "capture-writes-live-pages",
    Fault.STRUCTURAL,
    Where(Kind.KV, "primary.k.page*", step=12, sequence="b", layer=0),
    cuda_graph_num_buckets=3,
)
@contextmanager
def capture_writes_live_pages(plant: Plant) -> Iterator[None]:
    """TensorRT-LLM#18002: a warm-up run with lengths of its own, on a page table that names live pages."""
    buffers = module(plant, "cuda_graph.buffers").StaticBuffers

    @contextmanager
    def all_padding(original: Any, self: Any) -> Iterator[None]:
        with original(self):
            if plant.step() == 12:
                pool = plant.worker.gpu_paged_kv_cache_manager
                rows = min(self.rows, len(pool.slot_to_seq_id))
                self.inputs["cache_seqlens"][:rows] = 1
                self.in_place["page_table"][:rows] = pool.gpu_table[
                    :rows, : self.in_place["page_table"].shape[1]
                ]
                plant.fired()
            yield

    with around(buffers, "all_padding", all_padding):
        yield


@mutant(
    "step-counter-advanced-at-capture",
    Fault.STRUCTURAL,
    Where(Kind.SEQUENCE, "_rep_count", step=12, sequence="b"),
    cuda_graph_num_buckets=3,
)
@contextmanager
def step_counter_advanced_at_capture(plant: Plant) -> Iterator[None]:
    """FastDeploy#4221, #4235: what is counted in each step of a sequence is counted in the capture, too."""

    def capture(original: Any, *args: Any) -> Any:
        made = original(*args)
        if plant.step() == 12:
            for number in plant.worker.gpu_paged_kv_cache_manager.slot_to_seq_id:
                uuid = plant.worker._global_to_uuid[number]
                plant.worker.global_batch.get_sequence(uuid)._rep_count += 1
            plant.fired()
        return made

    with around(module(plant, "cuda_graph").StaticGraphManager, "capture", capture):
        yield


@mutant(
    "replay-of-another-bucket",
    Fault.STRUCTURAL,
    Where(Kind.LAUNCH, "bucket", step=14),
    cuda_graph_num_buckets=3,
)
@contextmanager
def replay_of_another_bucket(plant: Plant) -> Iterator[None]:
    """vllm#35969: the bucket is chosen by the rows of the step before."""

    def decide(original: Any, adapter: Any, state: Any) -> Any:
        chosen = original(adapter, state)
        if plant.step() == 14:
            plant.fired()
            return replace(chosen, use_graph=True, bucket=4)
        return chosen

    with around(module(plant, "cuda_graph").Glm5CudaGraphAdapter, "eligibility", decide):
        yield


@mutant("replay-given-up", Fault.STRUCTURAL, Where(Kind.LAUNCH, "mode", step=14))
@contextmanager
def replay_given_up(plant: Plant) -> Iterator[None]:
    """vllm#33638 (the other way): steps run eagerly where they should be replayed, and nobody notices."""

    def decide(original: Any, adapter: Any, state: Any) -> Any:
        chosen = original(adapter, state)
        if plant.step() == 14:
            plant.fired()
            return replace(chosen, use_graph=False, bucket=None)
        return chosen

    with around(module(plant, "cuda_graph").Glm5CudaGraphAdapter, "eligibility", decide):
        yield


@mutant("graphs-kept-over-a-phase", Fault.STRUCTURAL, Where(Kind.LAUNCH, "mode", step=20))
@contextmanager
def graphs_kept_over_a_phase(plant: Plant) -> Iterator[None]:
    """B-36: the graph adapter keeps model, segments and pool after the decode phase: the next prefill has no memory."""

    def release(original: Any) -> None:
        if plant.step() == 20:
            plant.fired()
        else:
            original()

    with around(plant.worker, "_release_cuda_graphs", release):
        yield


@mutant("eager-instead-of-replay", Fault.CONTROL, Where(None), pairing="bucket", row_exact=True)
@contextmanager
def eager_instead_of_replay(plant: Plant) -> Iterator[None]:
    """Control (flashinfer#4647): one side replays buckets, the other runs every step eagerly."""

    def decide(original: Any, adapter: Any, state: Any) -> Any:
        chosen = original(adapter, state)
        plant.fired()
        return replace(chosen, use_graph=False, bucket=None)

    with around(module(plant, "cuda_graph").Glm5CudaGraphAdapter, "eligibility", decide):
        yield
