"""The dtypes that the kernel knows, and their values as integers of the same size."""

from __future__ import annotations

import torch

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """A view of a contiguous tensor of one of `DTYPES`."""
    return tensor.view(torch.int32 if tensor.dtype.itemsize == 4 else torch.int16)


def check_pair(control: torch.Tensor, candidate: torch.Tensor) -> None:
    """ValueError unless both have one device, one shape with rows and one dtype of `DTYPES`."""
    if headed(control) != headed(candidate):
        raise ValueError(f"rows are {headed(control)} and {headed(candidate)}")
    if control.dtype not in DTYPES:
        raise ValueError(
            f"{headed(control)}: rows of {', '.join(DTYPES.values())} can be compared on a device"
        )
    if not control.dim():
        raise ValueError("a scalar has no rows: compare it exactly")


def headed(tensor: torch.Tensor) -> str:
    """What two tensors must share to be compared."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} on {tensor.device}"
