"""Files of records: what goes in comes out; what is cut off is a prefix; what is damaged or foreign is refused."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadow.observation import Digests, Event, Key, Kind, Point, Row
from shadow.plain import Record as PlainRecord
from shadow.record.format import RecordError
from shadow.record.reader import open_record
from shadow.record.writer import RecordWriter
from tests.shadow.record.streams import events, header, same, written


def sample(count: int = 10) -> list[Event]:
    """Events with every form of value: integers, lists, trees, rows and digests."""
    return [
        Event(
            Point.BOUNDARY if i % 5 == 4 else Point.DECODE,
            i,
            {
                Key(Kind.PAGE_TABLE, "a", "kv_len"): 100 + i,
                Key(Kind.PAGE_TABLE, "a", "primary.owned_pages"): tuple(range(i // 3 + 1)),
                Key(Kind.SEQUENCE, "a", "status"): "IN_DECODE" if i < 8 else None,
                Key(Kind.BOUNDARY, None, "decisions"): PlainRecord("D", (("gone", ("a", i % 2)),)),
                Key(Kind.KV, "a", "primary.k"): Digests(
                    np.arange(6, dtype=np.int64).reshape(2, 3) + i // 4, "page", 4
                ),
                Key(Kind.LOGITS, "a", "logits"): Row(np.array([i, np.nan], np.float32)),
                Key(Kind.TOKENS, "a", "token"): (i * 7919) % 251,
            },
        )
        for i in range(count)
    ]


@given(events(), st.integers(1, 5))
@settings(deadline=None, max_examples=150)
def test_any_stream_of_events_comes_back_as_it_was(stream: list[Event], chunk: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "run.record", stream, chunk_events=chunk)
        record = open_record(path)
        assert same(list(record.events()), stream)
        assert record.event_count == len(stream)
        assert record.end is not None and (record.end.events, record.end.outcome) == (len(stream), "done")
        assert record.tail is None and record.requests == ({"id": "a"},)


def test_events_come_back_in_any_order_of_asking(tmp_path: Path) -> None:
    stream = sample()
    record = open_record(written(tmp_path / "run", stream))
    assert [len(chunk) for chunk in record.chunks()] == [4, 4, 2]
    chunk = record.chunk(1)
    assert all(same(chunk.event(i), stream[4 + i]) for i in (3, 0, 2, 1))


def test_a_file_cut_off_anywhere_is_a_prefix_or_one_clear_line(tmp_path: Path) -> None:
    stream = sample()
    whole = written(tmp_path / "whole", stream).read_bytes()
    cut, lengths, chunks = tmp_path / "cut", set(), -1
    for size in range(len(whole)):
        cut.write_bytes(whole[:size])
        try:
            record = open_record(cut)
        except RecordError as error:
            assert str(error).startswith(f"{cut}: ") and "\n" not in str(error) and "cut off" in str(error)
            assert not lengths, "a longer prefix is refused where a shorter one was read"
            continue
        if len(record.chunk_frames) > chunks:
            chunks, found = len(record.chunk_frames), list(record.events())
            assert same(found, stream[: len(found)])
            lengths.add(len(found))
        assert record.end is None, "nothing but the whole file has an end"
        if record.tail is not None:
            assert record.tail.offset + record.tail.lost == size
    assert lengths == {0, 4, 8, 10}


def test_a_flipped_bit_is_refused_in_one_line_wherever_it_is(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", sample(6)).read_bytes()
    damaged = tmp_path / "damaged"
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << (place % 8)
        damaged.write_bytes(data)
        with pytest.raises(RecordError) as refused:
            open_record(damaged)
        assert str(refused.value).startswith(f"{damaged}: ") and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no shadow record|cut off"),
        (b"{}", "no shadow record"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not a shadow record"),
        (b"\x89SHADOWREC\n\x1a\n" + bytes(100), "not a shadow record"),
        (b"\x89SHADOWREC\r\n\x1a\n\x02\x00" + bytes(100), "format 2, this shadow reads format 1"),
        (b"\x89SHADOWREC\r\n\x1a\n\x01\x00" + bytes(100), "schema 000000000000, this shadow reads"),
    ],
)
def test_a_foreign_file_is_refused_in_one_line(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(RecordError, match=says) as refused:
        open_record(path)
    assert "\n" not in str(refused.value)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(RecordError, match="cannot be read"):
            open_record(path)


def test_a_record_is_not_written_over_another_file(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("mine")
    with pytest.raises(RecordError, match=r"cannot write .*run.* does not exist"):
        RecordWriter(path, header())
    assert path.read_text() == "mine"


def test_a_value_without_a_form_is_refused(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "run", header(chunk_events=1))
    with pytest.raises(RecordError, match="type set has no form"):
        writer.add(Event(Point.END, 0, {Key(Kind.RESULT, None, "x"): {1}}))  # type: ignore[dict-item]
