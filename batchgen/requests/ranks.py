"""The processes of one run under torchrun, as far as reading requests and writing results need them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """Rank 0 reads, writes and speaks; the others only compute."""

    rank: int = 0
    world_size: int = 1

    @classmethod
    def from_environment(cls) -> Ranks:
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, value: T) -> T:
        """Rank 0's value on every rank (collective, after torch.distributed is initialised)."""
        if self.world_size == 1:
            return value
        import torch.distributed as dist

        box: list[T] = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def part(self) -> None:
        """Ends the process group, once no rank has anything to say to another: its threads would outlive the
        interpreter."""
        if self.world_size > 1:
            import torch.distributed as dist

            dist.destroy_process_group()

    def is_first_to_fail(self) -> bool:
        """Whether this rank is the first of all to report a failure: only that one speaks, so that one cause
        gives one line however many ranks it ends. Asked of the rendezvous store, which outlives a broken
        process group."""
        if self.world_size == 1:
            return True
        try:
            from torch.distributed import TCPStore

            store = TCPStore(
                os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), timeout=timedelta(seconds=5)
            )
            run = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            return store.add(f"batchgen/failures/{run}", 1) == 1
        except (KeyError, ValueError, RuntimeError):
            return self.is_first
