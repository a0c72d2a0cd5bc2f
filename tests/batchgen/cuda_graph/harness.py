"""One rank's decode steps on real pools and a real tiny model, eagerly or by replay, with tokens chosen
greedily.

Two `Decoder`s that get the same calls hold the same page ids, so that whole pools can be compared bit by bit.
Fresh pools are full of NaN: a step that reads a slot nobody wrote shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import torch
from torch import Tensor

from batchgen.attention import AttnWrapperBase, TorchPagedAttention
from batchgen.cuda_graph import BatchState, DecodeGraphFlags, Glm5CudaGraphAdapter, StaticGraphManager
from batchgen.kv import DualKVCacheCoordinator, GPUPagedKVCacheManager, KVPoolConfig, StateSlotPool
from batchgen.models import PagedCausalLM, load_model

PAGE = 4
NUM_PAGES = 96
MAX_PAGES = 16
PROMPTS = {
    7: [10, 20, 30, 40, 50],
    3: [9] * 4,
    5: [70, 71, 72, 73, 74, 75, 76],
    2: [33],
    11: list(range(90, 103)),
}


@cache
def tiny(name: str = "tiny", row_exact: bool = False, device: str = "cpu") -> PagedCausalLM:
    model = load_model(name, dtype=torch.float32, device=torch.device(device), row_exact=row_exact).model
    model.pack_for_decode()
    return model


class Decoder:
    def __init__(
        self,
        model: PagedCausalLM,
        *,
        buckets: Sequence[int] = (1, 2, 4, 8),
        flags: DecodeGraphFlags | None = None,
        world_size: int = 1,
        graph_pages: int = MAX_PAGES,
        graph_slots: int = 8,
        max_seqlen: int | None = None,
    ) -> None:
        self.model, self.device = model, model.device
        self.graph_size = (graph_slots, graph_pages)
        primary = self._pool("primary", model.kv_pool_shape(), has_value=True)
        aux = model.aux_pool_shape()
        self.pools = [primary] if aux is None else [primary, self._pool("auxiliary", aux, has_value=False)]
        self.kv = primary if aux is None else DualKVCacheCoordinator(primary, self.pools[1])
        self.kv.initialize()
        shape = model.state_shape()
        self.states = None if shape is None else StateSlotPool(16, shape, device=self.device)
        for pool in self.pools:
            for tensor in filter(lambda t: t is not None, (pool.k_cache, pool.v_cache)):
                tensor.fill_(float("nan"))
        self.backend = TorchPagedAttention()
        self.tokens: dict[int, list[int]] = {}
        self.appended: list[tuple[int, Tensor, Tensor]] = []
        self.appended_aux: list[tuple[int, Tensor]] = []
        self.steps = 0
        self.bind()
        self.manager = StaticGraphManager()
        self.adapter = Glm5CudaGraphAdapter(
            model=model,
            config=model.config,
            device=self.device,
            buckets=buckets,
            max_seqlen=max_seqlen or graph_pages * PAGE,
            world_size=world_size,
            flags=flags or DecodeGraphFlags(),
        )

    def _pool(self, name: str, shape: tuple[int, int, int], *, has_value: bool) -> GPUPagedKVCacheManager:
        layers, heads, dim = shape
        slots, pages = self.graph_size
        config = KVPoolConfig(
            name,
            layers,
            NUM_PAGES,
            PAGE,
            heads,
            dim,
            has_value,
            self.model.dtype,
            graph_max_slots=slots,
            graph_max_pages=pages,
        )
        return GPUPagedKVCacheManager(config, self.device)

    def bind(self, phase: str = "decode") -> None:
        AttnWrapperBase.reset()
        AttnWrapperBase.phase = phase
        AttnWrapperBase.attention_backend = self.backend
        AttnWrapperBase.row_exact = self.model.row_exact
        AttnWrapperBase.gpu_paged_kv_cache_manager = self.kv
        AttnWrapperBase.gpu_paged_kv_manager_primary = self.pools[0]
        AttnWrapperBase.gpu_paged_kv_manager_aux = self.pools[1] if len(self.pools) > 1 else None
        if self.states is not None:
            self.model.bind_states(self.states)

    def admit(self, prompts: Mapping[int, Sequence[int]]) -> None:
        """Prefill each prompt into fresh pages and choose its first token."""
        for gid, prompt in prompts.items():
            self.kv.allocate_pages_for_sequences([gid], [len(prompt) + 1])
            self.bind("prefill")
            if self.states is not None:
                self.states.allocate([gid])
                AttnWrapperBase.state_slots = self.states.slots_for([gid])
            positions = torch.arange(len(prompt), device=self.device)
            slots = (
                torch.tensor(self.kv._sequences[gid], device=self.device)[positions // PAGE] * PAGE
                + positions % PAGE
            )

            def store(layer: int, k: Tensor, v: Tensor, slots: Tensor = slots) -> None:
                for cache_, new in zip(self.pools[0].get_kv_tensors(layer), (k, v), strict=True):
                    cache_.view(-1, *cache_.shape[2:])[slots] = new

            def store_aux(layer: int, k: Tensor, slots: Tensor = slots) -> None:
                cache_ = self.pools[1].get_kv_tensors(layer)[0]
                cache_.view(-1, cache_.shape[-1])[slots] = k

            AttnWrapperBase.cu_seqlens = torch.tensor([0, len(prompt)], dtype=torch.int32)
            AttnWrapperBase.prefill_kv_callback = store
            AttnWrapperBase.prefill_kv_callback_aux = store_aux
            hidden = self.model(torch.tensor(list(prompt), device=self.device), positions)
            token = int(self.model.compute_logits(hidden[-1:]).argmax())
            self.tokens[gid] = [*prompt, token]
        self.bind()

    def drop(self, gid: int) -> None:
        self.kv.free_pages_for_sequences([gid])
        if self.states is not None:
            self.states.release([gid])
        del self.tokens[gid]

    def state(self, ids: Sequence[int], **changes: object) -> BatchState:
        """The step that `ids` would do next, with pages grown and page table rebuilt; `changes` override
        fields."""
        lengths = [len(self.tokens[gid]) for gid in ids]
        for gid, length in zip(ids, lengths, strict=True):
            self.kv.extend_pages_for_sequence(gid, length)
        if ids:
            self.kv.rebuild_page_table(list(ids))
        else:
            self.kv.clear_page_table()
        values: dict[str, object] = {
            "local_bsz": len(ids),
            "max_rank_bsz": len(ids),
            "rank_token_counts": (len(ids),) * self.adapter.world_size,
            "cache_seqlens": torch.tensor(lengths, dtype=torch.int32, device=self.device),
            "position_ids": torch.tensor(lengths, dtype=torch.int64, device=self.device) - 1,
            "max_seqlen": max(lengths, default=0),
            "cur_batch_sequence_ids": list(ids),
            "gpu_kv_manager": self.kv,
            "decode_iter": self.steps,
            "input_ids": torch.tensor(
                [self.tokens[gid][-1] for gid in ids], dtype=torch.int64, device=self.device
            ),
            "state_slots": None if self.states is None else self.states.slots_for(ids),
        }
        return BatchState(**(values | changes))  # type: ignore[arg-type]

    def capture(self, bucket: int) -> None:
        self.bind()
        assert self.manager.capture(self.adapter, bucket, self.kv), self.manager.failed_buckets

    def eager(self, ids: Sequence[int]) -> Tensor:
        state = self.state(ids)
        AttnWrapperBase.cache_seqlens = state.cache_seqlens
        AttnWrapperBase.max_seqlen = state.max_seqlen
        AttnWrapperBase.state_slots = state.state_slots
        self._collect()
        logits = self.model.compute_logits(self.model(state.input_ids, state.position_ids))
        return self._finish(ids, logits)

    def replay(self, ids: Sequence[int], **changes: object) -> Tensor:
        state = self.state(ids, **changes)
        choice = self.adapter.eligibility(state)
        assert choice.use_graph and choice.bucket is not None, choice
        inputs = self.adapter.prepare_replay_inputs(state, choice.bucket)
        outputs = self.manager.replay(choice.bucket, inputs)
        self._collect()
        self.adapter.stage_post_graph_kv(
            state, outputs, AttnWrapperBase.kv_append_callback, AttnWrapperBase.kv_append_callback_aux
        )
        return self._finish(ids, outputs["logits"][: len(ids)].clone())

    def _collect(self) -> None:
        self.appended, self.appended_aux = [], []
        AttnWrapperBase.kv_append_callback = lambda layer, k, v: self.appended.append((layer, k, v))
        AttnWrapperBase.kv_append_callback_aux = lambda layer, k: self.appended_aux.append((layer, k))

    def _finish(self, ids: Sequence[int], logits: Tensor) -> Tensor:
        for gid, token in zip(ids, logits.argmax(1).tolist(), strict=True):
            self.tokens[gid].append(token)
        self.steps += 1
        self.kv.check_invariants()
        return logits

    def pages(self) -> list[Tensor]:
        """Copies of all caches without the scratch page."""
        caches = [c for pool in self.pools for c in (pool.k_cache, pool.v_cache) if c is not None]
        return [cache_[:, :NUM_PAGES].clone() for cache_ in caches]

    def memory(self) -> list[Tensor]:
        """The pages, and the recurrent states where the model has some."""
        return self.pages() + ([] if self.states is None else [self.states.states.clone()])


def same_bits(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    """Equal shapes and bits, NaN included."""
    return len(left) == len(right) and all(
        a.shape == b.shape and torch.equal(a.view(torch.int32), b.view(torch.int32))
        for a, b in zip(left, right, strict=True)
    )
