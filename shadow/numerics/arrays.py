"""What can be scored: numpy arrays of floats, and bfloat16, which numpy has no type for, as its bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_WORDS = {np.dtype(np.float16): np.uint16, np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}


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

    @property
    def dtype(self) -> str:
        return "bfloat16"

    def __getitem__(self, index: Any) -> Bfloat16:
        return Bfloat16(self.bits[index])


Floats = np.ndarray | Bfloat16


def words(values: Floats) -> np.ndarray:
    """The bits, unsigned integers of the values' size and shape, contiguous: a view wherever there is one."""
    if isinstance(values, Bfloat16):
        return np.ascontiguousarray(values.bits)
    word = _WORDS.get(values.dtype)
    if word is None:
        raise ValueError(f"{values.dtype} values are compared exactly, they have no score")
    return np.ascontiguousarray(values).view(word)


def side_by_side(legacy: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Two contiguous arrays of one dtype and shape as one, [2, ...], to read: the second begins so many bytes further.

    No copy is made. The result keeps only `legacy` alive: the caller holds `candidate`.
    """
    ours, theirs = (side.__array_interface__["data"][0] for side in (legacy, candidate))
    strides = (theirs - ours, *legacy.strides)
    return np.lib.stride_tricks.as_strided(legacy, (2, *legacy.shape), strides, writeable=False)


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
    if legacy.shape != candidate.shape or legacy.dtype != candidate.dtype:
        raise ValueError(f"rows are {_named(legacy)} and {_named(candidate)}")
    if not isinstance(legacy, Bfloat16) and legacy.dtype not in _WORDS:
        raise ValueError(f"{legacy.dtype} values are compared exactly, they have no score")
    if not legacy.shape:
        raise ValueError("a scalar has no rows: compare it exactly")


def _named(values: Floats) -> str:
    return f"{values.dtype}{list(values.shape)}"


def from_torch(tensor: Any) -> Floats:
    """The values of a torch tensor, without a copy where it is on CPU and contiguous; needs torch at hand."""
    import torch

    dense = tensor.detach().cpu().contiguous()
    if dense.dtype is torch.bfloat16:
        return Bfloat16(dense.view(torch.int16).numpy().view(np.uint16))
    values: np.ndarray = dense.numpy()
    return values
