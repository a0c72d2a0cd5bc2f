"""What the backend asks of FlashInfer, however it is there: as a package or as prebuilt objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from batchgen.attention.flashinfer.arrays import PagedArrays

__all__ = ["DTYPES", "HEAD_DIMS", "DecodeSlot", "Geometry", "Kernels", "PrefillSlot", "unsupported"]

DTYPES = (torch.bfloat16, torch.float16)
HEAD_DIMS = (64, 128, 256)
#: Bytes of the partial results of split rows; FlashInfer's own advice.
WORKSPACE_BYTES = 128 << 20


@dataclass(frozen=True)
class Geometry:
    """What a plan depends on beside lengths."""

    qo_heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    kv_dtype: torch.dtype
    scale: float

    @classmethod
    def of(cls, q: Tensor, keys: Tensor, scale: float) -> Geometry:
        """``q`` [T, heads, dim], ``keys`` [..., heads, dim]."""
        return cls(q.shape[1], keys.shape[-2], q.shape[2], q.dtype, keys.dtype, scale)


def unsupported(head_dim: int, dtype: torch.dtype) -> str | None:
    """Why the kernels do not serve this model."""
    if dtype not in DTYPES:
        return f"FlashInfer computes in bfloat16 or float16, not in {str(dtype).removeprefix('torch.')}"
    if head_dim not in HEAD_DIMS:
        return f"FlashInfer serves head dimensions {', '.join(map(str, HEAD_DIMS))}, not {head_dim}"
    return None


class DecodeSlot(Protocol):
    """Decode of one geometry; a plan holds until the next."""

    @property
    def plan_info(self) -> list[int]:
        """The layout of the plan; a captured run keeps the one that it was captured with."""
        ...

    def plan(self, host: PagedArrays, device: PagedArrays) -> None:
        """The same arrays twice: as `paged_arrays` gives them, and all on the device."""
        ...

    def run(self, q: Tensor, k_pool: Tensor, v_pool: Tensor) -> Tensor: ...


class PrefillSlot(Protocol):
    """Causal attention inside packed sequences, whose queries are those of their last positions."""

    def plan(self, bounds: Tensor, key_bounds: Tensor) -> None:
        """int32 on the CPU."""
        ...

    def run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...


class Kernels(Protocol):
    """``exact``: no row is split over the GPU, so that its result does not depend on how many others there are.

    ``fixed``: the slot is captured; it reads those tensors at every run, and each plan is for as many rows.
    """

    device: torch.device

    def lacks(self, head_dim: int, dtype: torch.dtype) -> str | None:
        """Why these kernels do not serve such a model."""
        ...

    def decode_slot(
        self, geometry: Geometry, page_size: int, *, exact: bool, fixed: PagedArrays | None
    ) -> DecodeSlot: ...

    def prefill_slot(self, geometry: Geometry, *, exact: bool) -> PrefillSlot: ...

    def append(self, k: Tensor, v: Tensor, k_pool: Tensor, v_pool: Tensor, device: PagedArrays) -> None: ...
