"""Weights by Hugging Face name, read tensor by tensor: loading needs no second full copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from batchgen.models.errors import ModelLoadError

__all__ = ["MappingWeights", "WeightSource", "copy_rows", "read_tensor"]


class WeightSource(Protocol):
    """Named tensors of one model; ``where`` names the file or origin in errors."""

    where: str

    def names(self) -> Iterable[str]: ...

    def shape(self, name: str) -> tuple[int, ...] | None:
        """None when there is no such tensor."""

    def copy_into(self, name: str, out: Tensor) -> None:
        """Write the tensor into contiguous ``out`` of its shape, converting to ``out.dtype``."""


class MappingWeights:
    """A state dict as a source."""

    def __init__(self, tensors: Mapping[str, Tensor], where: str) -> None:
        self.where = where
        self._tensors = tensors

    def names(self) -> Iterable[str]:
        return self._tensors.keys()

    def shape(self, name: str) -> tuple[int, ...] | None:
        return tuple(self._tensors[name].shape) if name in self._tensors else None

    def copy_into(self, name: str, out: Tensor) -> None:
        out.copy_(self._tensors[name])


def copy_rows(source: WeightSource, name: str, out: Tensor) -> None:
    """``copy_into`` after checking that the tensor exists and has the shape that the config implies."""
    shape = source.shape(name)
    if shape is None:
        raise ModelLoadError(f"{source.where}: tensor {name} is missing; the file is not a complete model")
    if shape != tuple(out.shape):
        raise ModelLoadError(
            f"{source.where}: tensor {name} has shape {list(shape)}, the config implies {list(out.shape)}"
        )
    source.copy_into(name, out)


def read_tensor(
    source: WeightSource, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """A fresh tensor of ``shape`` on ``device`` with the values of ``name``."""
    host = torch.empty(shape, dtype=dtype)
    copy_rows(source, name, host)
    return host.to(device)
