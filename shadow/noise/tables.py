"""Bounds and what they could not have seen, as tables and in words."""

from __future__ import annotations

from collections.abc import Sequence

from reports.model import Table
from shadow.noise.bound import Bound, Class
from shadow.noise.power import FaultScores, blindness
from shadow.noise.store import NoiseFloor
from shadow.observation import Kind

# Half an ulp, relatively: what moves a number by less need not change a bit of it.
_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def bounds_table(bounds: Sequence[Bound]) -> Table:
    """One row a class and kind; but for the logits, kinds that were bit-equal in every run share one row."""
    columns = ("sides differ in", "kind", "A/A runs", "steps", "largest score", "bound", "false alarms")
    rows: list[tuple[str, ...]] = []
    for pairing in dict.fromkeys(bound.pairing for bound in bounds):
        of_class = [bound for bound in bounds if bound.pairing is pairing]
        own = [bound for bound in of_class if not bound.bit_equal or bound.kind == Kind.LOGITS.value]
        rows += [_row(bound, bound.kind) for bound in own]
        rest = [bound for bound in of_class if bound not in own]
        if rest:
            fewest = min(rest, key=lambda bound: bound.steps)
            rows.append(_row(fewest, f"{len(rest)} other kinds" if len(rest) > 1 else rest[0].kind))
    return Table("Noise floor", columns, tuple(rows))


def _row(bound: Bound, kinds: str) -> tuple[str, ...]:
    largest, limit = ("bit-equal", "0") if bound.bit_equal else ("no score", "not judged")
    if bound.maximum is not None and not bound.bit_equal:
        largest, limit = f"{bound.maximum:.3g}", f"{bound.limit:.3g} ({bound.margin:g}x)"
    rate = f"<= 1/{bound.steps + 1} a step"
    return bound.pairing.value, kinds, str(bound.runs), str(bound.steps), largest, limit, rate


def said(bound: Bound) -> str:
    """One bound with all that it rests on, in words."""
    runs = f"{bound.runs} A/A runs, {bound.steps} steps"
    if bound.bit_equal:
        return f"0: {runs}, bit-equal"
    if bound.limit is None:
        return f"none: {runs}, they differ and have no score"
    return (
        f"{bound.limit:.3g} = {bound.margin:g} x {bound.maximum:.3g}, the largest of {runs}; without the margin "
        f"a clean step exceeds it with probability <= 1/{bound.steps + 1}, a clean run <= 1/{bound.runs + 1}, "
        "if exchangeable with those measured"
    )


def sight(bound: Bound, dtype: str) -> float | None:
    """The smallest score that is certain to be seen under `bound`, None where none is."""
    return None if bound.limit is None else max(bound.limit, _ROUNDOFF.get(dtype, 0.0))


def blind_table(power: Sequence[FaultScores], floor: NoiseFloor) -> Table:
    """Known faults against the logits' bound of each class."""
    classes = [pairing for pairing in floor.classes if floor.bound(pairing, Kind.LOGITS.value)]
    limits = {pairing: class_sight(floor, pairing) for pairing in classes}
    rows = []
    for scores in power:
        cells = ["not judged" if limit is None else _cell(scores, limit) for limit in limits.values()]
        rows.append((scores.fault, *cells, scores.covered_by))
    columns = ("fault", *(pairing.value for pairing in classes), "structural check")
    return Table("What each bound of the logits could not have seen", columns, tuple(rows))


def class_sight(floor: NoiseFloor, pairing: Class) -> float | None:
    """`sight` of the logits' bound of this class."""
    bound = floor.bound(pairing, Kind.LOGITS.value)
    return None if bound is None else sight(bound, floor.conditions.dtype)


def _cell(scores: FaultScores, limit: float) -> str:
    found = blindness(scores, limit)
    if found.missed_from is None:
        return f"seen up to {found.longest}"
    return "missed" if found.last_seen is None else f"missed from {found.missed_from}"
