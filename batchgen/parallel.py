"""What the decode step needs to know about the other ranks: how many rows each one decodes."""

from __future__ import annotations

from collections.abc import Sequence


class DataParallelManager:
    """Row counts of a data-parallel decode, as the model's collectives and static buffers see them.

    Every rank decodes its own rows; kernels that pad (static buckets, expert dispatch) must pad to the same
    number on all ranks, so the widest rank decides.
    """

    def __init__(self, rank: int, world_size: int, max_rows_per_rank: int) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is outside of a world of {world_size}")
        self.rank = rank
        self.world_size = world_size
        self.max_rows_per_rank = max_rows_per_rank
        self.num_tokens_per_rank = 0
        self.rank_token_counts: tuple[int, ...] = (0,) * world_size

    def set_num_tokens_per_rank(self, rows: int) -> None:
        """Set the padded number of rows per rank.

        Raises:
            ValueError: ``rows`` is negative or above ``max_rows_per_rank`` (buffers are sized for that many).
        """
        if not 0 <= rows <= self.max_rows_per_rank:
            raise ValueError(
                f"{rows} rows per rank do not fit buffers sized for {self.max_rows_per_rank}; "
                "raise max_batch_size or admit fewer sequences"
            )
        self.num_tokens_per_rank = rows

    def set_rank_token_counts(self, counts: Sequence[int]) -> None:
        """Set how many rows each rank really has; ``len(counts) == world_size``."""
        if len(counts) != self.world_size:
            raise ValueError(f"{len(counts)} row counts for {self.world_size} ranks")
        if counts and max(counts) > self.num_tokens_per_rank:
            raise ValueError(f"a rank has {max(counts)} rows, padded width is {self.num_tokens_per_rank}")
        self.rank_token_counts = tuple(counts)

    def padding_rows(self) -> int:
        """Rows of this rank that are padding."""
        return self.num_tokens_per_rank - self.rank_token_counts[self.rank]
