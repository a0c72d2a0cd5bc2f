"""The same statistics by operations of torch, in float64, on any device: what the kernel is tested against."""

from __future__ import annotations

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
    differing = unequal.sum(-1)
    found = (
        error.square().sum(-1),
        ours.masked_fill(wild_ours, 0.0).square().sum(-1),
        error.amax(-1) if control.shape[-1] else error.sum(-1),
        torch.where(differing > 0, unequal.to(torch.uint8).argmax(-1), -1)
        if control.shape[-1]
        else differing - 1,
        differing,
        (wild_ours != wild_theirs).sum(-1),
        (wild_ours & wild_theirs).sum(-1),
    )
    return RowStatistics(*(tensor.cpu().numpy() for tensor in found), elements=control.numel())
