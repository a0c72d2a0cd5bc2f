"""What comes of a request: the tokens that are streamed to it, and its one end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from batchgen.models import Tokenizer
from batchgen.scheduler.sequences import ActiveSeq, RowEvent


class StopStrings:
    """Whether the newest token completed one of the strings."""

    def __init__(self, stops: Sequence[str], tokenizer: Tokenizer) -> None:
        self.stops = tuple(stops)
        self._decode = tokenizer.decode
        # A string of n bytes spans at most n tokens with text, and a few of a split character.
        self._window = max((len(stop.encode()) for stop in stops), default=0) + 8

    def end(self, tokens: Sequence[int]) -> bool:
        if not self.stops:
            return False
        tail = self._decode(tokens[-self._window :])
        return any(stop in tail for stop in self.stops)

    def cut(self, text: str) -> str:
        """Up to the first of them."""
        return text[: min((text.index(stop) for stop in self.stops if stop in text), default=len(text))]


class Reply:
    """The `Receiver` of one request. A stop string ends the listening, and so the row.

    `content` and `reasoning` are the streamed tokens outside and inside thinking; `end` is the "done" or "error" event,
    after which nothing may come; `on_end` is then called.
    """

    def __init__(self, stops: StopStrings, on_end: Callable[[Reply], None]) -> None:
        self.stops, self._on_end = stops, on_end
        self.row: ActiveSeq | None = None
        self.content: list[int] = []
        self.reasoning: list[int] = []
        self.stopped = False
        self.end: RowEvent | None = None

    def send(self, event: RowEvent) -> bool:
        if self.end is not None:
            raise RuntimeError(
                f"a {event.kind} event came after the {self.end.kind} event that ended a request"
            )
        if event.token is None:
            self.end = event
            self._on_end(self)
            return True
        if self.row is not None and self.row.thinking.inside:
            self.reasoning.append(event.token)
            return True
        self.content.append(event.token)
        self.stopped = self.stops.end(self.content)
        return not self.stopped
