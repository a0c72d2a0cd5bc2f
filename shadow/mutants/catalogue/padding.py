"""Padded rows of a bucket: what a larger batch, or the padding itself, leaves where somebody reads or writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from shadow.mutants.patch import around, module
from shadow.mutants.registry import Fault, Plant, Where, mutant
from shadow.observation import Kind

SHRUNK = 32  # the first step of two rows in the bucket of four, after steps of three


@mutant("padded-row-keeps-old-sequence", Fault.STRUCTURAL, Where(Kind.INVARIANT, "pad-rows", step=SHRUNK))
@contextmanager
def padded_row_keeps_old_sequence(plant: Plant) -> Iterator[None]:
    """rtp-llm#1321, lmdeploy#4569: rows of the bucket beyond the batch keep the sequence that a larger batch had
    there, and write its KV into pages that belong to another one by now."""

    def clean(original: Any, buffers: Any, live_rows: int) -> None:
        if plant.step() < SHRUNK or live_rows == 0:
            original(buffers, live_rows)
        elif plant.step() == SHRUNK:
            plant.fired()

    def fill(original: Any, table: Any) -> Any:
        before = table.ensure_graph_table().clone()
        graph = original(table)
        if plant.step() >= SHRUNK:
            graph[len(table.slot_to_seq_id) :] = before[len(table.slot_to_seq_id) :]
        return graph

    buffers = module(plant, "cuda_graph.buffers").StaticBuffers
    table = module(plant, "kv.page_table").PageTable
    with around(buffers, "clean_padding", clean), around(table, "fill_graph_table", fill):
        yield


@mutant(
    "padded-slot-not-cleared",
    Fault.STRUCTURAL,
    Where(Kind.WRITE_SET, "primary.positions*", step=SHRUNK, sequence="f"),
)
@contextmanager
def padded_slot_not_cleared(plant: Plant) -> Iterator[None]:
    """sglang#24743: the list of slots to write keeps its old value in padded rows; only the list, tables and
    lengths are clean."""
    last: list[Any] = []

    def plan(original: Any, backend: Any, table: Any, kv_len: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(backend, table, kv_len, *args, **kwargs)
        padded = made.kv_len == 0
        if plant.step() >= SHRUNK and last and bool(padded.any()):
            slots = made.write_indices.clone()
            slots[padded] = last[0][: len(slots)][padded]
            plant.fired()
            return replace(made, write_indices=slots)
        last[:] = [made.write_indices.clone()]
        return made

    with around(module(plant, "attention.torch_paged").TorchPagedAttention, "plan_decode", plan):
        yield


@mutant("padding-slot-wraps-to-last-page", Fault.STRUCTURAL, Where(Kind.PLAN, "plan.padded*", step=4))
@contextmanager
def padding_slot_wraps_to_last_page(plant: Plant) -> Iterator[None]:
    """vllm#43810: the slot -1 of a padded row is used as an index and wraps to the last slot of the last page."""

    def plan(
        original: Any, backend: Any, table: Any, kv_len: Any, size: int, scratch: int, *rest: Any
    ) -> Any:
        made = original(backend, table, kv_len, size, scratch, *rest)
        padded = made.kv_len == 0
        if not bool(padded.any()) or plant.step() < 4 or len(padded) == int(padded.sum()):
            return made
        plant.fired()
        return replace(made, write_indices=made.write_indices.masked_fill(padded, scratch * size - 1))

    with around(module(plant, "attention.torch_paged").TorchPagedAttention, "plan_decode", plan):
        yield


