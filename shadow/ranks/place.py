"""Which rank of how many a side is, and where it meets the others of its path."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """`port`: of the store (on this machine) at which the ranks of one side meet; each side has its own."""

    rank: int
    of: int
    port: int

    @property
    def environment(self) -> dict[str, str]:
        """As torchrun sets it. The last two say that the store is there already: no rank has to make it."""
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.rank),
            "WORLD_SIZE": str(self.of),
            "LOCAL_WORLD_SIZE": str(self.of),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }
