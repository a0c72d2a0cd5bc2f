"""Batch sizes that get a captured graph."""

from __future__ import annotations

__all__ = ["generate_bucket_sizes"]


def generate_bucket_sizes(max_bucket: int, num_buckets: int) -> tuple[int, ...]:
    """At most `num_buckets` sizes from 1 to `max_bucket`, ascending and distinct, about a constant ratio
    apart.

    One bucket means (max_bucket,). With at least as many buckets as sizes, every size is one.
    ValueError when either argument is below 1.
    """
    if max_bucket < 1 or num_buckets < 1:
        raise ValueError(
            f"buckets need max_bucket >= 1 and num_buckets >= 1, got {max_bucket} and {num_buckets}"
        )
    count = min(num_buckets, max_bucket)
    if count == 1:
        return (max_bucket,)
    sizes: list[int] = []
    for i in range(count):
        lowest = sizes[-1] + 1 if sizes else 1
        sizes.append(max(round(max_bucket ** (i / (count - 1))), lowest))
    return tuple(sizes)
