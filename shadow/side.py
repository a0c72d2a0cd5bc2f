"""One side of a comparison: a process of its own with a worker from its own source tree."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import Self

from shadow.deltas import Decoder, Delta
from shadow.messages import FromSide, Offer, Reply, Setup
from shadow.nursery import Shared
from shadow.observation import Tokens
from shadow.zygote import Zygote


@dataclass(frozen=True)
class Lost:
    """The process died or gave no sign of life for the time allowed."""

    reason: str
    stderr: str


class Side:
    """Starts on construction; a context manager that leaves no process behind.

    `timeout`: seconds without a message after which the side counts as hung; loading a model and building the
    worker may take ten times as long. `shared`: what it has in common with other sides, loaded once for all.
    """

    def __init__(self, name: str, setup: Setup, timeout: float, shared: Shared | None = None) -> None:
        self.name = name
        self._timeout, self._started = timeout, False
        self._decoder = Decoder()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self._connection, theirs = Pipe()
        self._zygote = Zygote.shared()
        with theirs:
            handles = (theirs.fileno(), self._stderr.fileno())
            place = {} if setup.place is None else setup.place.environment
            self._pid = self._zygote.fork(*handles, {**setup.environment, **place}, shared)
        self._connection.send(setup)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._zygote.ended(self._pid, kill=True)
        self._stderr.close()

    def receive(self) -> FromSide | Lost:
        """The next message, or what became of the process instead."""
        try:
            allowed = self._timeout if self._started else 10 * self._timeout
            if not self._connection.poll(allowed):
                return Lost(f"gave no sign of life for {allowed:g} s", self._said())
            message: FromSide | Delta = self._connection.recv()
            self._started = True
            return self._decoder.decode(message) if isinstance(message, Delta) else message
        except (EOFError, ConnectionResetError):
            return Lost(self._how_it_ended(), self._said())

    def reply(self, tokens: Tokens) -> None:
        """Lets the side go on. One that is gone is noticed by the next `receive`."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(Reply(tokens))

    def answer(self, offer: Offer) -> None:
        """What the side is to take instead of the input that it has offered."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(offer)

    def _how_it_ended(self) -> str:
        deadline = time.monotonic() + 10
        while (code := self._zygote.ended(self._pid)) is None:
            if time.monotonic() > deadline:
                return "closed its pipe"
            time.sleep(0.01)
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code} before its run was over"

    def _said(self, limit: int = 2000) -> str:
        file = self._stderr.fileno()
        # Not read from a position of its own: the process goes on writing at the one that both have.
        return os.pread(file, limit, max(0, os.fstat(file).st_size - limit)).decode(errors="replace")
