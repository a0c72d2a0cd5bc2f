"""Which kernels an attention backend by FlashInfer gets on this machine, or why none."""

from __future__ import annotations

from pathlib import Path

import torch

from batchgen.attention.flashinfer.kernels import Kernels
from batchgen.attention.flashinfer.manifest import ObjectsError
from batchgen.attention.flashinfer.objects import ObjectKernels
from batchgen.attention.flashinfer.package import PackageKernels

__all__ = ["KernelsUnavailableError", "find_kernels"]


class KernelsUnavailableError(RuntimeError):
    """What is missing and what to do, in one line."""


def find_kernels(device: torch.device, objects: Path | None) -> Kernels:
    """Those of the folder ``objects``, else of the installed package. KernelsUnavailableError."""
    if device.type != "cuda":
        raise KernelsUnavailableError(
            f"attention 'flashinfer' needs a CUDA device, this run is on {device.type}; use --attention torch"
        )
    try:
        return PackageKernels(device) if objects is None else ObjectKernels(objects, device)
    except (ImportError, ObjectsError) as error:
        raise KernelsUnavailableError(f"attention 'flashinfer': {error}; or use --attention torch") from error
