"""Two tensors compared at once. It waits for the answer: not for a step that must not wait (see shadow.device.ring)."""

from __future__ import annotations

import torch

from shadow.device.availability import said_once, unavailable
from shadow.device.bits import DTYPES, check_pair
from shadow.device.launch import LONGEST, Launch
from shadow.device.reference import reference
from shadow.device.statistics import RowStatistics


def compare_rows(control: torch.Tensor, candidate: torch.Tensor) -> RowStatistics:
    """Over the last axis of two tensors on one device. By operations of torch where the kernel cannot run.

    Raises:
        ValueError: other shapes, dtypes or devices, a dtype without a score, a scalar (as in shadow.numerics).
    """
    check_pair(control, candidate)
    reason = unavailable(control.device)
    if reason is not None:
        said_once(reason)
        return reference(control, candidate)
    launch = Launch(control)
    launch(control.detach().contiguous(), candidate.detach().contiguous())
    return launch.decoded(launch.words[0].cpu())


def first_flat(control: torch.Tensor, candidate: torch.Tensor) -> int | None:
    """The first element that differs by its bits, counted through the tensor; -1 where none does.

    None where the kernel does not tell: then the caller compares as it would without it. Headers must agree.
    """
    if (
        control.layout is not torch.strided
        or control.dtype not in DTYPES
        or not control.dim()
        or control.numel() > LONGEST
    ):
        return None
    reason = unavailable(control.device)
    if reason is not None:
        said_once(reason)
        return None
    # As one row: of each tile eight words pass to the host, not of each row.
    return compare_rows(control.reshape(1, -1), candidate.reshape(1, -1)).first_flat()
