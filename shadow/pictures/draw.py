"""Pictures of a run from plain values: counts by place, scores by step, owners by page, two plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reports import Band, Bar, Bars, HeatMap, PageMap, Series, SideBySide, Table
from reports.binning import Ownership, heat_map, neighbours, page_map, series, side_by_side
from reports.pictures import MAX_CELLS
from shadow.observation import Calls, Kind, Observed, Pages, Rows
from shadow.pictures.places import Counts
from shadow.plain import Opaque, Plain, Record

SIDES = ("legacy", "candidate")
_FIRST = "first divergence"


def kinds_by_step(
    counts: Counts[Kind], seen: Mapping[Kind, set[int]], steps: int, first: tuple[Kind, int] | None
) -> HeatMap:
    """`seen`: the steps in which a kind was compared."""
    kinds = [kind for kind in Kind if kind in seen or kind in counts.rows()]
    return heat_map(
        "What differs when",
        "values that differ",
        ("kind", [kind.value for kind in kinds]),
        ("decode step", steps),
        (((row, step), number) for row, kind in enumerate(kinds) for step, number in counts.of(kind)),
        compared=((row, step) for row, kind in enumerate(kinds) for step in seen.get(kind, ())),
        marked=None if first is None else (kinds.index(first[0]), first[1]),
        note=_FIRST,
    )


def layers_by_step(
    counts: Counts[int], seen: Mapping[int, int], steps: int, first: tuple[int, int] | None
) -> HeatMap:
    """`seen`: of how many layers content was compared, by step. `first` is a layer and a step."""
    layers = max([*seen.values(), *(layer + 1 for layer in counts.rows())], default=0)
    return heat_map(
        "Divergence by layer and step",
        "values of a layer that differ",
        ("layer", layers),
        ("decode step", steps),
        (((layer, step), number) for layer in counts.rows() for step, number in counts.of(layer)),
        compared=((layer, step) for step, number in seen.items() for layer in range(number)),
        marked=first,
        note=_FIRST,
    )


def logits_error(
    worst: Mapping[int, float], seen: set[int], steps: int, band: Band | None, first: int | None
) -> Series:
    """`worst` score by step; a step in `seen` without one was equal, bit for bit."""
    values = [worst.get(step, 0.0 if step in seen else None) for step in range(steps)]
    return series(
        "Logits error",
        "decode step",
        "relative L2 of the worst row",
        {"candidate against legacy": values},
        band=band,
        logarithmic=True,
        marked=first,
        note=_FIRST,
    )


def pages(
    pool: str, size: int, frames: Mapping[str, Ownership], guilty: int | None, note: str
) -> tuple[PageMap, ...]:
    """The whole pool; of a large one the pages around the guilty one as well, a cell each."""
    whole = page_map(f"Pages of the {pool} pool", size, frames, marked=guilty, note=note)
    if guilty is None or size <= MAX_CELLS:
        return (whole,)
    near = neighbours(guilty, size)
    title = f"Pages {near.start} to {near.stop - 1} of the {pool} pool"
    return (whole, page_map(title, near, frames, marked=guilty, note=note))


def _leaves(value: Observed, path: str) -> Iterator[tuple[str, str]]:
    match value:
        case Record() if value.fields:
            for name, item in value.fields:
                yield from _leaves(item, f"{path}.{name}" if path else name)
        case tuple() if value and any(isinstance(item, Record | tuple) for item in value):
            for index, item in enumerate(value):
                yield from _leaves(item, f"{path}[{index}]")
        case Calls():
            for index, call in enumerate(value.calls):
                yield f"{path}[{index}]", str(call)
        case Pages():
            yield path, _text(value.ids)
        case Rows():
            yield path, _text(value.labels)
        case Opaque():
            yield path, f"<{value.type_name}>"
        case _:
            yield path, repr(value)


def _text(items: Sequence[Plain]) -> str:
    return ", ".join(map(str, items)) or "(none)"


def plans(title: str, legacy: Mapping[str, Observed], candidate: Mapping[str, Observed]) -> SideBySide:
    """Two plans field by field, in the legacy's order; what only the candidate has comes last."""
    ours = dict(leaf for name, value in legacy.items() for leaf in _leaves(value, name))
    theirs = dict(leaf for name, value in candidate.items() for leaf in _leaves(value, name))
    names = [*ours, *(name for name in theirs if name not in ours)]
    return side_by_side(title, SIDES, [(name, ours.get(name), theirs.get(name)) for name in names])


def times(rows: Mapping[str, tuple[float, float, float]]) -> Bars:
    """Milliseconds a decode step of each side: in the forward, in observing, in waiting."""
    return Bars(
        "Time",
        "ms/step",
        ("forward", "observing", "waiting for the other"),
        tuple(Bar(name, parts) for name, parts in rows.items()),
    )


def modules(legacy: Mapping[str, str], candidate: Mapping[str, str]) -> Table:
    """The file that each module was loaded from, on both sides."""
    names = sorted({*legacy, *candidate})
    rows = tuple((name, legacy.get(name, "-"), candidate.get(name, "-")) for name in names)
    return Table("Modules loaded", ("module", *SIDES), rows)
