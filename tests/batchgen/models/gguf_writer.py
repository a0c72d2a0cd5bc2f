"""Writes small Llama GGUF files with the `gguf` package, rotary order and all, as its converters do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from torch import Tensor

from batchgen.config import ModelConfig

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# Bytes as the GPT-2 vocabulary spells them.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [b for b in range(256) if b not in _PRINTABLE]
BYTE_TEXTS = {b: chr(b) for b in _PRINTABLE} | {b: chr(256 + i) for i, b in enumerate(_OTHERS)}


def gguf_name(name: str) -> str:
    for long, short in _NAMES.items():
        name = name.replace(long, short)
    return name.replace("model.layers", "blk")


def pair_rows(values: np.ndarray, heads: int) -> np.ndarray:
    """The permutation that GGUF converters apply to q and k of the Llama architecture."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def write_gguf(
    path: Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    architecture: str = "llama",
    edit: Callable[[gguf.GGUFWriter], Any] = lambda writer: None,
    tokenizer: bool = True,
) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if tokenizer:
        _add_byte_tokenizer(writer)
    edit(writer)
    for name, tensor in tensors.items():
        values = tensor.numpy()
        if "q_proj" in name:
            values = pair_rows(values, config.num_attention_heads)
        elif "k_proj" in name:
            values = pair_rows(values, config.num_key_value_heads)
        values = np.ascontiguousarray(values)
        if values.ndim > 1:
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_byte_tokenizer(writer: gguf.GGUFWriter) -> None:
    """256 bytes, special tokens, a few merges (one that splitting digits makes unreachable), up to 264."""
    tokens = [BYTE_TEXTS[b] for b in range(256)]
    special = ["<|bos|>", "<|eos|>", "<|user|>"]
    merged = ["th", "the", "Ġthe", "12"]
    tokens += special + merged + ["<unused>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 256 + [3] * 3 + [1] * 4 + [5])
    writer.add_token_merges(["t h", "th e", "Ġ the", "1 2"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_add_bos_token(True)
    writer.add_chat_template(
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'tool' %}{{ raise_exception('no tools') }}"
        "{% endif %}<|user|>{{ m['content'] }}{% endfor %}"
    )
