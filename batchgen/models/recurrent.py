"""A layer whose mixer is a gated linear recurrence: constant state, no KV.

With u and g projections of the normalised input, ``*`` element by element, in float32:

    c[t] = sum_k kernel[k] * u[t - history + k]
    r[t], i[t] = sigmoid(W_r c[t] + b_r), sigmoid(W_i c[t] + b_i)
    a[t] = exp(-8 * softplus(decay) * r[t])
    h[t] = a[t] * h[t-1] + sqrt(1 - a[t]^2) * (i[t] * c[t])

and ``h * gelu(g)`` goes to the output projection: the RG-LRU of Griffin (arXiv 2402.19427) with dense gates.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from batchgen.config import ModelConfig
from batchgen.models.block import Block, Loader, Rows
from batchgen.models.states import LayerStates

__all__ = ["RecurrentBlock"]

_SHARPNESS = 8.0


class RecurrentBlock(Block):
    """`states`: this layer's, in the slots that are bound when a forward begins."""

    def __init__(self, layer_idx: int, config: ModelConfig, load: Loader, states: LayerStates) -> None:
        width, hidden = config.recurrent_width, config.hidden_size
        super().__init__(layer_idx, config, load, "recurrence.out_proj", width)
        prefix = f"model.layers.{layer_idx}.recurrence."
        self.states = states
        self.inputs = load.linear({prefix + "x_proj": width, prefix + "gate_proj": width}, hidden, False)
        self.gates = load.linear({prefix + "decay_gate": width, prefix + "input_gate": width}, width, True)
        kernel = load.tensor(prefix + "conv.weight", config.recurrent_conv, width)
        self.register_buffer("kernel", kernel.float())
        self.register_buffer("decay", load.tensor(prefix + "decay", width).float())
        self.kernel: Tensor
        self.decay: Tensor

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, rows: Rows) -> Tensor:
        """The angles are attention's; nothing here rotates."""
        values, opening = rows(self._project, x)
        mixed = self.states.windows(values, self._convolve)
        state = self.states.scan(*rows(self._gate, mixed))
        return rows(self._leave, x, state, opening)[0]

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        values, opening = self.inputs(self.input_norm(x)).float().chunk(2, 1)
        return values, F.gelu(opening)

    def _convolve(self, windows: Tensor) -> Tensor:
        # Tap by tap: a library's convolution may sum in an order that depends on how many rows there are.
        total = windows[:, 0] * self.kernel[0]
        for tap in range(1, len(self.kernel)):
            total = total + windows[:, tap] * self.kernel[tap]
        return total

    def _gate(self, mixed: Tensor) -> tuple[Tensor, ...]:
        gates = self.gates(mixed.to(self.out_dtype)).float().sigmoid()
        decaying, entering = gates.chunk(2, 1)
        log_decay = -_SHARPNESS * F.softplus(self.decay) * decaying
        return log_decay.exp(), torch.sqrt(-torch.expm1(2 * log_decay)) * (entering * mixed)

    def _leave(self, x: Tensor, state: Tensor, opening: Tensor) -> tuple[Tensor]:
        return self._finish(x, (state * opening).to(self.out_dtype))

    @property
    def out_dtype(self) -> torch.dtype:
        return self.input_norm.weight.dtype
