"""Prompts through the model, packed, with the KV of every layer written to the blocks of their sequences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from batchgen.attention import AttentionBackend, PrefillPrefix
from batchgen.cuda_graph import CaptureContext
from batchgen.kv import DualKVCacheCoordinator, StateSlotPool
from batchgen.models import PagedCausalLM
from batchgen.scheduler.sequences import SequenceState


class PrefillForward:
    """One forward over the tokens of several sequences whose blocks are there; of their KV only a beginning may be."""

    def __init__(
        self, model: PagedCausalLM, pool: Any, slots: StateSlotPool, attention: AttentionBackend
    ) -> None:
        self._model, self._pool, self._slots, self._attention = model, pool, slots, attention

    def run(
        self, prompts: Sequence[Sequence[int]], seqs: Sequence[SequenceState], starts: Sequence[int]
    ) -> Tensor:
        """The logits of each last token, float32 [sequences, vocab]. Sequences are not advanced.

        The blocks of a sequence hold the KV of its first `starts[i]` tokens already.
        """
        device = self._model.device
        spans = [range(start, len(prompt)) for start, prompt in zip(starts, prompts, strict=True)]
        bounds = list(accumulate((len(span) for span in spans), initial=0))
        input_ids = torch.tensor(
            [prompt[at] for span, prompt in zip(spans, prompts, strict=True) for at in span],
            dtype=torch.int64,
        )
        position_ids = torch.cat([torch.arange(span.start, span.stop) for span in spans])
        bound = CaptureContext(**self._bindings(seqs, spans, bounds))
        with bound, torch.inference_mode():
            hidden = self._model(input_ids.to(device), position_ids.to(device))
            last = torch.tensor(bounds[1:], dtype=torch.int64, device=device) - 1
            return self._model.compute_logits(hidden[last])

    def _bindings(
        self, seqs: Sequence[SequenceState], spans: Sequence[range], bounds: list[int]
    ) -> dict[str, Any]:
        pool = self._pool
        primary: Any = pool
        auxiliary: Any = None
        if isinstance(pool, DualKVCacheCoordinator):
            primary, auxiliary = pool.primary, pool.auxiliary
        slots = torch.cat([self._token_slots(seq, span) for seq, span in zip(seqs, spans, strict=True)])

        def write(layer: int, k: Tensor, v: Tensor) -> None:
            k_pool, v_pool = primary.get_kv_tensors(layer)
            k_pool.view(-1, *k_pool.shape[2:]).index_copy_(0, slots, k.to(k_pool.dtype))
            v_pool.view(-1, *v_pool.shape[2:]).index_copy_(0, slots, v.to(v_pool.dtype))

        def write_index_keys(layer: int, k: Tensor) -> None:
            keys, _ = auxiliary.get_kv_tensors(layer)
            keys.view(-1, *keys.shape[2:]).index_copy_(0, slots, k.unsqueeze(1).to(keys.dtype))

        prefix = None
        if any(span.start for span in spans):
            before = tuple(
                self._token_slots(seq, range(span.start)) for seq, span in zip(seqs, spans, strict=True)
            )
            prefix = PrefillPrefix(before, tuple(bounds))
        gids = [seq.slot_idx for seq in seqs]
        return {
            "phase": "prefill",
            "attention_backend": self._attention,
            "row_exact": self._model.row_exact,
            "gpu_paged_kv_cache_manager": pool,
            "gpu_paged_kv_manager_primary": primary,
            "gpu_paged_kv_manager_aux": auxiliary,
            "cur_batch": gids,
            "cu_seqlens": torch.tensor(bounds, dtype=torch.int32),
            "prefill_kv_callback": write,
            "prefill_kv_callback_aux": None if auxiliary is None else write_index_keys,
            "prefill_prefix": prefix,
            "state_slots": self._slots.slots_for(gids),
        }

    def _token_slots(self, seq: SequenceState, positions: range) -> Tensor:
        """int64: where in the pool each of these tokens lies."""
        size = self._pool.config.page_size
        at = torch.arange(positions.start, positions.stop)
        blocks = torch.tensor(seq.block_table, dtype=torch.int64)
        return (blocks[at // size] * size + at % size).to(self._model.device)
