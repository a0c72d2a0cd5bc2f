"""Positions and lengths: where a token is rotated to, where it is written, and how much of the past is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shadow.mutants.patch import around, module, row
from shadow.mutants.registry import Fault, Plant, Where, mutant
from shadow.observation import Kind


def _backend(plant: Plant) -> Any:
    return module(plant, "attention.torch_paged").TorchPagedAttention


def _wrapper(plant: Plant) -> Any:
    return module(plant, "attention").AttnWrapperBase


@mutant("rope-one-position-on", Fault.NUMERIC, Where(Kind.BINDING, "position_ids", step=13, sequence="d"))
@contextmanager
def rope_one_position_on(plant: Plant) -> Iterator[None]:
    """sglang#25015: a row is rotated to the position after its own."""

    def bind(original: Any, sequences: Sequence[Any]) -> int:
        longest = original(sequences)
        at = row(plant, "d")
        if plant.step() == 13 and at is not None:
            positions = _wrapper(plant).position_ids.clone()
            positions[at] += 1
            _wrapper(plant).position_ids = positions
            plant.fired()
        return int(longest)

    with around(plant.worker, "_bind_decode_attention_metadata", bind):
        yield


@mutant(
    "rope-at-position-zero",
    Fault.NUMERIC,
    Where(Kind.PLAN, "static.position_ids", step=13, sequence="b"),
)
@contextmanager
def rope_at_position_zero(plant: Plant) -> Iterator[None]:
    """B-54: positions are not passed on: every row is rotated to position 0."""

    def inputs(original: Any, adapter: Any, state: Any, bucket: int) -> Any:
        made = original(adapter, state, bucket)
        if plant.step() == 13:
            made["position_ids"] = made["position_ids"] * 0
            plant.fired()
        return made

    with around(module(plant, "cuda_graph").Glm5CudaGraphAdapter, "prepare_replay_inputs", inputs):
        yield


