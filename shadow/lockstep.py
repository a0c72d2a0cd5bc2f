"""Runs two sides step by step on the same requests and compares what they show, until one ends or they part.

The sides run at the same time; each waits where it selects tokens until both have shown what they selected.
From the first differing token on the candidate goes on with the control's tokens: later steps stay
comparable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shadow.diff import Comparison, Known, Mismatch, Nature, compare_events
from shadow.messages import Done, Failed, FromSide, Hello, Joining, Offer
from shadow.observation import Event, Kind, Point, tokens_of
from shadow.pairing import SAME, Pairing
from shadow.side import Lost, Side
from shadow.tally import Tally


@dataclass(frozen=True)
class Trouble:
    """The harness could not do its work, or the control itself did not get through."""

    message: str
    detail: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a lockstep run ended. `done` holds the timings of the sides that got through, control first."""

    hello: tuple[Hello | None, Hello | None] = (None, None)
    done: tuple[Done | None, Done | None] = (None, None)
    trouble: Trouble | None = None
    candidate_traceback: str = ""
    stopped: bool = False  # ended on purpose before the run was over


Watcher = Callable[[Event, Event], None]
Reviewer = Callable[[Event, Event, Comparison], Comparison]
"""What two events (control, candidate) and their comparison come to: a judge by noise floors drops some of it."""


def as_found(control: Event, candidate: Event, comparison: Comparison) -> Comparison:
    return comparison


class _Run:
    def __init__(
        self,
        control: Side,
        candidate: Side,
        tally: Tally,
        pairing: Pairing,
        on_step: Callable[[int], None],
        watch: Watcher,
        review: Reviewer,
    ) -> None:
        self.control, self.candidate = control, candidate
        self.tally, self.pairing, self.on_step, self.watch = tally, pairing, on_step, watch
        self.review = review
        self.point, self.step = Point.PREFILL, 0
        self.known: dict[Point, Known] = {point: {} for point in Point}

    def failed_at(self, step: int | None) -> None:
        """What is found next is of this step, where it is known."""
        self.step = self.step if step is None else step

    def differ(
        self, kind: Kind, field: str, control: str, candidate: str, point: Point | None = None
    ) -> None:
        self.tally.compared[kind] += 1
        where = self.point if point is None else point
        self.tally.find(Mismatch(kind, Nature.VALUE, where, self.step, None, None, field, control, candidate))

    def compare(self, control: Event, candidate: Event) -> None:
        self.point, self.step = control.point, control.step
        self.watch(control, candidate)
        found = compare_events(control, candidate, self.pairing, self.known[control.point])
        comparison = self.review(control, candidate, found)
        self.tally.add(control.point, comparison)
        self.tally.checked.update(candidate.checked)
        if self.tally.fired is None:
            self.tally.fired = candidate.fired
        if control.point.selects_tokens:
            ours, theirs = tokens_of(control), tokens_of(candidate)
            forced = {} if ours == theirs else ours
            self.tally.forced_tokens += sum(theirs.get(label) != token for label, token in forced.items())
            self.control.reply({})
            self.candidate.reply(forced)
        if control.point is Point.DECODE:
            self.on_step(control.step)

    def part(self, control: Event | Joining, candidate: Event | Joining) -> None:
        """The sides are at two different points: nothing after this can be aligned."""
        self.step = min(control.step, candidate.step)
        if self.tally.fired is None and isinstance(candidate, Event):
            self.tally.fired = candidate.fired
        said = schedule(control), schedule(candidate)
        if isinstance(control, Joining) or isinstance(candidate, Joining):
            self.differ(Kind.EFFECTS, "next collective", *said)
        else:
            self.differ(Kind.SCHEDULE, "next point", *said, control.point)


def schedule(at: Event | Joining) -> str:
    """Where in the run a side is, in words."""
    after = f"after {at.step} decode steps"
    if isinstance(at, Joining):
        return f"{at} {after}"
    return f"the run ends {after}" if at.point is Point.END else f"{at.point.value} {after}"


