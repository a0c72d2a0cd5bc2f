"""Several ranks that decode the same rows must do so in the same order: checked before each launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchgen.scheduler.errors import RanksDisagree


@dataclass(frozen=True)
class GroupRanks:
    """The ranks of a `torch.distributed` group (None: all)."""

    group: Any = None

    def agree(self, what: str, value: object) -> None:
        """One small collective. RanksDisagree, on every rank, names the first that differs from rank 0."""
        import torch.distributed as dist

        gathered: list[object] = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(gathered, value, group=self.group)
        for rank, theirs in enumerate(gathered):
            if theirs != gathered[0]:
                raise RanksDisagree(
                    f"ranks disagree on {what}: rank 0 has {gathered[0]!r}, rank {rank} has {theirs!r}; "
                    "their schedulers were given different requests, or a decision was not shared"
                )
