"""Rotary position embedding in the half-split layout of the Hugging Face checkpoints."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from batchgen.config import ModelConfig, RopeScaling

__all__ = ["apply_rope", "inverse_frequencies", "rope_tables"]


def inverse_frequencies(config: ModelConfig) -> Tensor:
    """float32 [head_dim / 2], with the config's scaling applied."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "factors":
        return frequencies / torch.tensor(scaling.freq_factors, dtype=torch.float32)
    return _llama3(frequencies, scaling)


def _llama3(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    wavelengths = 2 * math.pi / frequencies
    turns = scaling.original_max_position_embeddings / wavelengths
    smooth = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    blended = (1 - smooth) * frequencies / scaling.factor + smooth * frequencies
    scaled = torch.where(turns < scaling.low_freq_factor, frequencies / scaling.factor, blended)
    return torch.where(turns > scaling.high_freq_factor, frequencies, scaled)


def rope_tables(position_ids: Tensor, frequencies: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``cos`` and signed ``sin`` [T, 1, head_dim]: the sign of the half rotation is folded into ``sin``."""
    angles = position_ids[:, None].to(torch.float32) * frequencies[None, :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), 1)[:, None].to(dtype), torch.cat((-sin, sin), 1)[:, None].to(dtype)


def apply_rope(x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Rotate ``x`` [T, heads, head_dim]; a fresh contiguous tensor."""
    return x * cos + x.roll(x.shape[-1] // 2, -1) * signed_sin
