"""The Llama family over paged attention: one forward for packed prefill and for paged decode.

Every layer works on packed rows [T, hidden].  Whether they are prompts or one new token per sequence is
known to the attention wrapper only (``AttnWrapperBase.phase``).  With ``row_exact`` every operation is run
on one row at a time, in prefill and decode through the same calls, so that a row's bits depend on nothing
but its own history.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from batchgen.attention import AttnWrapperBase, IndexInputs
from batchgen.config import ModelConfig
from batchgen.models.linear import PackableLinear, can_pack
from batchgen.models.rope import apply_rope, inverse_frequencies, rope_tables
from batchgen.models.weights import WeightSource, copy_rows, read_tensor

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
        loader = _Loader(source, dtype, device)
        hidden, vocab = config.hidden_size, config.vocab_size
        self.register_buffer("embedding", loader.tensor("model.embed_tokens.weight", vocab, hidden))
        self.embedding: Tensor
        self.layers = nn.ModuleList(_Layer(i, config, loader) for i in range(config.num_hidden_layers))
        self.norm = _RMSNorm(loader.tensor("model.norm.weight", hidden), config.rms_norm_eps)
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
        rows = _one_by_one if self.row_exact else _together
        (hidden,) = rows(lambda ids: (F.embedding(ids, self.embedding),), input_ids)
        cos, sin = rows(lambda at: rope_tables(at, self.frequencies, self.dtype), position_ids)
        for layer in self.layers:
            hidden = layer(hidden, cos, sin, rows)
        return rows(lambda x: (self.norm(x),), hidden)[0]

    @torch.no_grad()
    def compute_logits(self, hidden: Tensor) -> Tensor:
        """[N, hidden] -> float32 [N, vocab]."""
        rows = _one_by_one if self.row_exact else _together
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
        return config.num_hidden_layers, config.num_key_value_heads, config.head_dim

    def aux_pool_shape(self) -> tuple[int, int, int] | None:
        """(layers, 1, index head dim) of the index-key pool, None when the model has none."""
        if self.config.index_topk is None:
            return None
        return self.config.num_hidden_layers, 1, self.config.index_head_dim

    def _linears(self) -> list[PackableLinear]:
        return [module for module in self.modules() if isinstance(module, PackableLinear)]


Rows = Callable[..., tuple[Tensor, ...]]
RowFunction = Callable[..., tuple[Tensor, ...]]


def _together(function: RowFunction, *inputs: Tensor) -> tuple[Tensor, ...]:
    return function(*inputs)


def _one_by_one(function: RowFunction, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Each row through ``function`` alone, on fresh copies: same values, same shapes, same alignment."""
    count = inputs[0].shape[0]
    if count == 0:
        return function(*inputs)
    outputs = [function(*(x[row : row + 1].clone() for x in inputs)) for row in range(count)]
    return tuple(torch.cat(column) for column in zip(*outputs, strict=True))


class _RMSNorm(nn.Module):
    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.weight: Tensor
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        return F.rms_norm(x.float(), self.weight.shape, None, self.eps).to(x.dtype) * self.weight


class _Layer(nn.Module):
    def __init__(self, layer_idx: int, config: ModelConfig, load: _Loader) -> None:
        super().__init__()
        self.config = config
        prefix = f"model.layers.{layer_idx}."
        attn, mlp = prefix + "self_attn.", prefix + "mlp."
        hidden, inter, q, kv = config.hidden_size, config.intermediate_size, config.q_size, config.kv_size
        biased = config.attention_bias
        norm, post = prefix + "input_layernorm.weight", prefix + "post_attention_layernorm.weight"
        self.input_norm = _RMSNorm(load.tensor(norm, hidden), config.rms_norm_eps)
        self.post_norm = _RMSNorm(load.tensor(post, hidden), config.rms_norm_eps)
        projections = {attn + "q_proj": q, attn + "k_proj": kv, attn + "v_proj": kv}
        self.qkv = load.linear(projections, hidden, biased)
        self.out = load.linear({attn + "o_proj": hidden}, q, biased)
        self.gate_up = load.linear(
            {mlp + "gate_proj": inter, mlp + "up_proj": inter}, hidden, config.mlp_bias
        )
        self.down = load.linear({mlp + "down_proj": hidden}, inter, config.mlp_bias)
        self.attention = AttnWrapperBase(layer_idx, config)
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

    def _finish(self, x: Tensor, attended: Tensor) -> tuple[Tensor]:
        x = self.out.add_to(x, attended)
        gate, up = self.gate_up(self.post_norm(x)).chunk(2, 1)
        return (self.down.add_to(x, F.silu(gate).mul_(up)),)


class _Loader:
    def __init__(self, source: WeightSource, dtype: torch.dtype, device: torch.device) -> None:
        self.source, self.dtype, self.device = source, dtype, device

    def tensor(self, name: str, *shape: int) -> Tensor:
        return read_tensor(self.source, name, shape, self.dtype, self.device)

    def linear(self, parts: dict[str, int], in_features: int, bias: bool) -> PackableLinear:
        """One layer from the rows of several (name -> out features)."""
        sizes = list(parts.values())
        weight = torch.empty(sum(sizes), in_features, dtype=self.dtype)
        vector = torch.empty(sum(sizes), dtype=self.dtype) if bias else None
        for name, rows in zip(parts, weight.split(sizes), strict=True):
            copy_rows(self.source, name + ".weight", rows)
        if vector is not None:
            for name, values in zip(parts, vector.split(sizes), strict=True):
                copy_rows(self.source, name + ".bias", values)
            vector = vector.to(self.device)
        return PackableLinear(weight.to(self.device), vector)
