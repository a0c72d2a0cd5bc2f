"""Two records side by side: exact counts of everything, and the first differences with all coordinates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shadow.diff import Mismatch, Nature, diff_plain
from shadow.noise.store import Conditions
from shadow.observation import Event, Kind, Point, Severity, severity
from shadow.pairing import Pairing
from shadow.record.counting import Counter, Counts
from shadow.record.format import RecordError, Tag
from shadow.record.judge import Judge, Review
from shadow.record.reader import Record
from shadow.record.unpack import Chunk
from shadow.tally import KEPT, Tally


def check_comparable(legacy: Record, candidate: Record) -> None:
    """RecordError unless both recorded the same requests."""
    leaves, _, _ = diff_plain(legacy.requests, candidate.requests, "requests")
    if leaves:
        path, _, ours, theirs = leaves[0]
        raise RecordError(
            f"{legacy.path} and {candidate.path} are of different requests ({path}: {ours} and {theirs}): "
            "record both with the same requests file"
        )


def conditions_of(record: Record) -> Conditions:
    """What a noise floor must have been measured under. RecordError where the record does not say."""
    facts = dict(record.header.facts)
    try:
        return Conditions(
            model=facts["model"],
            dtype=facts["dtype"],
            device=facts["device"],
            threads=int(facts["threads"]),
            page_size=int(facts["page_size"]),
            torch_version=facts["torch"],
        )
    except (KeyError, ValueError):
        raise RecordError(
            f"{record.path}: does not say how its run was set up: give --bound instead"
        ) from None


def judge_of(
    legacy: Record, candidate: Record, bound: float | None = None, review: Review | None = None
) -> Judge:
    """What both records are meant to hold: fields that one leaves out by its content are ignored."""
    if legacy.header.content == candidate.header.content:
        return Judge(bound, review=review)
    fields = [{(key.kind, key.field) for key in record.dictionary.keys} for record in (legacy, candidate)]
    pairing = Pairing("records of different content", ignored=frozenset(fields[0] ^ fields[1]))
    return Judge(bound, pairing, review)


def required_kinds(legacy: Record, candidate: Record, judge: Judge) -> frozenset[Kind]:
    """Kinds of which something must be compared: those that either record holds, and how the run ended."""
    keys = (*legacy.dictionary.keys, *candidate.dictionary.keys)
    return frozenset({Kind.SCHEDULE, Kind.OUTCOME, *(key.kind for key in keys if not judge.ignores(key))})


@dataclass(frozen=True)
class _Span:
    """Events [start, stop) of one chunk of ours, which are those at `offset` more of one of theirs."""

    ours: Chunk
    theirs: Chunk
    start: int
    stop: int
    offset: int


def _spans(legacy: Record, candidate: Record, first: int = 0) -> Iterator[_Span]:
    """The events that both records have, in order, from chunk `first` of both on."""
    ours, theirs = legacy.chunks(first), candidate.chunks(first)
    own, their = next(ours, None), next(theirs, None)
    while own is not None and their is not None:
        offset = own.first_event - their.first_event
        start, stop = max(0, -offset), min(len(own), len(their) - offset)
        yield _Span(own, their, start, stop, offset)
        ends = own.first_event + len(own), their.first_event + len(their)
        if ends[0] <= ends[1]:
            own = next(ours, None)
        if ends[1] <= ends[0]:
            their = next(theirs, None)


def _same(record: Record, chunks: int) -> Iterator[_Span]:
    """The first chunks against themselves: what equals them need not be decoded to be counted."""
    for chunk in map(record.chunk, range(chunks)):
        yield _Span(chunk, chunk, 0, len(chunk), 0)


def _equal_chunks(legacy: Record, candidate: Record) -> int:
    """How many chunks at the beginning hold the same bytes, names and arrays included, and no violation."""
    digests = zip(legacy.chunk_digests, candidate.chunk_digests, strict=False)
    count = 0
    for frame, (ours, theirs) in zip(legacy.chunk_frames, digests, strict=False):
        if ours != theirs or frame.tag is Tag.ALARM:
            break
        count += 1
    return count


def first_divergence(legacy: Record, candidate: Record, judge: Judge) -> Mismatch | None:
    """The first difference, None if the events that both have are equal. Chunks of equal bytes are passed
    over; only the chunk that differs is decoded. Hygiene makes no divergence."""
    counter = Counter(judge)
    for span in _spans(legacy, candidate, _equal_chunks(legacy, candidate)):
        stop = _schedules_part(span)
        counts = counter.count(span.ours, span.theirs, span.start, stop, span.offset)
        for index in np.flatnonzero(counts.any_differs).tolist():
            comparison = judge.events(*_events(span, span.start + index))
            for mismatch in comparison.mismatches:
                if mismatch.severity is not Severity.HYGIENE:
                    return mismatch
        if stop < span.stop:
            return _parted(span, stop)
    return _end(legacy, candidate)


def _schedules_part(span: _Span) -> int:
    """The first event of the span at which the sides are at two points; its end if there is none."""
    for index in range(span.start, span.stop):
        if span.ours.point(index) is not span.theirs.point(index + span.offset):
            return index
    return span.stop


def _events(span: _Span, index: int) -> tuple[Event, Event]:
    return span.ours.event(index), span.theirs.event(index + span.offset)


def _parted(span: _Span, index: int) -> Mismatch:
    ours, theirs = span.ours.point(index), span.theirs.point(index + span.offset)
    steps = int(span.ours.steps[index]), int(span.theirs.steps[index + span.offset])
    ours_said, theirs_said = (
        f"{point.value} after {step} decode steps" for point, step in zip((ours, theirs), steps, strict=True)
    )
    return Mismatch(
        Kind.SCHEDULE, Nature.VALUE, ours, min(steps), None, None, "next point", ours_said, theirs_said
    )


def _end(legacy: Record, candidate: Record) -> Mismatch | None:
    """How the runs ended, where both came to an end."""
    if legacy.end is None or candidate.end is None or legacy.end == candidate.end:
        return None
    step = max((int(chunk.steps[-1]) for chunk in legacy.chunks(len(legacy.chunk_frames) - 1)), default=0)
    ours, theirs = (f"{end.outcome} after {end.events} events" for end in (legacy.end, candidate.end))
    return Mismatch(Kind.OUTCOME, Nature.VALUE, Point.END, step, None, None, "outcome", ours, theirs)


def diff_records(legacy: Record, candidate: Record, judge: Judge, tally: Tally) -> None:
    """Compares all events that both records have, up to the point where their schedules part.

    RecordError for damage that shows only now.
    """
    counter = Counter(judge)
    equal = _equal_chunks(legacy, candidate)
    for span in itertools.chain(_same(legacy, equal), _spans(legacy, candidate, equal)):
        stop = _schedules_part(span)
        counts = counter.count(span.ours, span.theirs, span.start, stop, span.offset)
        _add(span, counts, judge, tally)
        for index in range(span.start, stop):
            tally.points[span.ours.point(index)] += 1
        if stop < span.stop:
            tally.compared[Kind.SCHEDULE] += 1
            tally.find(_parted(span, stop))
            return
    if legacy.end is not None and candidate.end is not None:
        tally.compared[Kind.OUTCOME] += 1
        mismatch = _end(legacy, candidate)
        if mismatch is not None:
            tally.find(mismatch)


def _add(span: _Span, counts: Counts, judge: Judge, tally: Tally) -> None:
    """Counts into the tally; events whose differences are to be shown are looked at one by one."""
    for kind, per_event in counts.compared.items():
        tally.compared[kind] += int(per_event.sum())
    for index in np.flatnonzero(counts.any_differs).tolist():
        differing = {kind: int(n[index]) for kind, n in counts.differing.items() if n[index]}
        new = differing.keys() - tally.first_of_kind.keys()
        alarm = Kind.INVARIANT in differing
        if len(tally.kept) < KEPT or tally.first is None or new or alarm or judge.forgives:
            comparison = judge.events(*_events(span, span.start + index))
            tally.opaque |= comparison.opaque
            for mismatch in comparison.mismatches:
                tally.find(mismatch)
            continue
        for kind, count in differing.items():
            tally.differing[kind] += count
            if severity(kind) is Severity.HYGIENE:
                tally.hygiene[kind] += count
