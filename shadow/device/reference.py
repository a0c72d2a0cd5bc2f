"""The same statistics by operations of torch, in float64, on any device: what the kernel is tested against."""

from __future__ import annotations

import numpy as np
import torch

from shadow.device.bits import bits, check_pair
from shadow.device.statistics import RowStatistics


def reference(control: torch.Tensor, candidate: torch.Tensor) -> RowStatistics:
    """Over the last axis. ValueError: as in shadow.numerics; float64 is scored there."""
    check_pair(control, candidate)
    unequal = bits(control.contiguous()) != bits(candidate.contiguous())
    ours, theirs = control.double(), candidate.double()
    wild_ours, wild_theirs = ~ours.isfinite(), ~theirs.isfinite()
    error = torch.where(unequal, (theirs - ours).abs(), 0.0)
    error = error.masked_fill(unequal & (wild_ours | wild_theirs), torch.inf)
    first = unequal.to(torch.uint8).argmax(-1) if control.shape[-1] else unequal.sum(-1)
    return RowStatistics(
        squared_error=_on_host(error.square().sum(-1)),
        squared_norm=_on_host(ours.masked_fill(wild_ours, 0.0).square().sum(-1)),
        max_abs=_on_host(error.amax(-1) if control.shape[-1] else error.sum(-1)),
        first=_on_host(torch.where(unequal.any(-1), first, -1)),
        differing=_on_host(unequal.sum(-1)),
        one_side=_on_host((wild_ours != wild_theirs).sum(-1)),
        both_sides=_on_host((wild_ours & wild_theirs).sum(-1)),
        elements=control.numel(),
    )


def _on_host(found: torch.Tensor) -> np.ndarray:
    values: np.ndarray = found.cpu().numpy()
    return values
