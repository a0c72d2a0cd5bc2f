"""Quantised GGUF blocks to float32, by torch for the common types and by ``gguf`` for the others."""

from __future__ import annotations

from collections.abc import Callable

import gguf
import numpy as np
import torch
from torch import Tensor

__all__ = ["dequantize_rows"]

_Type = gguf.GGMLQuantizationType
_PLAIN = {_Type.F32: torch.float32, _Type.F16: torch.float16, _Type.BF16: torch.bfloat16}


def dequantize_rows(rows: Tensor, kind: gguf.GGMLQuantizationType, out: Tensor) -> None:
    """``rows`` uint8 [n, row bytes] -> contiguous ``out`` of n rows, converted to its dtype."""
    if kind in _PLAIN:
        out.view(rows.shape[0], -1).copy_(_aligned(rows).view(_PLAIN[kind]))
        return
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rows.reshape(-1, size)
    target = out.view(-1, block)
    wide = target if out.dtype == torch.float32 else torch.empty_like(target, dtype=torch.float32)
    if kind in _BLOCKS:
        _BLOCKS[kind](blocks, wide)
    else:
        wide.copy_(torch.from_numpy(gguf.quants.dequantize(np.asarray(blocks), kind)).view_as(wide))
    if wide is not target:
        target.copy_(wide)


def _aligned(rows: Tensor) -> Tensor:
    """A copy where the bytes do not start where a wider type may be read."""
    return rows if rows.data_ptr() % 4 == 0 else rows.clone()


def _half(blocks: Tensor, start: int) -> Tensor:
    """float32 [n, 1]: the float16 at byte ``start`` of each block."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: Tensor, out: Tensor) -> None:
    """Low nibbles are the first half of a block, high nibbles the second."""
    half = packed.shape[1]
    out[:, :half] = packed & 15
    out[:, half:] = packed >> 4


def _q8_0(blocks: Tensor, out: Tensor) -> None:
    out.copy_(blocks[:, 2:].view(torch.int8)).mul_(_half(blocks, 0))


def _q4_0(blocks: Tensor, out: Tensor) -> None:
    _nibbles(blocks[:, 2:], out)
    out.sub_(8).mul_(_half(blocks, 0))


def _q4_1(blocks: Tensor, out: Tensor) -> None:
    _nibbles(blocks[:, 4:], out)
    out.mul_(_half(blocks, 0)).add_(_half(blocks, 2))


_BLOCKS: dict[gguf.GGMLQuantizationType, Callable[[Tensor, Tensor], None]] = {
    _Type.Q8_0: _q8_0,
    _Type.Q4_0: _q4_0,
    _Type.Q4_1: _q4_1,
}
