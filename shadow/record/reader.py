"""Opens a record: every frame is checked, chunks are decoded when they are asked for."""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shadow.observation import Event
from shadow.record import tables
from shadow.record.format import Frame, RecordError, Tag, Tail, check_preamble, content_of, scan
from shadow.record.names import Dictionary
from shadow.record.unpack import Chunk
from shadow.record.values import bytes_tree

T = TypeVar("T")
_BROKEN = (ValueError, TypeError, LookupError, StopIteration, OverflowError, msgspec.DecodeError)


class Record:
    """A record that was opened. `end` is None for one whose recorder did not come to its end; `tail` says what
    of it could not be read."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path, self._data = path, data
        self.dictionary = Dictionary()
        self.chunk_frames: list[Frame] = []
        self.tail: Tail | None = None
        self.end: tables.End | None = None
        self._requests: Frame | None = None
        self._array_frames: list[list[Frame]] = [[]]
        self._name_frames: list[list[Frame]] = [[]]
        header: tables.Header | None = None
        for frame in scan(data, check_preamble(data, tables.schema_hash())):
            if isinstance(frame, Tail):
                self.tail = frame
            elif frame.tag is Tag.HEADER:
                header = self._decoded(frame, tables.Header)
            else:
                self._take(frame)
        if header is None:
            raise RecordError("cut off before its header: nothing can be read of it; record again")
        self.header = header

    def _take(self, frame: Frame) -> None:
        match frame.tag:
            case Tag.REQUESTS:
                self._requests = frame
            case Tag.NAMES:
                self._name_frames[-1].append(frame)
                table = self._decoded(frame, tables.Names)
                self._guarded(frame, lambda: self.dictionary.learn(table))
            case Tag.ARRAYS:
                self._array_frames[-1].append(frame)
            case Tag.CHUNK | Tag.ALARM:
                self.chunk_frames.append(frame)
                self._array_frames.append([])
                self._name_frames.append([])
            case Tag.END:
                self.end = self._decoded(frame, tables.End)

    def _decoded(self, frame: Frame, table: type[T]) -> T:
        return self._guarded(frame, lambda: msgspec.msgpack.decode(content_of(frame, self._data), type=table))

    def _guarded(self, frame: Frame, read: Any) -> Any:
        try:
            return read()
        except RecordError:
            raise
        except _BROKEN as error:
            raise RecordError(
                f"the {frame.tag.name.lower()} frame at byte {frame.start} makes no sense "
                f"({type(error).__name__}: {error}): damaged, or written by another program"
            ) from error

    @cached_property
    def requests(self) -> tuple[Any, ...]:
        """The requests as plain trees, in order."""
        if self._requests is None:
            return ()
        return tuple(map(bytes_tree, self._decoded(self._requests, tables.Requests).requests))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The worker's settings by name."""
        return dict(bytes_tree(self.header.settings))

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self._data)

    def chunk(self, index: int) -> Chunk:
        """Chunk `index`, decoded anew at each call. RecordError where its tables make no sense."""
        frame = self.chunk_frames[index]
        table = self._decoded(frame, tables.Chunk)
        frames, known = self._array_frames[index], _Arrays(self)
        chunk: Chunk = self._guarded(
            frame, lambda: Chunk(table, self.dictionary.shapes, known.reader(frames))
        )
        return chunk

    def chunks(self, first: int = 0) -> Iterator[Chunk]:
        """From chunk `first` on, in order."""
        return map(self.chunk, range(max(0, first), len(self.chunk_frames)))

    @cached_property
    def chunk_digests(self) -> list[tuple[bytes, ...]]:
        """One item a chunk: equal items at equal places, and before them, mean equal events."""
        return [
            (chunk.digest, *(frame.digest for frame in (*arrays, *names)))
            for chunk, arrays, names in zip(
                self.chunk_frames, self._array_frames, self._name_frames, strict=False
            )
        ]

    def events(self) -> Iterator[Event]:
        """All events that can be read, in order."""
        for number, chunk in enumerate(self.chunks()):
            for index in range(len(chunk)):
                yield self.guarded(number, lambda c=chunk, i=index: c.event(i))

    def guarded(self, number: int, read: Any) -> Any:
        """`read()`; what goes wrong in it is damage of chunk `number` (RecordError)."""
        return self._guarded(self.chunk_frames[number], read)

    @cached_property
    def event_count(self) -> int:
        """Events that can be read."""
        if not self.chunk_frames:
            return 0
        last = self.chunk(len(self.chunk_frames) - 1)
        return last.first_event + len(last)


class _Arrays:
    """The arrays of one chunk by number; a frame is decoded when one of its arrays is wanted."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._tables: dict[int, tables.Arrays] = {}

    def reader(self, frames: list[Frame]) -> Any:
        starts: list[int] = []

        def table(index: int) -> tables.Arrays:
            if index not in self._tables:
                self._tables[index] = self._record._decoded(frames[index], tables.Arrays)
            return self._tables[index]

        def read(number: int) -> tables.Array:
            if not starts:
                total = 0
                for index in range(len(frames)):
                    starts.append(total)
                    total += len(table(index).arrays)
            index = bisect_right(starts, number) - 1
            return table(index).arrays[number - starts[index]]

        return read


def open_record(path: Path) -> Record:
    """RecordError, one line that begins with the file's name, for what is damaged, foreign or unreadable."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")
        return Record(path, data)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error
