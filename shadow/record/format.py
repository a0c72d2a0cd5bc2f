"""The bytes of a record: a preamble, then frames that are each complete and checked on their own.

A file that was cut off anywhere is a readable prefix: a frame is used only when all of it is there. A frame
whose bytes are all there but wrong is damage, and the file is refused.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b

VERSION = 1
_MAGIC = b"\x89SHADOWREC\r\n\x1a\n"  # as PNG's: shows a transfer that touched bit 7 or line ends
_PREAMBLE = struct.Struct("<14sH16s")
_HEAD = struct.Struct("<4sII16s")
_SUM = struct.Struct("<I")
FRAME_HEAD_BYTES = _HEAD.size + _SUM.size


class RecordError(ValueError):
    """The file cannot be used; the message is one line: what, where, why and what to do."""


class Tag(Enum):
    """What a frame holds (see shadow.record.tables)."""

    HEADER = b"HEAD"
    REQUESTS = b"REQS"
    NAMES = b"NAME"
    CHUNK = b"CHNK"
    ALARM = b"CHN!"  # a chunk in which an invariant was violated
    ARRAYS = b"ARRS"
    END = b"DONE"


@dataclass(frozen=True)
class Frame:
    """One frame. `start` and `stop` bound its stored payload in the file; `digest` is that of its content."""

    tag: Tag
    digest: bytes
    start: int
    stop: int


@dataclass(frozen=True)
class Tail:
    """Bytes behind the last complete frame, from `offset` on: what a killed recorder had begun to write."""

    offset: int
    lost: int


def preamble(schema: bytes) -> bytes:
    """The first bytes of a file whose tables have the 16-byte hash `schema`."""
    return _PREAMBLE.pack(_MAGIC, VERSION, schema)


def frame_bytes(tag: Tag, content: bytes) -> bytes:
    """A whole frame: head, compressed content (arrays as they are, they do not shrink)."""
    stored = content if tag is Tag.ARRAYS else zlib.compress(content, 6)
    if len(stored) >= 1 << 32:
        raise RecordError(f"a frame of {len(stored):,} bytes is too large for a record: record fewer tensors")
    digest = blake2b(content, digest_size=16).digest()
    head = _HEAD.pack(tag.value, len(stored), zlib.crc32(stored), digest)
    return head + _SUM.pack(zlib.crc32(head)) + stored


def content_of(frame: Frame, data: memoryview) -> bytes:
    """The frame's content. RecordError where it does not decompress."""
    stored = data[frame.start : frame.stop]
    if frame.tag is Tag.ARRAYS:
        return bytes(stored)
    try:
        return zlib.decompress(stored)
    except zlib.error as error:
        raise RecordError(f"{frame.tag.name.lower()} frame at byte {frame.start}: {error}") from error


def begins_like_a_record(start: bytes) -> bool:
    """Whether a file with these first bytes is meant to be a record, whole or cut off."""
    return bool(start) and _MAGIC.startswith(start[: len(_MAGIC)])


def check_preamble(data: memoryview, schema: bytes) -> int:
    """Where the frames begin. RecordError for a file that is no record or one of other tables."""
    if len(data) < _PREAMBLE.size:
        what = "cut off within its first bytes" if _MAGIC.startswith(bytes(data[:14])) else "no shadow record"
        raise RecordError(f"{what}: {len(data)} bytes, a record begins with {_PREAMBLE.size}")
    magic, version, theirs = _PREAMBLE.unpack_from(data)
    if magic != _MAGIC:
        raise RecordError("not a shadow record: it does not begin with the signature of one")
    if version != VERSION:
        raise RecordError(f"a record of format {version}, this shadow reads format {VERSION}: record again")
    if theirs != schema:
        raise RecordError(
            f"its tables have schema {theirs.hex()[:12]}, this shadow reads {schema.hex()[:12]}: record again, "
            "or read it with the commit that wrote it"
        )
    return _PREAMBLE.size


def scan(data: memoryview, offset: int) -> Iterator[Frame | Tail]:
    """The complete frames from `offset` on, then the tail if there is one. RecordError for damaged bytes."""
    while offset < len(data):
        body = offset + FRAME_HEAD_BYTES
        if body > len(data):
            yield Tail(offset, len(data) - offset)
            return
        head = data[offset : offset + _HEAD.size]
        if zlib.crc32(head) != _SUM.unpack_from(data, offset + _HEAD.size)[0]:
            raise RecordError(f"damaged at byte {offset}: the head of a frame does not match its checksum")
        tag, length, checksum, digest = _HEAD.unpack(head)
        if body + length > len(data):
            yield Tail(offset, len(data) - offset)
            return
        if zlib.crc32(data[body : body + length]) != checksum:
            raise RecordError(
                f"damaged between bytes {body} and {body + length}: a frame does not match its checksum"
            )
        try:
            yield Frame(Tag(tag), digest, body, body + length)
        except ValueError:
            raise RecordError(
                f"frame of unknown kind {tag!r} at byte {offset}: written by another program"
            ) from None
        offset = body + length
