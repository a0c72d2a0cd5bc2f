"""Three mutants for the real model; they name the rows by the labels of tests/shadow/test_mutants_real.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shadow.mutants import Fault, Plant, Where, mutant
from shadow.mutants.patch import around, module, row
from shadow.observation import Kind


@mutant("real-kv-len-one-short", Fault.STRUCTURAL, Where(Kind.PAGE_TABLE, "kv_len", step=21, sequence="r1"))
@contextmanager
def kv_len_one_short(plant: Plant) -> Iterator[None]:
    """nano-vllm#258: a row's length leaves out the token of this step."""
    wrapper = module(plant, "attention").AttnWrapperBase

    def bind(original: Any, sequences: Sequence[Any]) -> int:
        longest = int(original(sequences))
        at = row(plant, "r1")
        if plant.step() == 21 and at is not None:
            wrapper.cache_seqlens = wrapper.cache_seqlens.clone()
            wrapper.cache_seqlens[at] -= 1
            plant.fired()
        return longest

    with around(plant.worker, "_bind_decode_attention_metadata", bind):
        yield


@mutant(
    "real-values-scaled",
    Fault.NUMERIC,
    Where(Kind.KV, "primary.v.written*", step=40, sequence="r0", layer=29),
)
@contextmanager
def values_scaled(plant: Plant) -> Iterator[None]:
    """m19: the values of the last layer are one per cent too large."""

    def append(original: Any, backend: Any, k: Any, v: Any, k_pool: Any, v_pool: Any, plan: Any) -> None:
        last = plant.worker.gpu_paged_kv_cache_manager.get_kv_tensors(29)[0]
        if plant.step() == 40 and v is not None and k_pool.data_ptr() == last.data_ptr():
            v = v * 1.01
            plant.fired()
        original(backend, k, v, k_pool, v_pool, plan)

    with around(module(plant, "attention.torch_paged").TorchPagedAttention, "append", append):
        yield


@mutant("real-tokens-swapped", Fault.NUMERIC, Where(Kind.TOKENS, "token", step=50))
@contextmanager
def tokens_swapped(plant: Plant) -> Iterator[None]:
    """vllm#25279: rows 0 and 1 get each other's token."""

    def select(original: Any, logits: Any, params: Any, positions: Any) -> Any:
        tokens, logprobs = original(logits, params, positions)
        if plant.step() == 50 and len(tokens) > 1:
            tokens = tokens.flip(0)
            plant.fired()
        return tokens, logprobs

    with around(module(plant, "batchgen_worker"), "select_tokens", select):
        yield
