"""Writes a record chunk by chunk. What is written stays readable whatever happens to the writer afterwards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shadow.observation import Event
from shadow.record import tables
from shadow.record.format import RecordError, Tag, frame_bytes, preamble
from shadow.record.names import Dictionary
from shadow.record.pack import ArrayPacker, encode, pack_chunk
from shadow.record.values import tree_bytes

CHUNK_EVENTS = 64


class RecordWriter:
    """Creates the file (RecordError if it exists) and appends whole frames, one system call each.

    Events wait until a chunk of them is full, so a killed writer loses less than one chunk.
    """

    def __init__(self, path: Path, header: tables.Header) -> None:
        self.events = 0
        self._header = header
        self._dictionary, self._arrays = Dictionary(), ArrayPacker()
        self._waiting: list[Event] = []
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._file = os.open(path, flags, 0o644)
        except OSError as error:
            raise RecordError(
                f"cannot write {path}: {error.strerror}; name a file that does not exist"
            ) from error
        self._write(preamble(tables.schema_hash()) + frame_bytes(Tag.HEADER, encode(header)))

    def requests(self, requests: Sequence[Any]) -> None:
        """The requests as plain trees, in order."""
        self._write(frame_bytes(Tag.REQUESTS, encode(tables.Requests(tuple(map(tree_bytes, requests))))))

    def add(self, event: Event) -> None:
        """The next event. RecordError for values that have no form in a record."""
        event, arrays = self._arrays.take(self.events, event)
        if arrays is not None:
            self._write(frame_bytes(Tag.ARRAYS, encode(arrays)))
        self._waiting.append(event)
        self.events += 1
        if len(self._waiting) >= self._header.chunk_events:
            self.flush()

    def flush(self) -> None:
        """Writes the events that wait. Two records compare fastest when their chunks begin alike."""
        if not self._waiting:
            return
        first = self.events - len(self._waiting)
        chunk = pack_chunk(first, self._waiting, self._dictionary, self._arrays.count)
        news = self._dictionary.news()
        tag = Tag.ALARM if any(event.violations for event in self._waiting) else Tag.CHUNK
        self._waiting, self._arrays = [], ArrayPacker()
        frames = b"" if news is None else frame_bytes(Tag.NAMES, encode(news))
        self._write(frames + frame_bytes(tag, encode(chunk)))

    def finish(self, outcome: str) -> None:
        """The run is over; `outcome` is "done" or what was raised. Closes the file."""
        self.flush()
        self._write(frame_bytes(Tag.END, encode(tables.End(self.events, outcome))))
        os.fsync(self._file)
        self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
