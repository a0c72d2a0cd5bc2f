"""A Hugging Face directory (config.json, *.safetensors, tokenizer.json) as config, weights and tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from batchgen.config import ModelConfig, RopeScaling
from batchgen.models.chat import ChatTemplate
from batchgen.models.errors import ModelLoadError
from batchgen.models.tokenizer import SubwordTokenizer, Tokenizer
from batchgen.models.weights import WeightSource

__all__ = ["open_directory"]

_FAMILY = ("llama", "mistral")


def open_directory(
    path: Path,
) -> tuple[ModelConfig, WeightSource, Callable[[], Tokenizer], Callable[[], str]]:
    """(config, weights, tokenizer maker, digest maker); ModelLoadError when the files are no such model."""
    raw = _read_json(path / "config.json")
    source = _SafetensorsWeights(path)
    config = _config(raw, path, source)

    def digest() -> str:
        total = hashlib.sha256()
        for file in source.files:
            with file.open("rb") as handle:
                total.update(hashlib.file_digest(handle, "sha256").digest())
        return total.hexdigest()

    return config, source, lambda: _tokenizer(path, config), digest


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelLoadError(
            f"{path} is missing; a model directory needs config.json, *.safetensors and tokenizer.json"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path}: a JSON object was expected")
    return value


def _config(raw: dict[str, Any], path: Path, source: WeightSource) -> ModelConfig:
    where = path / "config.json"
    model_type = raw.get("model_type")
    if model_type not in _FAMILY:
        raise ModelLoadError(f"{where}: architecture {model_type!r} is not a Llama-family model")
    if raw.get("sliding_window"):
        raise ModelLoadError(f"{where}: sliding-window attention ({raw['sliding_window']}) is not supported")
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelLoadError(f"{where}: activation {raw['hidden_act']!r} is not supported (silu is)")
    try:
        heads = raw["num_attention_heads"]
        eos = raw.get("eos_token_id")
        theta, scaling = _rope(raw, where)
        return ModelConfig(
            name=path.resolve().name,
            vocab_size=raw["vocab_size"],
            hidden_size=raw["hidden_size"],
            intermediate_size=raw["intermediate_size"],
            num_hidden_layers=raw["num_hidden_layers"],
            num_attention_heads=heads,
            num_key_value_heads=raw.get("num_key_value_heads") or heads,
            head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
            rms_norm_eps=raw["rms_norm_eps"],
            rope_theta=theta,
            max_position_embeddings=raw["max_position_embeddings"],
            tie_word_embeddings=bool(raw.get("tie_word_embeddings"))
            or source.shape("lm_head.weight") is None,
            bos_token_id=raw.get("bos_token_id"),
            eos_token_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,),
            attention_bias=bool(raw.get("attention_bias", False)),
            mlp_bias=bool(raw.get("mlp_bias", False)),
            rope_scaling=scaling,
        )
    except KeyError as error:
        raise ModelLoadError(f"{where}: the field {error} is missing") from None


def _rope(raw: dict[str, Any], where: Path) -> tuple[float, RopeScaling | None]:
    """Newer files keep theta and scaling together in ``rope_parameters``."""
    block = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = float(block.get("rope_theta") or raw.get("rope_theta") or 10000.0)
    kind = block.get("rope_type", block.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, RopeScaling("linear", factor=float(block["factor"]))
    if kind == "llama3":
        return theta, RopeScaling(
            "llama3",
            factor=float(block["factor"]),
            low_freq_factor=float(block["low_freq_factor"]),
            high_freq_factor=float(block["high_freq_factor"]),
            original_max_position_embeddings=int(block["original_max_position_embeddings"]),
        )
    raise ModelLoadError(f"{where}: rope scaling {kind!r} is not supported (default, linear and llama3 are)")


def _tokenizer(path: Path, config: ModelConfig) -> Tokenizer:
    import tokenizers

    file = path / "tokenizer.json"
    if not file.exists():
        raise ModelLoadError(f"{file} is missing; copy it beside config.json")
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception for a damaged file
        raise ModelLoadError(f"{file}: not a tokenizer: {error}") from error
    settings = _read_json(path / "tokenizer_config.json") if (path / "tokenizer_config.json").exists() else {}
    template = settings.get("chat_template")
    if (path / "chat_template.jinja").exists():
        template = (path / "chat_template.jinja").read_text(encoding="utf-8")
    named = {}
    for which in ("bos_token", "eos_token"):
        value = settings.get(which)
        text = value.get("content") if isinstance(value, dict) else value
        if text is not None:
            named[which] = text
    special = {t.content: i for i, t in backend.get_added_tokens_decoder().items() if t.special}
    return SubwordTokenizer(
        backend,
        bos_token_id=config.bos_token_id,
        eos_token_ids=config.eos_token_ids,
        add_bos=None,
        special_tokens=special,
        chat=ChatTemplate(template if isinstance(template, str) else None, config.name, named),
    )


class _SafetensorsWeights:
    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self.files = sorted(path.glob("*.safetensors"))
        if not self.files:
            raise ModelLoadError(f"{path}: no *.safetensors file in it")
        self._handles: dict[str, Any] = {}
        for file in self.files:
            try:
                handle = safe_open(file, framework="pt", device="cpu")
            except (SafetensorError, OSError) as error:
                raise ModelLoadError(
                    f"{file}: truncated or not a safetensors file: {error}; download it again"
                ) from error
            self._handles.update(dict.fromkeys(handle.keys(), handle))

    def names(self) -> Iterable[str]:
        return self._handles.keys()

    def shape(self, name: str) -> tuple[int, ...] | None:
        if name not in self._handles:
            return None
        return tuple(self._handles[name].get_slice(name).get_shape())

    def copy_into(self, name: str, out: Tensor) -> None:
        tensor: torch.Tensor = self._handles[name].get_tensor(name)
        out.copy_(tensor)
