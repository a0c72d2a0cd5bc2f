"""The order in which a failing scenario is made smaller: requests, then lengths, batch, pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from shadow.messages import HarnessError
from shadow.observation import Kind
from shadow.shrink.ddmin import ddmin, smallest
from shadow.shrink.lengths import limit_of, prompt_length, with_limit, with_prompt_length
from shadow.shrink.replay import Found, Replay
from shadow.shrink.scenario import Request, Scenario

OPTIONS = ("max_batch_size", "gpu_kv_pages", "host_kv_pages")


@dataclass(frozen=True)
class Shrunk:
    """`complete`: every reduction was tried, so the result is minimal; False when time ran out before."""

    scenario: Scenario
    found: Found
    before: Found
    runs: int
    complete: bool


class _OutOfTime(Exception):
    pass


class _Reducer:
    """`only`: what the runs look at: to see nothing but the sort of value that differs is quicker."""

    def __init__(
        self,
        replay: Replay,
        scenario: Scenario,
        found: Found,
        deadline: float,
        only: frozenset[Kind] | None,
    ) -> None:
        self.replay, self.best, self.found = replay, scenario, found
        self._deadline, self._only = deadline, only

    def fails(self, scenario: Scenario) -> bool:
        """Whether it fails in the same way; the smaller scenario is kept at once."""
        if time.monotonic() > self._deadline:
            raise _OutOfTime
        try:
            found = self.replay.run(scenario, self._only)
        except HarnessError:
            return False  # options that no worker can be built with, say
        if found is None or found.signature != self.found.signature:
            return False
        self.best, self.found = scenario, found
        return True

    def to_the_end(self) -> bool:
        """Reduces round after round until nothing gets smaller; False when time ran out before."""
        previous: Scenario | None = None
        try:
            while self.best != previous:
                previous = self.best
                self.neighbours()
                self.limits()
                self.requests()
                self.options()  # what is scarce is scarce with fewer requests then
                if self.best.size == previous.size:
                    self.lengths()
        except _OutOfTime:
            return False
        return True

    def neighbours(self) -> None:
        """The sequence that differs with a few that came with it: small runs are quick, so they are tried first."""
        whole, places = self.best, self.best.places()
        middle = next(
            (i for i, place in enumerate(places) if whole.at(place).get("custom_id") == self.found.sequence),
            len(places) - 1,
        )
        reach = 1
        while 2 * reach < len(places):
            around = places[max(0, middle - reach) : middle + reach + 1]
            if self.fails(whole.only(around)):
                return
            reach *= 2

    def limits(self) -> None:
        """All requests cut off at one length first: every run after it is shorter."""
        whole = self.best
        longest = max((limit_of(whole.at(place)) or 1 for place in whole.places()), default=1)

        def cut_off(limit: int) -> bool:
            cut = whole
            for place in whole.places():
                request = whole.at(place)
                if (limit_of(request) or limit + 1) > limit:
                    cut = cut.with_request(place, with_limit(request, limit))
            return self.fails(cut)

        smallest(1, longest, cut_off)

    def requests(self) -> None:
        whole = self.best
        ddmin(whole.places(), lambda places: self.fails(whole.only(places)))

    def lengths(self) -> None:
        for length, shorter in ((limit_of, with_limit), (prompt_length, with_prompt_length)):
            for place in self.best.places():
                self._length(place, length, shorter)

    def _length(
        self,
        place: tuple[int, int],
        length: Callable[[Request], int | None],
        shorter: Callable[[Request, int], Request],
    ) -> None:
        request = self.best.at(place)
        now = length(request)
        if now is not None and now > 1:
            whole = self.best
            smallest(1, now, lambda n: self.fails(whole.with_request(place, shorter(request, n))))

    def options(self) -> None:
        for name in OPTIONS:
            now = self.best.options.get(name)
            if isinstance(now, int) and now > 1:
                self._option(name, now)

    def _option(self, name: str, now: int) -> None:
        whole = self.best
        smallest(1, now, lambda n: self.fails(whole.with_option(name, n)))


def shrink(scenario: Scenario, replay: Replay, *, seconds: float = 90) -> Shrunk | None:
    """The smallest scenario found that diverges with the signature of the given one.

    None: the given one does not diverge. HarnessError: it cannot be run. Reduces round after round until
    nothing gets smaller, or `seconds` have passed.
    """
    deadline = time.monotonic() + seconds
    before = replay.run(scenario)
    if before is None:
        return None
    for only in (frozenset((before.signature.kind,)), None):
        reducer = _Reducer(replay, scenario, before, deadline, only)
        complete = reducer.to_the_end()
        found = replay.run(reducer.best)
        if found is not None and found.signature == before.signature:
            return Shrunk(reducer.best, found, before, replay.runs, complete)
        # Alone it is the first difference, among all others it is not: look at everything from here on.
    return Shrunk(scenario, before, before, replay.runs, complete=False)
