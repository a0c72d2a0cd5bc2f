"""Drives a PagedCausalLM through real pools, as the worker does: prefill, then one token a row and step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from batchgen.attention import AttnWrapperBase, TorchPagedAttention
from batchgen.kv import GPUPagedKVCacheManager, KVPoolConfig, StateSlotPool
from batchgen.models import PagedCausalLM


class PagedRunner:
    """Greedy generation of several sequences in one batch; ``history`` keeps the logits of every choice.

    ``slots``: of the state pool, where the model has states.
    """

    def __init__(
        self, model: PagedCausalLM, *, page_size: int = 4, num_pages: int = 1024, slots: int = 64
    ) -> None:
        self.model = model
        self.pool = self._pool("primary", model.kv_pool_shape(), page_size, num_pages, has_value=True)
        aux = model.aux_pool_shape()
        self.aux = (
            None if aux is None else self._pool("auxiliary", aux, page_size, num_pages, has_value=False)
        )
        shape = model.state_shape()
        self.states = None if shape is None else StateSlotPool(slots, shape)
        self.tokens: dict[int, list[int]] = {}
        self.history: dict[int, list[Tensor]] = {}
        self.keys: dict[int, list[list[Tensor]]] = {}

    def _pool(
        self, name: str, shape: tuple[int, int, int], page_size: int, num_pages: int, *, has_value: bool
    ) -> GPUPagedKVCacheManager:
        layers, heads, dim = shape
        config = KVPoolConfig(name, layers, num_pages, page_size, heads, dim, has_value, self.model.dtype)
        pool = GPUPagedKVCacheManager(config, torch.device("cpu"))
        pool.initialize()
        return pool

    def _pools(self) -> list[GPUPagedKVCacheManager]:
        return [self.pool] if self.aux is None else [self.pool, self.aux]

    def bind(self, phase: str) -> None:
        AttnWrapperBase.reset()
        AttnWrapperBase.phase = phase
        AttnWrapperBase.attention_backend = TorchPagedAttention()
        AttnWrapperBase.row_exact = self.model.row_exact
        AttnWrapperBase.gpu_paged_kv_manager_primary = self.pool
        AttnWrapperBase.gpu_paged_kv_manager_aux = self.aux

    def bind_states(self, ids: Sequence[int]) -> None:
        """The state slots of ``ids``, new ones where they have none."""
        if self.states is None:
            return
        self.model.bind_states(self.states)
        self.states.allocate([gid for gid in ids if not self.states.has(gid)])
        AttnWrapperBase.state_slots = self.states.slots_for(ids)

    def free(self, ids: Sequence[int]) -> None:
        for pool in self._pools():
            pool.free_pages_for_sequences(list(ids))
        if self.states is not None:
            self.states.release(list(ids))

    def prefill(self, prompts: dict[int, Sequence[int]], room: int = 0) -> Tensor:
        """Run the prompts packed, fill their pages, append the first token; logits [n, vocab]."""
        self.bind("prefill")
        ids = list(prompts)
        self.bind_states(ids)
        lengths = [len(prompts[i]) for i in ids]
        for pool in self._pools():
            pool.allocate_pages_for_sequences(ids, [n + room for n in lengths])
        bounds = [0, *torch.tensor(lengths).cumsum(0).tolist()]

        def store(pool: GPUPagedKVCacheManager, layer: int, k: Tensor, v: Tensor | None) -> None:
            k_pool, v_pool = pool.get_kv_tensors(layer)
            size = pool.config.page_size
            for gid, start, stop in zip(ids, bounds, bounds[1:], strict=False):
                pages = torch.tensor(pool._sequences[gid])
                at = torch.arange(stop - start)
                slots = pages[at // size] * size + at % size
                k_pool.view(-1, *k_pool.shape[2:])[slots] = k[start:stop].view(-1, *k_pool.shape[2:])
                if v is not None and v_pool is not None:
                    v_pool.view(-1, *v_pool.shape[2:])[slots] = v[start:stop]

        AttnWrapperBase.cu_seqlens = torch.tensor(bounds, dtype=torch.int32)
        AttnWrapperBase.prefill_kv_callback = lambda layer, k, v: store(self.pool, layer, k, v)
        if self.aux is not None:
            aux = self.aux
            AttnWrapperBase.prefill_kv_callback_aux = lambda layer, k: store(aux, layer, k, None)
        flat = torch.tensor([t for i in ids for t in prompts[i]])
        positions = torch.cat([torch.arange(n) for n in lengths])
        hidden = self.model(flat, positions)
        logits = self.model.compute_logits(hidden[torch.tensor(bounds[1:]) - 1])
        for row, gid in enumerate(ids):
            self.tokens[gid] = list(prompts[gid])
            self.history[gid] = []
            self._choose(gid, logits[row])
        return logits

    def _choose(self, gid: int, logits: Tensor) -> None:
        self.history[gid].append(logits.clone())
        self.tokens[gid].append(int(logits.argmax()))

    def decode(self, ids: Sequence[int]) -> Tensor:
        """One step for ``ids``, in that row order; logits [n, vocab]."""
        self.bind("decode")
        self.bind_states(ids)
        lengths = torch.tensor([len(self.tokens[i]) for i in ids], dtype=torch.int32)
        for pool in self._pools():
            for gid in ids:
                pool.extend_pages_for_sequence(gid, len(self.tokens[gid]))
            if ids:
                pool.rebuild_page_table(list(ids))
        AttnWrapperBase.cache_seqlens = lengths
        positions = lengths.to(torch.int64) - 1
        inputs = torch.tensor([self.tokens[i][-1] for i in ids], dtype=torch.int64)
        logits = self.model.compute_logits(self.model(inputs, positions))
        for row, gid in enumerate(ids):
            self._choose(gid, logits[row])
        return logits

    def generate(self, prompts: Sequence[Sequence[int]], new_tokens: int, batch: int = 16) -> list[list[int]]:
        """``new_tokens`` greedy tokens after each prompt, ``batch`` sequences decoded together."""
        results: list[list[int]] = []
        for start in range(0, len(prompts), batch):
            part = dict(enumerate(prompts[start : start + batch], start))
            self.prefill(part)
            for _ in range(new_tokens - 1):
                self.decode(list(part))
            results += [self.tokens[gid][len(prompts[gid]) :] for gid in part]
            self.free(list(part))
        return results
