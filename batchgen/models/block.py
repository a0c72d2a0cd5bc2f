"""What the layers of all models are made of: weights, norms, the MLP, and running a function row by row."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from batchgen.config import ModelConfig
from batchgen.models.linear import PackableLinear
from batchgen.models.weights import WeightSource, copy_rows, read_tensor

__all__ = ["Block", "Loader", "RMSNorm", "Rows", "one_by_one", "together"]

Rows = Callable[..., tuple[Tensor, ...]]
RowFunction = Callable[..., tuple[Tensor, ...]]


def together(function: RowFunction, *inputs: Tensor) -> tuple[Tensor, ...]:
    return function(*inputs)


def one_by_one(function: RowFunction, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Each row through ``function`` alone, on fresh copies: same values, same shapes, same alignment."""
    count = inputs[0].shape[0]
    if count == 0:
        return function(*inputs)
    outputs = [function(*(x[row : row + 1].clone() for x in inputs)) for row in range(count)]
    return tuple(torch.cat(column) for column in zip(*outputs, strict=True))


class Loader:
    """Weights of one source, in the dtype and on the device of the model."""

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


class RMSNorm(nn.Module):
    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.weight: Tensor
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        return F.rms_norm(x.float(), self.weight.shape, None, self.eps).to(x.dtype) * self.weight


class Block(nn.Module):
    """A layer around whatever mixes positions: a norm before it, its output projection, then the gated MLP."""

    def __init__(self, layer_idx: int, config: ModelConfig, load: Loader, out: str, mixed: int) -> None:
        """``out``: name within the layer of the projection from the ``mixed`` features."""
        super().__init__()
        self.config = config
        prefix = f"model.layers.{layer_idx}."
        mlp, hidden, inter = prefix + "mlp.", config.hidden_size, config.intermediate_size
        norm, post = prefix + "input_layernorm.weight", prefix + "post_attention_layernorm.weight"
        self.input_norm = RMSNorm(load.tensor(norm, hidden), config.rms_norm_eps)
        self.post_norm = RMSNorm(load.tensor(post, hidden), config.rms_norm_eps)
        self.out = load.linear({prefix + out: hidden}, mixed, config.attention_bias)
        self.gate_up = load.linear(
            {mlp + "gate_proj": inter, mlp + "up_proj": inter}, hidden, config.mlp_bias
        )
        self.down = load.linear({mlp + "down_proj": hidden}, inter, config.mlp_bias)

    def _finish(self, x: Tensor, mixed: Tensor) -> tuple[Tensor]:
        x = self.out.add_to(x, mixed)
        gate, up = self.gate_up(self.post_norm(x)).chunk(2, 1)
        return (self.down.add_to(x, F.silu(gate).mul_(up)),)
