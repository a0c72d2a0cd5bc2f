"""The control side of many trials, run once: what it showed is played again for each of them."""

from __future__ import annotations

from collections.abc import Sequence

from shadow.messages import Done, Failed, FromSide, Setup
from shadow.observation import Event, Tokens
from shadow.side import Lost, Side


class Played(Side):
    """A side without a process: gives the messages of a run that went before, and needs no tokens."""

    def __init__(self, name: str, messages: Sequence[FromSide | Lost]) -> None:
        self.name = name
        self._messages = iter(messages)

    def __exit__(self, *_: object) -> None:
        return None

    def receive(self) -> FromSide | Lost:
        return next(self._messages)

    def reply(self, tokens: Tokens) -> None:
        return None


def run_control(setup: Setup, timeout: float) -> list[FromSide | Lost]:
    """Everything that an undisturbed side says, the last of it how it ended."""
    said: list[FromSide | Lost] = []
    with Side("legacy side", setup, timeout) as side:
        while True:
            message = side.receive()
            said.append(message)
            if isinstance(message, Event):
                if message.point.selects_tokens:
                    side.reply({})
            elif isinstance(message, Done | Failed | Lost):
                return said