@mutant("write-one-slot-on", Fault.STRUCTURAL, Where(Kind.PLAN, "plan.write_offset", step=13, sequence="d"))
@contextmanager
def write_one_slot_on(plant: Plant) -> Iterator[None]:
    """onnxruntime-genai#2354: the KV of a row lands one slot further on and leaves a hole behind."""

    def plan(original: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(backend, *args, **kwargs)
        at = row(plant, "d")
        if plant.step() != 13 or at is None:
            return made
        slots = made.write_indices.clone()
        slots[at] += 1
        plant.fired()
        return replace(made, write_indices=slots)

    with around(_backend(plant), "plan_decode", plan):
        yield


@mutant("newest-token-not-attended", Fault.STRUCTURAL, Where(Kind.PLAN, "plan.kv_len", step=13, sequence="b"))
@contextmanager
def newest_token_not_attended(plant: Plant) -> Iterator[None]:
    """flashinfer (last_page_len off by one): a row reads all of its past but the token that it has just written."""

    def plan(original: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(backend, *args, **kwargs)
        at = row(plant, "b")
        if plant.step() != 13 or at is None or made.mask is None:
            return made
        lengths, mask = made.kv_len.clone(), made.mask.clone()
        lengths[at] -= 1
        mask[at, int(lengths[at])] = False
        plant.fired()
        return replace(made, kv_len=lengths, mask=mask)

    with around(_backend(plant), "plan_decode", plan):
        yield


@mutant(
    "surplus-page-at-exact-multiple", Fault.STRUCTURAL, Where(Kind.PLAN, "plan.kv_len", step=12, sequence="b")
)
@contextmanager
def surplus_page_at_exact_multiple(plant: Plant) -> Iterator[None]:
    """pegainfer#291: when a sequence fills its pages exactly, the page reserved for the next token is read, too."""

    def plan(
        original: Any, backend: Any, table: Any, kv_len: Any, size: int, scratch: int, longest: Any = None
    ) -> Any:
        made = original(backend, table, kv_len, size, scratch, longest)
        at = row(plant, "b")
        if plant.step() != 12 or at is None or made.mask is None or int(made.kv_len[at]) % size:
            return made
        have = int(made.kv_len[at])
        lengths, mask, slots = made.kv_len.clone(), made.mask.clone(), made.token_indices.clone()
        more = min(size, slots.shape[1] - have)
        page = int(table[at, have // size])
        for offset in range(more):
            slots[at, have + offset] = page * size + offset
        mask[at, have : have + more] = True
        lengths[at] += more
        plant.fired()
        return replace(made, kv_len=lengths, mask=mask, token_indices=slots)

    with around(_backend(plant), "plan_decode", plan):
        yield


@mutant("plan-of-the-capture", Fault.STRUCTURAL, Where(Kind.PLAN, "plan.kv_len", step=14, sequence="b"))
@contextmanager
def plan_of_the_capture(plant: Plant) -> Iterator[None]:
    """TensorRT-LLM#18769, rtp-llm#1084: the plan belongs to the bucket and is not made again for a replay: rows
    read and write by the lengths of an earlier step."""
    last: list[Any] = []

    def plan(original: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
        if plant.step() == 14 and last:
            plant.fired()
            return replace(last[0], derived={})
        made = original(backend, *args, **kwargs)
        last[:] = [made]
        return made

    with around(_backend(plant), "plan_decode", plan):
        yield


@mutant(
    "rows-behind-the-first-take-its-length",
    Fault.STRUCTURAL,
    Where(Kind.PLAN, "plan.kv_len", step=9, sequence="d"),
)
@contextmanager
def rows_behind_the_first_take_its_length(plant: Plant) -> Iterator[None]:
    """TensorRT-LLM#18443: lengths of a warm-up with (longest, 1, 1, 1): row 0 is right, the others read one token."""

    def plan(original: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(backend, *args, **kwargs)
        if plant.step() != 9 or len(made.kv_len) < 3:
            return made
        mask = made.mask.clone()
        mask[1:3, 1:] = False
        lengths = made.kv_len.clone()
        lengths[1:3] = 1
        plant.fired()
        return replace(made, mask=mask, kv_len=lengths)

    with around(_backend(plant), "plan_decode", plan):
        yield


@mutant(
    "longest-length-of-the-capture", Fault.STRUCTURAL, Where(Kind.PLAN, "plan.kv_len", step=10, sequence="d")
)
@contextmanager
def longest_length_of_the_capture(plant: Plant) -> Iterator[None]:
    """transformers#45323: the graph's key lacks the longest length: a row that has outgrown it is read up to there."""
    captured = 34

    def plan(original: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(backend, *args, **kwargs)
        if plant.step() != 10 or int(made.kv_len.max()) <= captured:
            return made
        mask = made.mask.clone()
        mask[:, captured:] = False
        plant.fired()
        return replace(made, mask=mask, kv_len=made.kv_len.clamp_max(captured))

    with around(_backend(plant), "plan_decode", plan):
        yield


@mutant(
    "lengths-advance-over-a-change", Fault.STRUCTURAL, Where(Kind.PAGE_TABLE, "kv_len", step=32, sequence="f")
)
@contextmanager
def lengths_advance_over_a_change(plant: Plant) -> Iterator[None]:
    """B-03, rtp-llm#1254: lengths are counted up in place although other rows have come in their places."""

    def bind(original: Any, sequences: Sequence[Any]) -> int:
        if plant.step() == 32:
            rows = [entry.global_idx for entry in sequences]
            lengths = [entry.current_context_length - 1 for entry in sequences]
            plant.worker._decode_metadata_key = (rows, lengths)
            plant.fired()
        return int(original(sequences))

    with around(plant.worker, "_bind_decode_attention_metadata", bind):
        yield


@mutant("kv-len-one-short", Fault.STRUCTURAL, Where(Kind.PAGE_TABLE, "kv_len", step=21, sequence="e"))
@contextmanager
def kv_len_one_short(plant: Plant) -> Iterator[None]:
    """nano-vllm#258, vllm#42273: a row's length leaves out the token of this step: it writes over the one before."""

    def bind(original: Any, sequences: Sequence[Any]) -> int:
        longest = original(sequences)
        at = row(plant, "e")
        if plant.step() == 21 and at is not None:
            lengths = _wrapper(plant).cache_seqlens.clone()
            lengths[at] -= 1
            _wrapper(plant).cache_seqlens = lengths
            plant.fired()
        return int(longest)

    with around(plant.worker, "_bind_decode_attention_metadata", bind):
        yield


@mutant("values-scaled", Fault.NUMERIC, Where(Kind.KV, "primary.v.written*", step=13, sequence="b", layer=2))
@contextmanager
def values_scaled(plant: Plant) -> Iterator[None]:
    """m19 (a quantisation scale of another layer): the values of one layer are one per cent too large."""

    def append(original: Any, backend: Any, k: Any, v: Any, k_pool: Any, v_pool: Any, plan: Any) -> None:
        last_layer = plant.worker.gpu_paged_kv_cache_manager.get_kv_tensors(2)[0]
        if plant.step() >= 13 and v is not None and k_pool.data_ptr() == last_layer.data_ptr():
            v = v * 1.01
            plant.fired()
        original(backend, k, v, k_pool, v_pool, plan)

    with around(_backend(plant), "append", append):
        yield


@mutant("attention-summed-in-halves", Fault.CONTROL, Where(None), pairing="split")
@contextmanager
def attention_summed_in_halves(plant: Plant) -> Iterator[None]:
    """Control (flashinfer#4647): each row's past is read in two halves whose partial sums are merged."""

    def decode(
        original: Any, backend: Any, q: Any, k_pool: Any, v_pool: Any, plan: Any, *, scale: float, **more: Any
    ) -> Any:
        torch = __import__("torch")
        width = plan.token_indices.shape[1]
        if width < 2 or q.shape[0] == 0 or more.get("topk") is not None or more.get("row_exact"):
            return original(backend, q, k_pool, v_pool, plan, scale=scale, **more)
        plant.fired()
        keys = k_pool.view(-1, *k_pool.shape[2:])[plan.token_indices]
        values = v_pool.view(-1, *v_pool.shape[2:])[plan.token_indices]
        groups = q.shape[1] // keys.shape[2]
        keys, values = (x.repeat_interleave(groups, 2) for x in (keys, values))
        scores = torch.einsum("bhd,blhd->bhl", q, keys) * scale
        if plan.mask is not None:
            scores = scores.masked_fill(~plan.mask[:, None, :], float("-inf"))
        top = scores.max(-1, keepdim=True).values
        weights = (scores - top).exp()
        parts = [slice(0, width // 2), slice(width // 2, width)]
        summed = [torch.einsum("bhl,blhd->bhd", weights[..., p], values[:, p]) for p in parts]
        norms = [weights[..., p].sum(-1, keepdim=True) for p in parts]
        return (summed[0] + summed[1]) / (norms[0] + norms[1])

    with around(_backend(plant), "decode", decode):
        yield
