"""Frozen description of a Llama-family model; no torch, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ModelConfig", "RopeScaling"]


@dataclass(frozen=True)
class RopeScaling:
    """How the rotary frequencies differ from ``theta ** (-2i / head_dim)``.

    ``linear`` divides every frequency by ``factor``; ``llama3`` divides the low frequencies only, with a
    smooth band between the two wavelengths; ``factors`` divides frequency ``i`` by ``freq_factors[i]`` (the
    form in which a GGUF file stores an already evaluated scaling).
    """

    kind: Literal["linear", "llama3", "factors"]
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192
    freq_factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and constants of one decoder-only model.

    ``index_topk`` is set only for a model with an index-key cache beside its KV cache: each query then
    attends to the ``index_topk`` positions that ``index_num_heads`` index heads of ``index_head_dim`` score
    highest.

    ``recurrent_layers`` are those layers, ascending, that are a gated linear recurrence of ``recurrent_width``
    channels, after a causal convolution over ``recurrent_conv`` positions, in the place of attention.
    """

    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    attention_bias: bool = False
    mlp_bias: bool = False
    rope_scaling: RopeScaling | None = None
    index_topk: int | None = None
    index_num_heads: int = 0
    index_head_dim: int = 0
    recurrent_layers: tuple[int, ...] = ()
    recurrent_width: int = 0
    recurrent_conv: int = 0

    @property
    def q_size(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_key_value_heads * self.head_dim
