"""The Llama family over paged attention: one forward for packed prefill and for paged decode.

Some layers may be gated linear recurrences instead (``batchgen.models.recurrent``).

Every layer works on packed rows [T, hidden].  Whether they are prompts or one new token per sequence is
known to the attention wrapper only (``AttnWrapperBase.phase``).  With ``row_exact`` every operation is run
on one row at a time, in prefill and decode through the same calls, so that a row's bits depend on nothing
but its own history.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from batchgen.attention import AttnWrapperBase, IndexInputs
from batchgen.config import ModelConfig
from batchgen.kv import StateSlotPool
from batchgen.models.block import Block, Loader, RMSNorm, Rows, one_by_one, together
from batchgen.models.linear import PackableLinear, can_pack
from batchgen.models.recurrent import RecurrentBlock
from batchgen.models.rope import apply_rope, inverse_frequencies, rope_tables
from batchgen.models.states import RecurrenceCounts, RecurrentStates
from batchgen.models.weights import WeightSource

__all__ = ["PagedCausalLM"]


class PagedCausalLM(nn.Module):
    """Decoder-only model whose KV lives in the pools bound on ``AttnWrapperBase``."""

    def __init__(
        self,
        config: ModelConfig,
        source: WeightSource,
        *,
        dtype: torch.dtype,
        device: torch.device,
        row_exact: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.row_exact = row_exact
        loader = Loader(source, dtype, device)
        hidden, vocab = config.hidden_size, config.vocab_size
        self.register_buffer("embedding", loader.tensor("model.embed_tokens.weight", vocab, hidden))
        self.embedding: Tensor
        self.recurrence = RecurrentStates(config) if config.recurrent_layers else None
        self.layers = nn.ModuleList(_blocks(config, loader, self.recurrence))
        self.norm = RMSNorm(loader.tensor("model.norm.weight", hidden), config.rms_norm_eps)
        self.lm_head = PackableLinear(
            self.embedding if config.tie_word_embeddings else loader.tensor("lm_head.weight", vocab, hidden)
        )
        self.register_buffer("frequencies", inverse_frequencies(config).to(device))
        self.frequencies: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @torch.no_grad()
    def forward(self, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        """int64 [T], int64 [T] -> final hidden states [T, hidden], normalised, ready for
        ``compute_logits``."""
        if AttnWrapperBase.phase == "decode":
            AttnWrapperBase.begin_decode_forward()
        if self.recurrence is not None:
            self.recurrence.begin_forward(input_ids.shape[0])
        rows = one_by_one if self.row_exact else together
        (hidden,) = rows(lambda ids: (F.embedding(ids, self.embedding),), input_ids)
        cos, sin = rows(lambda at: rope_tables(at, self.frequencies, self.dtype), position_ids)
        for layer in self.layers:
            hidden = layer(hidden, cos, sin, rows)
        return rows(lambda x: (self.norm(x),), hidden)[0]

    @torch.no_grad()
    def compute_logits(self, hidden: Tensor) -> Tensor:
        """[N, hidden] -> float32 [N, vocab]."""
        rows = one_by_one if self.row_exact else together
        return rows(lambda x: (self.lm_head(x).float(),), hidden)[0]

    def pack_for_decode(self) -> None:
        """Hold the linear weights in the blocked layout for few rows.

        No effect where that layout does not exist (GPU, bf16) or would not be used (``row_exact``).  Only
        tied embeddings then exist twice: rows are looked up in the plain copy.
        """
        if self.row_exact or not can_pack(self.dtype, self.device):
            return
        for linear in self._linears():
            linear.pack()

    def unpack(self) -> None:
        """Undo ``pack_for_decode``, bit for bit."""
        for linear in self._linears():
            linear.unpack()
        if self.config.tie_word_embeddings:
            self.lm_head.weight = self.embedding

    def kv_pool_shape(self) -> tuple[int, int, int]:
        """(layers, KV heads, head dim) of the pool that this model decodes from."""
        config = self.config
        layers = config.num_hidden_layers - len(config.recurrent_layers)
        return layers, config.num_key_value_heads, config.head_dim

    def aux_pool_shape(self) -> tuple[int, int, int] | None:
        """(layers, 1, index head dim) of the index-key pool, None when the model has none."""
        if self.config.index_topk is None:
            return None
        return self.kv_pool_shape()[0], 1, self.config.index_head_dim

    def state_shape(self) -> tuple[int, ...] | None:
        """Shape of what one sequence has in a float32 state pool, None when the model has no recurrence."""
        return None if self.recurrence is None else self.recurrence.shape

    def bind_states(self, pool: StateSlotPool) -> None:
        """Where the recurrent state of sequences is from now on. ValueError for a pool of another shape."""
        if self.recurrence is not None:
            self.recurrence.bind(pool)

    def recurrence_counts(self) -> RecurrenceCounts:
        """How the decode steps so far went through their states; all zero without a recurrence."""
        return RecurrenceCounts() if self.recurrence is None else self.recurrence.counts

    def _linears(self) -> list[PackableLinear]:
        return [module for module in self.modules() if isinstance(module, PackableLinear)]


def _blocks(config: ModelConfig, loader: Loader, states: RecurrentStates | None) -> list[Block]:
    blocks: list[Block] = []
    kv_layer = 0
    for layer in range(config.num_hidden_layers):
        if states is not None and layer in config.recurrent_layers:
            at = config.recurrent_layers.index(layer)
            blocks.append(RecurrentBlock(layer, config, loader, states.layer(at)))
        else:
            blocks.append(_AttentionBlock(layer, kv_layer, config, loader))
            kv_layer += 1
    return blocks


class _AttentionBlock(Block):
    def __init__(self, layer_idx: int, kv_layer: int, config: ModelConfig, load: Loader) -> None:
        """``kv_layer``: which layer of the KV pool is this one's."""
        super().__init__(layer_idx, config, load, "self_attn.o_proj", config.q_size)
        attn = f"model.layers.{layer_idx}.self_attn."
        hidden, q, kv = config.hidden_size, config.q_size, config.kv_size
        projections = {attn + "q_proj": q, attn + "k_proj": kv, attn + "v_proj": kv}
        self.qkv = load.linear(projections, hidden, config.attention_bias)
        self.attention = AttnWrapperBase(kv_layer, config)
        self.indexer: PackableLinear | None = None
        if config.index_topk is not None:
            heads, dim = config.index_num_heads, config.index_head_dim
            indexer = attn + "indexer."
            parts = {
                indexer + "q_proj": heads * dim,
                indexer + "k_proj": dim,
                indexer + "weights_proj": heads,
            }
            self.indexer = load.linear(parts, hidden, False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, rows: Rows) -> Tensor:
        projected = rows(self._project, x, cos, sin)
        q, k, v = projected[:3]
        index = None
        if self.config.index_topk is not None:
            index_q, index_k, index_weights = projected[3:]
            index = IndexInputs(index_q, index_k, index_weights, self.config.index_topk)
        return rows(self._finish, x, self.attention(q, k, v, index).flatten(1))[0]

    def _project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        config = self.config
        normed = self.input_norm(x)
        query_heads = config.num_attention_heads
        all_heads = query_heads + 2 * config.num_key_value_heads
        heads = self.qkv(normed).view(x.shape[0], all_heads, config.head_dim)
        rotated = apply_rope(heads[:, : query_heads + config.num_key_value_heads], cos, sin)
        kv = rotated[:, :query_heads], rotated[:, query_heads:], heads[:, -config.num_key_value_heads :]
        if self.indexer is None:
            return kv
        dim, count = config.index_head_dim, config.index_num_heads
        q, k, weights = self.indexer(normed).split([count * dim, dim, count], 1)
        return *kv, q.reshape(-1, count, dim), k.reshape(-1, 1, dim), weights