def _aligned(ours: Event | Joining, theirs: Event | Joining) -> bool:
    if isinstance(ours, Joining) and isinstance(theirs, Joining):
        return (ours.name, ours.detail) == (theirs.name, theirs.detail)  # the line may be another one
    return isinstance(ours, Event) and isinstance(theirs, Event) and ours.point is theirs.point


def _outcome(message: FromSide | Lost) -> str:
    match message:
        case Done():
            return f"done after {message.decode_steps} decode steps"
        case Failed():
            return f"raised {message.type_name}: {message.message}"
        case Lost():
            return message.reason
        case Hello():
            return "started"
        case Event():
            return f"goes on ({schedule(message)})"
        case Joining():
            return f"joins {message}"
        case Offer():
            return "offers an input"


def _trouble(side: Side, message: FromSide | Lost, *, is_control: bool) -> Trouble | None:
    """Why the comparison cannot go on: any failure of the control, and the harness's own on either side."""
    if isinstance(message, Failed) and (message.harness or is_control):
        return Trouble(f"the {side.name} {_outcome(message)}", message.traceback)
    if isinstance(message, Lost) and is_control:
        return Trouble(f"the {side.name} {message.reason}", message.stderr)
    return None


def run_lockstep(
    control: Side,
    candidate: Side,
    tally: Tally,
    on_step: Callable[[int], None] = lambda step: None,
    pairing: Pairing = SAME,
    *,
    watch: Watcher = lambda control, candidate: None,
    review: Reviewer = as_found,
    stop: Callable[[Tally], bool] = lambda tally: False,
) -> Outcome:
    """Compares until both are done, one fails, or their schedules part; findings go to `tally`.

    Of several ranks the collectives are compared as they begin: one that only one side joins ends the run at once.

    `watch` sees each pair of events before it is compared, `review` says what their comparison comes to;
    `stop` may end the run early after one.
    """
    run = _Run(control, candidate, tally, pairing, on_step, watch, review)
    hello: tuple[Hello | None, Hello | None] = (None, None)
    while True:
        ours, theirs = control.receive(), candidate.receive()
        trouble = _trouble(control, ours, is_control=True) or _trouble(candidate, theirs, is_control=False)
        if trouble is not None:
            return Outcome(hello, trouble=trouble)
        if isinstance(theirs, Failed | Done) and tally.fired is None:
            tally.fired = theirs.fired
        if isinstance(theirs, Failed | Lost):
            if isinstance(theirs, Failed):
                run.failed_at(theirs.step)
            run.differ(Kind.OUTCOME, "outcome", _outcome(ours), _outcome(theirs))
            text = theirs.traceback if isinstance(theirs, Failed) else theirs.stderr
            return Outcome(hello, candidate_traceback=text)
        if isinstance(ours, Event | Joining) and isinstance(theirs, Event | Joining):
            if not _aligned(ours, theirs):
                run.part(ours, theirs)
                return Outcome(hello)
            if isinstance(ours, Event) and isinstance(theirs, Event):
                run.compare(ours, theirs)
                if stop(tally):
                    return Outcome(hello, stopped=True)
            else:
                tally.compared[Kind.EFFECTS] += 1
        elif isinstance(ours, Offer) and isinstance(theirs, Offer):
            control.answer(Offer(None))
            candidate.answer(ours)
        elif isinstance(ours, Hello) and isinstance(theirs, Hello):
            hello = (ours, theirs)
            tally.required = ours.kinds | theirs.kinds
        elif isinstance(ours, Done) and isinstance(theirs, Done):
            tally.compared[Kind.OUTCOME] += 1
            return Outcome(hello, (ours, theirs))
        else:
            return Outcome(hello, trouble=Trouble(f"protocol: {_outcome(ours)} against {_outcome(theirs)}"))
