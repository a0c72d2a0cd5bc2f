"""What can be scored: numpy arrays of floats, and bfloat16, which numpy has no type for, as its bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_WORDS = {"float16": np.uint16, "float32": np.uint32, "float64": np.uint64}


@dataclass(frozen=True, eq=False)
class Bfloat16:
    """The bits of bfloat16 values, uint16 of any shape (ValueError otherwise)."""

    bits: np.ndarray

    def __post_init__(self) -> None:
        if self.bits.dtype != np.uint16:
            raise ValueError(f"bfloat16 bits are uint16, not {self.bits.dtype}")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.bits.shape

    def __getitem__(self, index: Any) -> Bfloat16:
        return Bfloat16(self.bits[index])


Floats = np.ndarray | Bfloat16


def dtype_name(values: Floats) -> str:
    return "bfloat16" if isinstance(values, Bfloat16) else str(values.dtype)


def words(values: Floats) -> np.ndarray:
    """The bits, unsigned integers of the values' size and shape, contiguous: a view wherever there is one."""
    if isinstance(values, Bfloat16):
        return np.ascontiguousarray(values.bits)
    if str(values.dtype) not in _WORDS:
        raise ValueError(f"{values.dtype} values are compared exactly, they have no score")
    return np.ascontiguousarray(values).view(_WORDS[str(values.dtype)])


def from_words(bits: np.ndarray, dtype: str) -> Floats:
    """The values that `words` gave the bits of."""
    return Bfloat16(bits) if dtype == "bfloat16" else bits.view(dtype)


def widened(values: Floats) -> np.ndarray:
    """The same numbers in the type that errors are added up in: float64, for float64 long double."""
    if isinstance(values, Bfloat16):
        return (values.bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.longdouble if values.dtype == np.float64 else np.float64)


def check_pair(legacy: Floats, candidate: Floats) -> None:
    """ValueError unless both have one shape and one dtype that has a score."""
    ours, theirs = dtype_name(legacy), dtype_name(candidate)
    if legacy.shape != candidate.shape or ours != theirs:
        raise ValueError(f"rows are {ours}{list(legacy.shape)} and {theirs}{list(candidate.shape)}")
    if ours != "bfloat16" and ours not in _WORDS:
        raise ValueError(f"{ours} values are compared exactly, they have no score")
    if not legacy.shape:
        raise ValueError("a scalar has no rows: compare it exactly")


def from_torch(tensor: Any) -> Floats:
    """The values of a torch tensor, without a copy where it is on CPU and contiguous; needs torch at hand."""
    import torch

    dense = tensor.detach().cpu().contiguous()
    if dense.dtype is torch.bfloat16:
        return Bfloat16(dense.view(torch.int16).numpy().view(np.uint16))
    values: np.ndarray = dense.numpy()
    return values
