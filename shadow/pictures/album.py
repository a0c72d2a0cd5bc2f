"""Gathers what pictures need while a lockstep run goes on: `watch` sees pairs of events, `note` the tally after."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from reports import Band, Picture, SideBySide
from shadow.diff import Comparison
from shadow.messages import Done
from shadow.observation import Digests, Event, Kind, Observed, Pages, Row
from shadow.pictures import draw
from shadow.tally import Tally

Owners = dict[str, dict[int, tuple[str, ...]]]
"""By pool, then by page."""

PLANS = (Kind.BOUNDARY, Kind.PLAN, Kind.EFFECTS, Kind.LAUNCH)
_OWNED, _FREE = ".owned_pages", ".free_pages"


def owners_of(event: Event) -> Owners:
    """Who owns which page at this event; empty where it does not say."""
    pools: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for key, value in event.values.items():
        if isinstance(value, Pages) and key.sequence is not None and key.field.endswith(_OWNED):
            for page in dict.fromkeys(value.ids):
                pools[value.pool][page].append(key.sequence)
    return {pool: {page: tuple(who) for page, who in owned.items()} for pool, owned in pools.items()}


def sizes_of(event: Event, owners: Owners) -> dict[str, int]:
    """Pages by pool: the free and the owned ones, and at least as many as the largest number says."""
    sizes = {pool: max(owned, default=-1) + 1 for pool, owned in owners.items()}
    for key, value in event.values.items():
        pool = key.field.removesuffix(_FREE)
        if pool != key.field and pool in sizes and isinstance(value, int):
            sizes[pool] = max(sizes[pool], value + len(owners[pool]))
    return sizes


@dataclass(frozen=True)
class _Moment:
    """The pages when the sides parted, and before."""

    step: int
    before: Owners
    sides: tuple[Owners, Owners]
    sizes: dict[str, int]


@dataclass
class Album:
    """`watch` before a pair of events is compared, `scored` then, `note` last (it never asks for an early end)."""

    steps: int = 0
    kinds: dict[Kind, set[int]] = field(default_factory=lambda: defaultdict(set))
    layers: dict[int, int] = field(default_factory=dict)
    logits: set[int] = field(default_factory=set)
    worst: dict[int, float] = field(default_factory=dict)  # relative L2 of the worst row of logits, by step
    _now: tuple[Event, Event] | None = None
    _owners: tuple[Owners, Owners] = ({}, {})
    _before: Owners = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _moment: _Moment | None = None
    _plan: SideBySide | None = None

    def watch(self, control: Event, candidate: Event) -> None:
        self._now = (control, candidate)
        step = control.step
        self.steps = max(self.steps, step + 1)
        for key, value in control.values.items():
            self.kinds[key.kind].add(step)
            if isinstance(value, Digests):
                self.layers[step] = max(self.layers.get(step, 0), len(value.values))
            elif isinstance(value, Row):
                self.logits.add(step)
        if self._moment is None:
            self._pages(control, candidate)

    def scored(self, comparison: Comparison) -> Comparison:
        """Sees the scores of all logits that differ, those within noise too; gives back what it got."""
        for mismatch in comparison.mismatches:
            if mismatch.kind is Kind.LOGITS and mismatch.score is not None:
                worst = max(self.worst.get(mismatch.step, 0.0), mismatch.score.relative_l2)
                self.worst[mismatch.step] = worst
        return comparison

    @property
    def parted(self) -> bool:
        """Whether the sides have diverged."""
        return self._moment is not None

    def _pages(self, control: Event, candidate: Event) -> None:
        owners = (owners_of(control), owners_of(candidate))
        if owners[0] or owners[1]:
            self._before, self._owners = self._owners[0], owners
            self._sizes = {**sizes_of(candidate, owners[1]), **sizes_of(control, owners[0])}

    def note(self, tally: Tally) -> bool:
        if self._now is None or not tally.total:
            return False
        if self._moment is None:
            self._moment = _Moment(self._now[0].step, self._before, self._owners, self._sizes)
        if self._plan is None:
            kind = next((kind for kind in PLANS if kind in tally.first_of_kind), None)
            if kind is not None:
                self._plan = self._two_plans(kind)
        return False

    def _two_plans(self, kind: Kind) -> SideBySide:
        assert self._now is not None
        ours, theirs = (_of_kind(event, kind) for event in self._now)
        title = f"{kind.value.capitalize()} at {self._now[0].point.value}, step {self._now[0].step}"
        return draw.plans(title, ours, theirs)

    def pictures(
        self,
        tally: Tally,
        done: tuple[Done | None, Done | None] = (None, None),
        guilty: tuple[str, int] | None = None,
        band: Band | None = None,
    ) -> tuple[Picture, ...]:
        """What there is to show, most telling first. `guilty`: pool and page that the first finding is about."""
        first, places = tally.first, tally.places
        drawn: list[Picture] = []
        if places.by_layer.rows():
            spot = None if first is None or first.layer is None else (first.layer, first.step)
            drawn.append(draw.layers_by_step(places.by_layer, self.layers, self._width(tally), spot))
        if self.worst or (band is not None and self.logits):
            marked = None if first is None else first.step
            drawn.append(draw.logits_error(self.worst, self.logits, self._width(tally), band, marked))
        drawn += self._page_maps(tally, guilty)
        if self._plan is not None:
            drawn.append(self._plan)
        if self._width(tally):
            mark = None if first is None else (first.kind, first.step)
            drawn.append(draw.kinds_by_step(places.by_kind, self.kinds, self._width(tally), mark))
        if done[0] is not None and done[1] is not None:
            drawn.append(
                draw.times({name: _per_step(one) for name, one in zip(draw.SIDES, done, strict=True) if one})
            )
        return tuple(drawn)

    def _width(self, tally: Tally) -> int:
        """How many steps there are to draw: a finding may lie beyond the last pair of events."""
        return max([self.steps, *(mismatch.step + 1 for mismatch in tally.kept)])

    def _page_maps(self, tally: Tally, guilty: tuple[str, int] | None) -> list[Picture]:
        moment = self._moment
        if moment is None or tally.first is None:
            return []
        legacy, candidate = moment.sides
        drawn: list[Picture] = []
        for pool, size in moment.sizes.items():
            page = guilty[1] if guilty is not None and guilty[0] == pool and guilty[1] < size else None
            if page is None and legacy.get(pool) == candidate.get(pool):
                continue
            frames = {
                "legacy, before": moment.before.get(pool, {}),
                f"legacy, step {moment.step}": legacy.get(pool, {}),
                f"candidate, step {moment.step}": candidate.get(pool, {}),
            }
            drawn += draw.pages(pool, size, frames, page, f"first divergence, {tally.first.field}")
        return drawn


def _of_kind(event: Event, kind: Kind) -> dict[str, Observed]:
    return {
        key.field if key.sequence is None else f"{key.sequence}: {key.field}": value
        for key, value in event.values.items()
        if key.kind is kind
    }


def _per_step(done: Done) -> tuple[float, float, float]:
    steps = max(1, done.decode_steps)
    times = (done.forward_seconds, done.observe_seconds, done.wait_seconds)
    return (1000 * times[0] / steps, 1000 * times[1] / steps, 1000 * times[2] / steps)
