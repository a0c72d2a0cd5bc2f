"""Random test models made on the spot from a seed: small, quick, and varied enough in what they write."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import torch
from torch import Tensor

from batchgen.config import ModelConfig
from batchgen.models.tokenizer import ByteTokenizer

__all__ = ["TINY_CONFIGS", "random_state_dict"]

_TINY = ModelConfig(
    name="tiny",
    vocab_size=ByteTokenizer.vocab_size,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    # Room for the longest level of the validation ladder: 10,240 tokens after a prompt.
    max_position_embeddings=12288,
    tie_word_embeddings=True,
    bos_token_id=ByteTokenizer.bos_token_id,
    eos_token_ids=ByteTokenizer.eos_token_ids,
)

TINY_CONFIGS = {
    "tiny": _TINY,
    "tiny-dual": replace(_TINY, name="tiny-dual", index_topk=16, index_num_heads=2, index_head_dim=16),
    "tiny-hybrid": replace(
        _TINY,
        name="tiny-hybrid",
        num_hidden_layers=4,
        recurrent_layers=(0, 2),
        recurrent_width=64,
        recurrent_conv=4,
    ),
}


def random_state_dict(config: ModelConfig, seed: int) -> dict[str, Tensor]:
    """float32 weights by Hugging Face name; each tensor depends on its name and the seed only.

    The scales make activations grow to where the history decides the next token: greedy text neither
    collapses to one token nor hangs on margins that a different order of summation could turn.
    """
    hidden, inter = config.hidden_size, config.intermediate_size
    tensors = {"model.embed_tokens.weight": _normal("embed", seed, config.vocab_size, hidden, scale=1.0)}
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        shapes = {
            "mlp.gate_proj": (inter, hidden),
            "mlp.up_proj": (inter, hidden),
            "mlp.down_proj": (hidden, inter),
        }
        if layer in config.recurrent_layers:
            shapes |= _recurrence_shapes(config)
            tensors |= _recurrence_vectors(config, prefix + "recurrence.", seed)
        else:
            shapes |= _attention_shapes(config)
        for name, (rows, columns) in shapes.items():
            scale = _GAINS.get(name, 1.0) * columns**-0.5
            tensors[f"{prefix}{name}.weight"] = _normal(prefix + name, seed, rows, columns, scale=scale)
        tensors[prefix + "input_layernorm.weight"] = torch.ones(hidden)
        tensors[prefix + "post_attention_layernorm.weight"] = torch.ones(hidden)
    tensors["model.norm.weight"] = torch.ones(hidden)
    return tensors


def _attention_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    hidden = config.hidden_size
    shapes = {
        "self_attn.q_proj": (config.q_size, hidden),
        "self_attn.k_proj": (config.kv_size, hidden),
        "self_attn.v_proj": (config.kv_size, hidden),
        "self_attn.o_proj": (hidden, config.q_size),
    }
    if config.index_topk is not None:
        shapes["self_attn.indexer.q_proj"] = (config.index_num_heads * config.index_head_dim, hidden)
        shapes["self_attn.indexer.k_proj"] = (config.index_head_dim, hidden)
        shapes["self_attn.indexer.weights_proj"] = (config.index_num_heads, hidden)
    return shapes


def _recurrence_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    hidden, width = config.hidden_size, config.recurrent_width
    return {
        "recurrence.x_proj": (width, hidden),
        "recurrence.gate_proj": (width, hidden),
        "recurrence.decay_gate": (width, width),
        "recurrence.input_gate": (width, width),
        "recurrence.out_proj": (hidden, width),
    }


def _recurrence_vectors(config: ModelConfig, prefix: str, seed: int) -> dict[str, Tensor]:
    """Channels forget at different speeds: half of a state is gone after one to some fifty tokens."""
    width, taps = config.recurrent_width, config.recurrent_conv
    vectors = {
        prefix + "conv.weight": _normal(prefix + "conv", seed, taps, width, scale=taps**-0.5),
        prefix + "decay": _normal(prefix + "decay", seed, 1, width, scale=1.0)[0] - 3.0,
    }
    for gate in ("decay_gate", "input_gate"):
        vectors[f"{prefix}{gate}.bias"] = _normal(f"{prefix}{gate}.bias", seed, 1, width, scale=1.0)[0]
    return vectors


_GAINS = {
    "self_attn.q_proj": 2.0,
    "self_attn.k_proj": 2.0,
    "self_attn.o_proj": 4.0,
    "recurrence.out_proj": 4.0,
    "mlp.down_proj": 4.0,
}


def _normal(name: str, seed: int, rows: int, columns: int, scale: float) -> Tensor:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    return torch.randn(rows, columns, generator=generator) * scale
