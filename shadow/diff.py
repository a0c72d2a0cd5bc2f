"""Compares two events: every key of either side, down to the field path, counting what was compared."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from shadow.numerics import RowScore, VectorScore, score_row, score_rows
from shadow.observation import (
    Call,
    Calls,
    Digests,
    Event,
    Key,
    Kind,
    Observed,
    Pages,
    Point,
    Row,
    Rows,
    Severity,
    Vectors,
    Violation,
    severity,
)
from shadow.pairing import SAME, Pairing, Renaming
from shadow.plain import Opaque, Plain, Record


class Nature(StrEnum):
    VALUE = "value"
    ORDER = "order"  # the same items in another order
    TYPE = "type"
    SHAPE = "shape"
    NUMERIC = "numeric"
    MISSING = "missing"  # only the legacy side has it
    EXTRA = "extra"  # only the candidate has it
    VIOLATED = "violated"  # what must hold on one side alone


@dataclass(frozen=True)
class Mismatch:
    """One difference with all its coordinates. `layer` is None where the value belongs to no layer, `rank` where
    there is one."""

    kind: Kind
    nature: Nature
    point: Point
    step: int
    sequence: str | None
    layer: int | None
    field: str
    legacy: str
    candidate: str
    score: VectorScore | None = None
    detail: str = ""
    severity: Severity = Severity.LIVE
    rank: int | None = None


@dataclass(frozen=True)
class Comparison:
    """`compared` counts leaf values that both sides have; `opaque` names fields seen only by their type."""

    compared: Counter[Kind]
    mismatches: tuple[Mismatch, ...]
    opaque: frozenset[str]


_ABSENT = "(absent)"
_NOTHING = object()
_SHAPED = Row | Digests | Vectors | Pages | Rows | Calls
_Leaf = tuple[str, Nature, str, str]


def _same_scalar(legacy: Plain, candidate: Plain) -> bool:
    if isinstance(legacy, float) and isinstance(candidate, float):
        return struct.pack("<d", legacy) == struct.pack("<d", candidate)
    return legacy == candidate


def _short(value: Plain, limit: int = 120) -> str:
    text = f"<{value.type_name}>" if isinstance(value, Opaque) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


class _Tree:
    """One walk over a pair of plain trees: collects the leaves that differ, counts those compared."""

    def __init__(self) -> None:
        self.leaves: list[_Leaf] = []
        self.opaque: set[str] = set()
        self.count = 0

    def walk(self, legacy: Plain, candidate: Plain, path: str) -> None:
        if type(legacy) is not type(candidate):
            self._differ(path, Nature.TYPE, legacy, candidate)
        elif isinstance(legacy, Record) and isinstance(candidate, Record):
            self._record(legacy, candidate, path)
        elif isinstance(legacy, tuple) and isinstance(candidate, tuple):
            self._items(legacy, candidate, path)
        elif isinstance(legacy, Opaque):
            self.opaque.add(path)
            if legacy != candidate:
                self._differ(path, Nature.TYPE, legacy, candidate)
        elif _same_scalar(legacy, candidate):
            self.count += 1
        else:
            self._differ(path, Nature.VALUE, legacy, candidate)

    def _differ(self, path: str, nature: Nature, legacy: Plain, candidate: Plain) -> None:
        self.count += 1
        self.leaves.append((path, nature, _short(legacy), _short(candidate)))

    def _record(self, legacy: Record, candidate: Record, path: str) -> None:
        if legacy.name != candidate.name:
            self._differ(path, Nature.TYPE, legacy.name, candidate.name)
        ours, theirs = dict(legacy.fields), dict(candidate.fields)
        for name in [*ours, *(n for n in theirs if n not in ours)]:
            where = f"{path}.{name}" if path else name
            if name not in theirs:
                self.leaves.append((where, Nature.MISSING, _short(ours[name]), _ABSENT))
            elif name not in ours:
                self.leaves.append((where, Nature.EXTRA, _ABSENT, _short(theirs[name])))
            else:
                self.walk(ours[name], theirs[name], where)

    def _items(self, legacy: tuple[Plain, ...], candidate: tuple[Plain, ...], path: str) -> None:
        if not legacy and not candidate:
            self.count += 1  # empty on both sides: compared too
            return
        # By their text: two NaN are no difference, however they compare.
        ours, theirs = [repr(item) for item in legacy], [repr(item) for item in candidate]
        if legacy != candidate and ours != theirs and Counter(ours) == Counter(theirs):
            first = next(i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
            self._differ(f"{path}[{first}]", Nature.ORDER, legacy, candidate)
            return
        for index in range(max(len(legacy), len(candidate))):
            where = f"{path}[{index}]"
            if index >= len(candidate):
                self.leaves.append((where, Nature.MISSING, _short(legacy[index]), _ABSENT))
            elif index >= len(legacy):
                self.leaves.append((where, Nature.EXTRA, _ABSENT, _short(candidate[index])))
            else:
                self.walk(legacy[index], candidate[index], where)


def diff_plain(legacy: Plain, candidate: Plain, path: str = "") -> tuple[list[_Leaf], int, set[str]]:
    """(differing leaves as (path, nature, legacy, candidate), leaves compared, paths seen by type only)."""
    tree = _Tree()
    tree.walk(legacy, candidate, path)
    return tree.leaves, tree.count, tree.opaque


def _digest_leaves(legacy: Digests, candidate: Digests) -> Iterator[tuple[int, int, str, str]]:
    """(layer, unit, legacy, candidate) for the first differing unit of each layer: a page feeds the rest."""
    unequal = legacy.values != candidate.values
    for layer in np.flatnonzero(unequal.any(axis=1)):
        column = int(unequal[layer].argmax())
        ours, theirs = int(legacy.values[layer, column]), int(candidate.values[layer, column])
        yield int(layer), legacy.first + column, _hex(ours), _hex(theirs)


def _hex(digest: int) -> str:
    return f"#{digest & 0xFFFFFFFFFFFFFFFF:016x}" if digest else "all zero"


def _shape(value: Row | Digests | Vectors) -> str:
    return f"{value.values.dtype}{list(value.values.shape)}"


def _row_text(row: Row, score: RowScore, side: int) -> str:
    return f"{float(row.values[score.index])!r} at [{score.index}], argmax {score.argmax[side]}"


Known = dict[Key, tuple[Observed, Observed, int]]
"""Pairs of values that were compared and do not differ, with how much was compared of them.

