"""A Llama-family GGUF file as a config, a weight source by Hugging Face name, and a tokenizer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from batchgen.config import ModelConfig, RopeScaling
from batchgen.models.errors import ModelLoadError
from batchgen.models.gguf_file import GGUFFile
from batchgen.models.gguf_tokenizer import build_tokenizer
from batchgen.models.tokenizer import Tokenizer
from batchgen.models.weights import WeightSource

__all__ = ["open_gguf"]

_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = {
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
_LAYER_NAME = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")


def open_gguf(
    path: Path, name: str
) -> tuple[ModelConfig, WeightSource, Callable[[], Tokenizer], Callable[[], str]]:
    """(config, weights, tokenizer maker, digest maker); ModelLoadError when this is no Llama-family model."""
    file = GGUFFile(path)
    config = _config(file, name)

    def digest() -> str:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()

    return config, _GGUFWeights(file, config), lambda: build_tokenizer(file.metadata, path, name), digest


def _config(file: GGUFFile, name: str) -> ModelConfig:
    meta, path = file.metadata, file.path
    architecture = meta.get("general.architecture")
    if architecture != "llama":
        raise ModelLoadError(f"{path}: architecture {architecture!r} is not a Llama-family model")

    def need(key: str) -> Any:
        if f"llama.{key}" not in meta:
            raise ModelLoadError(f"{path}: metadata llama.{key} is missing; the file is not a complete model")
        return meta[f"llama.{key}"]

    if meta.get("llama.expert_count", 0):
        raise ModelLoadError(f"{path}: mixture-of-experts models are not supported")
    hidden, heads = need("embedding_length"), need("attention.head_count")
    head_dim = meta.get("llama.attention.key_length", hidden // heads)
    if meta.get("llama.rope.dimension_count", head_dim) != head_dim:
        raise ModelLoadError(
            f"{path}: rotary embedding of {meta['llama.rope.dimension_count']} of {head_dim} dimensions is not "
            "supported"
        )
    if "token_embd.weight" not in file.tensors:
        raise ModelLoadError(f"{path}: tensor token_embd.weight is missing; the file is not a complete model")
    stops = (meta.get("tokenizer.ggml.eos_token_id"), meta.get("tokenizer.ggml.eot_token_id"))
    return ModelConfig(
        name=name,
        vocab_size=file.tensors["token_embd.weight"].shape[0],
        hidden_size=hidden,
        intermediate_size=need("feed_forward_length"),
        num_hidden_layers=need("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=meta.get("llama.attention.head_count_kv", heads),
        head_dim=head_dim,
        rms_norm_eps=need("attention.layer_norm_rms_epsilon"),
        rope_theta=meta.get("llama.rope.freq_base", 10000.0),
        max_position_embeddings=need("context_length"),
        tie_word_embeddings="output.weight" not in file.tensors,
        bos_token_id=meta.get("tokenizer.ggml.bos_token_id"),
        eos_token_ids=tuple(dict.fromkeys(stop for stop in stops if stop is not None)),
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        mlp_bias="blk.0.ffn_gate.bias" in file.tensors,
        rope_scaling=_rope_scaling(file),
    )


def _rope_scaling(file: GGUFFile) -> RopeScaling | None:
    if "rope_freqs.weight" in file.tensors:
        factors = torch.empty(file.tensors["rope_freqs.weight"].shape)
        file.copy_into("rope_freqs.weight", factors)
        return RopeScaling("factors", freq_factors=tuple(factors.tolist()))
    kind = file.metadata.get("llama.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind == "linear":
        return RopeScaling("linear", factor=file.metadata.get("llama.rope.scaling.factor", 1.0))
    raise ModelLoadError(f"{file.path}: rope scaling {kind!r} is not supported (none and linear are)")


class _GGUFWeights:
    def __init__(self, file: GGUFFile, config: ModelConfig) -> None:
        self.where = str(file.path)
        self._file, self._config = file, config

    def names(self) -> Iterable[str]:
        config = self._config
        yield from (name for name in _TOP if _TOP[name] in self._file.tensors)
        for layer in range(config.num_hidden_layers):
            for part in _LAYER:
                for kind in ("weight", "bias"):
                    name = f"model.layers.{layer}.{part}.{kind}"
                    if self.shape(name) is not None:
                        yield name

    def shape(self, name: str) -> tuple[int, ...] | None:
        info = self._file.tensors.get(_gguf_name(name))
        return None if info is None else info.shape

    def copy_into(self, name: str, out: Tensor) -> None:
        heads = None
        if ".q_proj." in name:
            heads = self._config.num_attention_heads
        elif ".k_proj." in name:
            heads = self._config.num_key_value_heads
        if heads is None:
            self._file.copy_into(_gguf_name(name), out)
        elif name.endswith(".bias"):
            flat = torch.empty(out.shape)
            self._file.copy_into(_gguf_name(name), flat)
            out.copy_(_half_split(flat[:, None], heads)[:, 0])
        else:
            self._file.copy_into(_gguf_name(name), out, lambda rows: _half_split(rows, heads))


def _gguf_name(name: str) -> str:
    match = _LAYER_NAME.fullmatch(name)
    if match is None:
        return _TOP.get(name, name)
    layer, part, kind = match.groups()
    return f"blk.{layer}.{_LAYER.get(part, part)}.{kind}"


def _half_split(rows: Tensor, heads: int) -> Tensor:
    """Rows of q and k from GGUF's rotary order (pairs side by side) to the halves that this model rotates."""
    paired = rows.view(heads, -1, 2, rows.shape[-1])
    return paired.transpose(1, 2).reshape(rows.shape)
