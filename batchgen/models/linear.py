"""A frozen linear layer that can hold its weight in the blocked layout that oneDNN wants for a few rows.

The blocked weight replaces the plain one: it serves prefill as well (and faster), and ``unpack`` gives the
plain weight back bit for bit.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["PackableLinear", "can_pack"]

PACK_ROWS = 16


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Blocked fp32 weights exist on CPU only, where torch is built with oneDNN."""
    available = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return dtype == torch.float32 and device.type == "cpu" and available


class PackableLinear(nn.Module):
    """``x @ weight.T + bias`` for ``weight`` [out, in]; no gradients."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.weight: Tensor
        self.bias: Tensor | None

    @property
    def is_packed(self) -> bool:
        return self.weight.is_mkldnn

    def pack(self) -> None:
        if not self.is_packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, PACK_ROWS)

    def unpack(self) -> None:
        if self.is_packed:
            self.weight = self.weight.to_dense()

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.is_mkldnn:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return F.linear(x, self.weight, self.bias)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """``residual + self(x)``, in one kernel where the weight is packed."""
        if self.weight.is_mkldnn:
            return torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")
        return residual + F.linear(x, self.weight, self.bias)
