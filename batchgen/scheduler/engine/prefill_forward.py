"""Prompts through the model, packed, with the KV of every layer written to the blocks of their sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from batchgen.attention import AttentionBackend
from batchgen.cuda_graph import CaptureContext
from batchgen.kv import DualKVCacheCoordinator, StateSlotPool
from batchgen.models import PagedCausalLM
from batchgen.scheduler.sequences import SequenceState


class PrefillForward:
    """One forward over the tokens of several sequences whose blocks are there and whose KV is not."""

    def __init__(
        self, model: PagedCausalLM, pool: Any, slots: StateSlotPool, attention: AttentionBackend
    ) -> None:
        self._model, self._pool, self._slots, self._attention = model, pool, slots, attention

    def run(self, prompts: Sequence[Sequence[int]], seqs: Sequence[SequenceState]) -> Tensor:
        """The logits of each last token, float32 [sequences, vocab]. Sequences are not advanced."""
        device = self._model.device
        lengths = [len(prompt) for prompt in prompts]
        cu_seqlens = torch.zeros(len(lengths) + 1, dtype=torch.int32)
        cu_seqlens[1:] = torch.tensor(lengths, dtype=torch.int32).cumsum(0)
        input_ids = torch.tensor([token for prompt in prompts for token in prompt], dtype=torch.int64)
        position_ids = torch.cat([torch.arange(length) for length in lengths])
        gids = [seq.slot_idx for seq in seqs]
        bound = CaptureContext(**self._bindings(seqs, lengths), cu_seqlens=cu_seqlens, cur_batch=gids)
        with bound, torch.inference_mode():
            hidden = self._model(input_ids.to(device), position_ids.to(device))
            last = (cu_seqlens[1:] - 1).to(device=device, dtype=torch.int64)
            return self._model.compute_logits(hidden[last])

    def _bindings(self, seqs: Sequence[SequenceState], lengths: Sequence[int]) -> dict[str, Any]:
        pool = self._pool
        primary: Any = pool
        auxiliary: Any = None
        if isinstance(pool, DualKVCacheCoordinator):
            primary, auxiliary = pool.primary, pool.auxiliary
        slots = self._token_slots(seqs, lengths)

        def write(layer: int, k: Tensor, v: Tensor) -> None:
            k_pool, v_pool = primary.get_kv_tensors(layer)
            k_pool.view(-1, *k_pool.shape[2:]).index_copy_(0, slots, k.to(k_pool.dtype))
            v_pool.view(-1, *v_pool.shape[2:]).index_copy_(0, slots, v.to(v_pool.dtype))

        def write_index_keys(layer: int, k: Tensor) -> None:
            keys, _ = auxiliary.get_kv_tensors(layer)
            keys.view(-1, *keys.shape[2:]).index_copy_(0, slots, k.unsqueeze(1).to(keys.dtype))

        return {
            "phase": "prefill",
            "attention_backend": self._attention,
            "row_exact": self._model.row_exact,
            "prefill_kv_callback": write,
            "prefill_kv_callback_aux": None if auxiliary is None else write_index_keys,
            "state_slots": self._slots.slots_for([seq.slot_idx for seq in seqs]),
        }

    def _token_slots(self, seqs: Sequence[SequenceState], lengths: Sequence[int]) -> Tensor:
        """int64 [tokens]: where in the pool each token goes."""
        size = self._pool.config.page_size
        parts = []
        for seq, length in zip(seqs, lengths, strict=True):
            positions = torch.arange(length)
            blocks = torch.tensor(seq.block_table, dtype=torch.int64)
            parts.append(blocks[positions // size] * size + positions % size)
        return torch.cat(parts).to(self._model.device)