Of events of one point and one pairing. Values that are still the very same objects on both sides are still equal.
"""


class _EventDiff:
    def __init__(self, point: Point, step: int, pairing: Pairing) -> None:
        self.point, self.step, self.pairing = point, step, pairing
        self.renaming = Renaming()
        self.compared: Counter[Kind] = Counter()
        self.mismatches: list[Mismatch] = []
        self.opaque: set[str] = set()

    def add(
        self,
        key: Key,
        nature: Nature,
        legacy: str,
        candidate: str,
        *,
        field: str | None = None,
        layer: int | None = None,
        score: VectorScore | None = None,
        detail: str = "",
        how_bad: Severity | None = None,
    ) -> None:
        name = key.field if field is None else field
        self.mismatches.append(
            Mismatch(
                key.kind,
                nature,
                self.point,
                self.step,
                key.sequence,
                key.layer if layer is None else layer,
                name,
                legacy,
                candidate,
                score,
                detail,
                severity(key.kind) if how_bad is None else how_bad,
            )
        )

    def pair(self, key: Key, legacy: Observed, candidate: Observed) -> None:
        if isinstance(legacy, Row) and isinstance(candidate, Row):
            self._rows(key, legacy, candidate)
        elif isinstance(legacy, Digests) and isinstance(candidate, Digests):
            self._digests(key, legacy, candidate)
        elif isinstance(legacy, Vectors) and isinstance(candidate, Vectors):
            self._vectors(key, legacy, candidate)
        elif isinstance(legacy, Pages) and isinstance(candidate, Pages):
            self._pages(key, legacy, candidate)
        elif isinstance(legacy, Rows) and isinstance(candidate, Rows):
            ours, theirs = legacy.labels, candidate.labels
            if self.pairing.rows_reordered:
                ours, theirs = tuple(sorted(ours)), tuple(sorted(theirs))
            self._plain(key, ours, theirs)
        elif isinstance(legacy, Calls) and isinstance(candidate, Calls):
            self._calls(key, legacy.calls, candidate.calls)
        elif isinstance(legacy, _SHAPED) or isinstance(candidate, _SHAPED):
            self.compared[key.kind] += 1
            self.add(key, Nature.TYPE, type(legacy).__name__, type(candidate).__name__)
        else:
            self._plain(key, legacy, candidate)

    def learn(self, key: Key, legacy: Observed, candidate: Observed, known: Known) -> None:
        """As `pair`; `known` learns of the two where nothing but themselves decides whether they differ.

        Content is new at each step.
        """
        compared, found, opaque = self.compared[key.kind], len(self.mismatches), len(self.opaque)
        self.pair(key, legacy, candidate)
        renamed = self.pairing.pages_renamed and isinstance(legacy, Pages)
        alone = not (renamed or isinstance(legacy, Row | Digests | Vectors))
        if alone and found == len(self.mismatches) and opaque == len(self.opaque):
            known[key] = legacy, candidate, self.compared[key.kind] - compared
        else:
            known.pop(key, None)

    def _plain(self, key: Key, legacy: Plain, candidate: Plain) -> None:
        leaves, count, opaque = diff_plain(legacy, candidate, key.field)
        self.compared[key.kind] += count
        self.opaque |= opaque
        for field, nature, ours, theirs in leaves:
            # Decisions list sequences in the order of their rows.
            if nature is Nature.ORDER and key.kind is Kind.BOUNDARY and self.pairing.rows_reordered:
                continue
            self.add(key, nature, ours, theirs, field=field)

    def _calls(self, key: Key, legacy: tuple[Call, ...], candidate: tuple[Call, ...]) -> None:
        """The first call that differs: what follows it differs as well."""
        if self.pairing.rows_reordered:
            legacy, candidate = _in_any_order(legacy), _in_any_order(candidate)
        self.compared[key.kind] += max(1, len(legacy))
        if legacy == candidate:
            return
        pairs = zip(legacy, candidate, strict=False)
        first = next((i for i, pair in enumerate(pairs) if pair[0] != pair[1]), None)
        at = min(len(legacy), len(candidate)) if first is None else first
        ours, theirs = (
            legacy[at] if at < len(legacy) else None,
            candidate[at] if at < len(candidate) else None,
        )
        nature = Nature.VALUE
        if Counter(legacy) == Counter(candidate):
            nature = Nature.ORDER
        elif theirs is None or (ours is not None and legacy[at + 1 : at + 2] == (theirs,)):
            nature = Nature.MISSING
        elif ours is None or candidate[at + 1 : at + 2] == (ours,):
            nature = Nature.EXTRA
        sequence = key.sequence or _differing_sequence(ours, theirs)
        named = Key(key.kind, sequence, f"{key.field}[{at}]")
        self.add(named, nature, _said(ours), _said(theirs))

    def _pages(self, key: Key, legacy: Pages, candidate: Pages) -> None:
        if legacy.ids == candidate.ids and not self.pairing.pages_renamed:
            self.compared[key.kind] += max(1, len(legacy.ids))
            return
        if self.pairing.pages_renamed and not legacy.owned:
            self._plain(key, len(legacy.ids), len(candidate.ids))
            return
        if not self.pairing.pages_renamed or len(legacy.ids) != len(candidate.ids):
            self._plain(key, legacy.ids, candidate.ids)
            return
        self.compared[key.kind] += max(1, len(legacy.ids))
        for index, (ours, theirs) in enumerate(zip(legacy.ids, candidate.ids, strict=True)):
            if not self.renaming.agrees(legacy.pool, ours, theirs):
                detail = "one page on one side is two on the other"
                field = f"{key.field}[{index}]"
                self.add(key, Nature.VALUE, str(ours), str(theirs), field=field, detail=detail)

    def _rows(self, key: Key, legacy: Row, candidate: Row) -> None:
        if legacy.values.shape != candidate.values.shape or legacy.values.dtype != candidate.values.dtype:
            self.add(key, Nature.SHAPE, _shape(legacy), _shape(candidate))
            return
        self.compared[key.kind] += legacy.values.size
        score = score_row(legacy.values, candidate.values)
        if score is not None:
            ours, theirs = _row_text(legacy, score, 0), _row_text(candidate, score, 1)
            self.add(key, Nature.NUMERIC, ours, theirs, score=score)

    def _vectors(self, key: Key, legacy: Vectors, candidate: Vectors) -> None:
        """Of each layer the unit and head that differ most: with the score, so that a bound can judge it."""
        if legacy.values.shape != candidate.values.shape:
            self.add(key, Nature.SHAPE, _shape(legacy), _shape(candidate))
            return
        self.compared[key.kind] += legacy.values.size
        scores = score_rows(legacy.values, candidate.values)
        for layer in np.flatnonzero(scores.differs.any(axis=(1, 2))).tolist():
            of_layer = np.where(scores.differs[layer], scores.relative_l2[layer], -1.0)
            unit, head = np.unravel_index(of_layer.argmax(), of_layer.shape)
            ours, theirs = legacy.values[layer, unit, head], candidate.values[layer, unit, head]
            score = score_row(ours, theirs)
            if score is None:
                continue
            start = legacy.first + int(unit) * legacy.tokens
            end = start + legacy.tokens - 1
            self.add(
                key,
                Nature.NUMERIC,
                repr(float(ours[score.index])),
                repr(float(theirs[score.index])),
                field=f"{key.field}.{legacy.unit}[{legacy.first + int(unit)}].head[{int(head)}]",
                layer=layer,
                score=score,
                detail=f"position {start}" if start == end else f"positions {start} to {end}",
            )

    def _digests(self, key: Key, legacy: Digests, candidate: Digests) -> None:
        if legacy.values.shape != candidate.values.shape:
            self.add(key, Nature.SHAPE, _shape(legacy), _shape(candidate))
            return
        self.compared[key.kind] += legacy.values.size
        for layer, unit, ours, theirs in _digest_leaves(legacy, candidate):
            field = f"{key.field}.{legacy.unit}[{unit}]"
            start, end = unit * legacy.tokens, (unit + 1) * legacy.tokens - 1
            detail = f"position {start}" if start == end else f"positions {start} to {end}"
            self.add(key, Nature.VALUE, ours, theirs, field=field, layer=layer, detail=detail)


def _in_any_order(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    return tuple(sorted((Call(c.name, tuple(sorted(c.items, key=repr)), c.detail) for c in calls), key=str))


def _said(call: Call | None) -> str:
    return _ABSENT if call is None else str(call)


def _differing_sequence(ours: Call | None, theirs: Call | None) -> str | None:
    """The first sequence of which the two calls say something different, where that can be told."""
    mine, others = (dict(call.items) if call is not None else {} for call in (ours, theirs))
    for label in [*mine, *others]:
        if (label in mine, mine.get(label)) != (label in others, others.get(label)):
            return label
    return None


def _present(value: Observed) -> str:
    match value:
        case Row() | Digests() | Vectors():
            return _shape(value)
        case Pages():
            return _short(value.ids)
        case Rows():
            return _short(value.labels)
        case Calls():
            return f"{len(value.calls)} calls"
    return _short(value)


def _violated(diff: _EventDiff, legacy: Event, candidate: Event, *, late: bool) -> None:
    """What must hold on either side alone is a finding on either side, also where both break it alike."""
    for side, violations in ((0, legacy.violations), (1, candidate.violations)):
        for violation in violations:
            if violation.late is not late:
                continue
            key = Key(Kind.INVARIANT, violation.sequence, violation.invariant)
            texts = ("(holds)", violation.message) if side else (violation.message, "(holds)")
            if _same_place(violation, (candidate.violations, legacy.violations)[side]):
                texts = (violation.message, violation.message)
            diff.add(key, Nature.VIOLATED, *texts, layer=violation.layer, how_bad=violation.severity)


def _same_place(violation: Violation, others: tuple[Violation, ...]) -> bool:
    where = (violation.invariant, violation.sequence, violation.layer)
    return any((other.invariant, other.sequence, other.layer) == where for other in others)


def compare_events(
    legacy: Event, candidate: Event, pairing: Pairing = SAME, known: Known | None = None
) -> Comparison:
    """Compares two events of one point; the mismatches come in the order in which the values came about.

    `known`: of the events before; it is brought up to date. What it knows is counted as compared.
    """
    if legacy.point is not candidate.point:
        raise ValueError(f"events of two points: {legacy.point} and {candidate.point}")
    diff = _EventDiff(legacy.point, legacy.step, pairing)
    checked = sum(legacy.checked.values()) + sum(candidate.checked.values())
    if checked:
        diff.compared[Kind.INVARIANT] += checked
    _violated(diff, legacy, candidate, late=False)
    known = {} if known is None else known
    for key, value in legacy.values.items():
        other = candidate.values.get(key, _NOTHING)
        was = known.get(key)
        if was is not None and was[0] is value and was[1] is other:
            diff.compared[key.kind] += was[2]
        elif pairing.ignores(key.kind, key.field):
            continue
        elif other is not _NOTHING:
            diff.learn(key, value, candidate.values[key], known)
        else:
            diff.add(key, Nature.MISSING, _present(value), _ABSENT)
    if len(known) > len(legacy.values):
        for key in known.keys() - legacy.values.keys():
            del known[key]
    for key, value in candidate.values.items():
        if key not in legacy.values and not pairing.ignores(key.kind, key.field):
            diff.add(key, Nature.EXTRA, _ABSENT, _present(value))
    _violated(diff, legacy, candidate, late=True)
    return Comparison(diff.compared, tuple(diff.mismatches), frozenset(diff.opaque))
