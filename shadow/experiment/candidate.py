"""Runs a candidate to its end, whatever that is, and puts two ends next to each other."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType
from typing import Any

from shadow.experiment.brief import brief
from shadow.experiment.deadline import Deadline, Overdue
from shadow.experiment.differ import Differ, Difference, Nature
from shadow.experiment.intercept import ACTIVE, Stop
from shadow.experiment.ledger import Kind
from shadow.experiment.outcome import Outcome, Raised, Returned, TimedOut
from shadow.experiment.storage import on_class
from shadow.experiment.world import World

_TURNS = 10_000
Finding = tuple[Kind, Difference]


def run(world: World, body: Callable[[], Any], seconds: float) -> Outcome:
    """The outcome of `body` in a world. KeyboardInterrupt is the user's, and passes."""
    token = ACTIVE.set(world)
    try:
        with Deadline(seconds):
            value = body()
            return Returned(_driven(world, value) if type(value) is CoroutineType else value)
    except KeyboardInterrupt:
        raise
    except Stop:
        return Returned(None)  # `world.stopped` says why
    except Overdue:
        return TimedOut(seconds)
    except BaseException as error:
        return Raised(error)
    finally:
        ACTIVE.reset(token)


def _driven(world: World, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that has nothing to wait for; whatever it would wait for is not on the tape."""
    try:
        for _ in range(_TURNS):
            if coroutine.send(None) is not None:
                break  # a bare yield only lets others run; anything else is to be waited for
    except StopIteration as end:
        return end.value
    coroutine.close()
    return world.stop("waits for something that the control's calls do not hold")


def handed_out(outcome: Outcome) -> str | None:
    """What a result is, when looking at it would use it up."""
    if not isinstance(outcome, Returned):
        return None
    kind = type(outcome.value)
    if issubclass(kind, Generator):
        return "a generator"
    if issubclass(kind, Coroutine):
        return "a coroutine"
    if on_class(kind, "__next__") or on_class(kind, "__anext__"):
        return "an iterator"
    if kind.__module__ == "contextlib" and (on_class(kind, "__enter__") or on_class(kind, "__aenter__")):
        return "a context manager"
    return None


def compare_outcomes(control: Outcome, candidate: Outcome, differ: Differ) -> list[Finding]:
    """The findings that the two ends give; `differ` counts what was looked at."""
    kind = Kind.VALUE
    if isinstance(candidate, TimedOut):
        differ.compared += 1
        return [(Kind.TIMEOUT, Difference("outcome", Nature.VALUE, told(control), told(candidate)))]
    if isinstance(control, Returned) and isinstance(candidate, Returned):
        differ.compare(control.value, candidate.value, "result")
    elif isinstance(control, Raised) and isinstance(candidate, Raised) and _same_class(control, candidate):
        kind = Kind.EXCEPTION
        path = f"raised {type(control.error).__name__}.args"
        differ.compare(control.error.args, candidate.error.args, path)
    else:
        differ.compared += 1
        return [(Kind.EXCEPTION, Difference("outcome", Nature.TYPE, told(control), told(candidate)))]
    return [(kind, difference) for difference in differ.taken()]


def _same_class(control: Raised, candidate: Raised) -> bool:
    """By name: a module may have been loaded twice."""
    ours, theirs = type(control.error), type(candidate.error)
    return (ours.__module__, ours.__qualname__) == (theirs.__module__, theirs.__qualname__)


def told(outcome: Outcome) -> str:
    """An outcome in words."""
    if isinstance(outcome, TimedOut):
        return f"no end after {outcome.seconds:g} s"
    return (
        f"raised {brief(outcome.error)}"
        if isinstance(outcome, Raised)
        else f"returned {brief(outcome.value)}"
    )
