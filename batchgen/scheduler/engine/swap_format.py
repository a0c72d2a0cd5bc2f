"""What a spilled sequence is as bytes: the content of its blocks, pool by pool, then its recurrent state."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import torch
from torch import Tensor

from batchgen.kv import DualKVCacheCoordinator
from batchgen.scheduler.errors import SpillError

MAGIC = b"BGSPILL1"


def write_sequence(writer: BinaryIO, pool: Any, blocks: Sequence[int], states: Sequence[Tensor]) -> None:
    """`states`: the rows of the recurrent state tensors that belong to the sequence."""
    parts = [*_pages(pool, blocks), *states]
    header = json.dumps([_shape_of(part) for part in parts]).encode()
    checksum = 0
    writer.write(MAGIC + struct.pack("<I", len(header)) + header)
    for part in parts:
        content = memoryview(part.contiguous().cpu().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
        checksum = zlib.crc32(content, checksum)
        writer.write(content)
    writer.write(struct.pack("<I", checksum))


def read_sequence(reader: BinaryIO, pool: Any, blocks: Sequence[int], states: Sequence[Tensor]) -> None:
    """Into these blocks and states. SpillError, with nothing written to them, where the bytes are of another shape,
    short or damaged."""
    targets = [*_pages(pool, blocks), *states]
    if _exactly(reader, len(MAGIC)) != MAGIC:
        raise SpillError("the entry is no spilled sequence")
    (size,) = struct.unpack("<I", _exactly(reader, 4))
    shapes = json.loads(_exactly(reader, size))
    expected = [_shape_of(target) for target in targets]
    if shapes != expected:
        raise SpillError(f"the entry holds tensors {shapes}, the sequence needs {expected}")
    checksum, contents = 0, []
    for target in targets:
        content = bytearray(_exactly(reader, target.numel() * target.element_size()))
        checksum = zlib.crc32(content, checksum)
        contents.append(torch.frombuffer(content, dtype=target.dtype).view(target.shape))
    if struct.unpack("<I", _exactly(reader, 4)) != (checksum,):
        raise SpillError("the entry is damaged: its checksum is another one")
    _write_pages(pool, blocks, contents)
    for state, saved in zip(states, contents[len(contents) - len(states) :], strict=True):
        state.copy_(saved)


def _caches(pool: Any) -> Iterator[Tensor]:
    pools = (pool.primary, pool.auxiliary) if isinstance(pool, DualKVCacheCoordinator) else (pool,)
    for single in pools:
        yield from (cache for cache in (single.k_cache, single.v_cache) if cache is not None)


def _pages(pool: Any, blocks: Sequence[int]) -> list[Tensor]:
    """[layers, blocks, page, heads, dim] of each cache, copied."""
    return [cache.index_select(1, torch.tensor(list(blocks), device=cache.device)) for cache in _caches(pool)]


def _write_pages(pool: Any, blocks: Sequence[int], contents: Sequence[Tensor]) -> None:
    for cache, content in zip(_caches(pool), contents, strict=False):
        cache.index_copy_(1, torch.tensor(list(blocks), device=cache.device), content.to(cache.device))


def _shape_of(tensor: Tensor) -> list[Any]:
    return [str(tensor.dtype), *tensor.shape]


def _exactly(reader: BinaryIO, size: int) -> bytes:
    content = reader.read(size)
    if len(content) != size:
        raise SpillError(f"the entry ends early: {len(content)} of {size} bytes")
    return content