@mutant("padded-row-is-one-token-on-page-zero", Fault.STRUCTURAL, Where(Kind.INVARIANT, "pad-rows", step=4))
@contextmanager
def padded_row_is_one_token_on_page_zero(plant: Plant) -> Iterator[None]:
    """lmdeploy#4569, vllm#35969: a padded row counts one token on page 0, which is nobody's where page 0 is
    reserved, and somebody's here."""

    def clean(original: Any, buffers: Any, live_rows: int) -> None:
        original(buffers, live_rows)
        if plant.step() >= 4 and 0 < live_rows < buffers.rows:
            buffers.inputs["cache_seqlens"][live_rows:] = 1
            buffers.in_place["page_table"][live_rows:] = 0
            plant.fired()

    with around(module(plant, "cuda_graph.buffers").StaticBuffers, "clean_padding", clean):
        yield


@mutant("padded-rows-name-page-zero", Fault.STRUCTURAL, Where(Kind.INVARIANT, "pad-rows", step=4))
@contextmanager
def padded_rows_name_page_zero(plant: Plant) -> Iterator[None]:
    """B-47: the page table of padded rows is filled with 0, a valid page, instead of -1; masked by length, so far."""

    def clean(original: Any, buffers: Any, live_rows: int) -> None:
        original(buffers, live_rows)
        if plant.step() >= 4 and 0 < live_rows < buffers.rows:
            buffers.in_place["page_table"][live_rows:] = 0
            plant.fired()

    with around(module(plant, "cuda_graph.buffers").StaticBuffers, "clean_padding", clean):
        yield


@mutant(
    "static-input-left-stale",
    Fault.STRUCTURAL,
    Where(Kind.PLAN, "static.position_ids", step=13, sequence="b"),
)
@contextmanager
def static_input_left_stale(plant: Plant) -> Iterator[None]:
    """vllm#33638: one static input is not refreshed any more: positions are those of the step before."""

    def fill(original: Any, buffers: Any, step: Any, live_rows: int) -> None:
        before = buffers.inputs["position_ids"].clone()
        original(buffers, step, live_rows)
        if plant.step() == 13:
            buffers.inputs["position_ids"].copy_(before)
            plant.fired()

    with around(module(plant, "cuda_graph.buffers").StaticBuffers, "fill", fill):
        yield


@mutant(
    "unread-static-input-left-stale",
    Fault.STRUCTURAL,
    Where(Kind.PLAN, "static.num_valid_tokens*", step=SHRUNK),
)
@contextmanager
def unread_static_input_left_stale(plant: Plant) -> Iterator[None]:
    """sglang#37975: an input that this kernel does not read is not refreshed: num_valid_tokens says three rows
    where there are two."""

    def fill(original: Any, buffers: Any, step: Any, live_rows: int) -> None:
        before = buffers.inputs["num_valid_tokens"].clone()
        original(buffers, step, live_rows)
        if plant.step() == SHRUNK:
            buffers.inputs["num_valid_tokens"].copy_(before)
            plant.fired()

    with around(module(plant, "cuda_graph.buffers").StaticBuffers, "fill", fill):
        yield


@mutant("captured-buffer-replaced", Fault.STRUCTURAL, Where(Kind.PLAN, "plan.kv_len", step=13, sequence="b"))
@contextmanager
def captured_buffer_replaced(plant: Plant) -> Iterator[None]:
    """vllm#35175: lengths are written to a fresh tensor at each step, the replay reads the captured one; nobody
    audits the addresses."""

    def fill(original: Any, buffers: Any, step: Any, live_rows: int) -> None:
        if plant.step() >= 13:
            buffers.inputs["cache_seqlens"] = buffers.inputs["cache_seqlens"].clone()
            plant.fired()
        original(buffers, step, live_rows)

    cls = module(plant, "cuda_graph.buffers").StaticBuffers
    with around(cls, "fill", fill), around(cls, "audit", lambda original, buffers: None):
        yield


@mutant("harmless-larger-bucket", Fault.CONTROL, Where(None), cuda_graph_num_buckets=4)
@contextmanager
def harmless_larger_bucket(plant: Plant) -> Iterator[None]:
    """Control: three rows are replayed in the bucket of four although there is one of three."""
    plant.fired()
    with nullcontext():
        yield
