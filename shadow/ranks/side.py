"""One side of one rank: a side that remembers where it was, and says how it stands."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from shadow.lockstep import schedule
from shadow.messages import Failed, FromSide, Hello, Joining, Setup
from shadow.nursery import Shared
from shadow.observation import Event
from shadow.ranks.stack import waits_at
from shadow.side import Lost, Side

DONE = "was done"


class Ended(Exception):
    """A side raised, died or gave no sign of life: its rank cannot be compared any further."""


@dataclass(frozen=True)
class End:
    """How a side stood when the run of all ranks came to its end.

    `code`: the exit code of its process (minus the signal that killed it), None: it still ran. `failed`: what it
    raised. `silent`: no sign of life for the time allowed. `wanted`: the comparison waited for it, and not for the
    other side. `doing`: where it was last seen; `waits`: where it stood, if it could be asked.
    """

    rank: int
    control: bool
    name: str
    code: int | None
    failed: Failed | None
    silent: str
    wanted: bool
    doing: str
    waits: str
    step: int
    said: str


class RankSide(Side):
    """As Side, but `receive` raises Ended instead of giving what ends a rank."""

    def __init__(
        self, name: str, setup: Setup, timeout: float, shared: Shared | None, *, control: bool
    ) -> None:
        super().__init__(name, setup, timeout, shared)
        assert setup.place is not None
        self.rank, self.control = setup.place.rank, control
        self.hello: Hello | None = None
        self.received = 0
        self._tree = Path(setup.tree).resolve()
        self._last: FromSide | None = None
        self._ended: Failed | Lost | None = None
        self._wanted = False

    def receive(self) -> FromSide | Lost:
        self._wanted = True
        message = super().receive()
        if isinstance(message, Failed | Lost):
            self._ended = message
            raise Ended
        self._wanted = False
        self.received += 1
        self._last = message
        if isinstance(message, Hello):
            self.hello = message
        return message

    def code(self) -> int | None:
        """The exit code of the process, minus the signal that killed it; None while it runs."""
        return self._zygote.ended(self._pid)

    def kill(self) -> None:
        self._zygote.ended(self._pid, kill=True)

    def end(self) -> End:
        """How it stands now; asks a process that runs where it waits. What it raised may not be read yet: `heard`."""
        code, lost = self.code(), self._ended
        silent = lost.reason if isinstance(lost, Lost) and code is None else ""
        waits = "" if code is not None else waits_at(self._pid, self._written, self._tree)
        return End(
            rank=self.rank,
            control=self.control,
            name=self.name,
            code=code,
            failed=lost if isinstance(lost, Failed) else None,
            silent=silent,
            wanted=self._wanted,
            doing=self._doing(),
            waits=waits,
            step=self._last.step if isinstance(self._last, Event | Joining) else 0,
            said="" if code is None else self._said(),
        )

    def heard(self, end: End) -> End:
        """`end` with what the process had raised before, and nobody has received. Nobody else may be receiving.

        What one raises that still ran then comes from the others being stopped.
        """
        if end.code is None or end.failed is not None:
            return end
        with suppress(EOFError, ConnectionResetError):
            while self._connection.poll():
                message = self._connection.recv()
                if isinstance(message, Failed):
                    return replace(end, failed=message)
        return end

    def _doing(self) -> str:
        match self._last:
            case Joining():
                return f"had begun {schedule(self._last)}"
            case Event():
                return f"was last seen at {schedule(self._last)}"
            case Hello():
                return "had built its worker"
            case None:
                return "was starting"
            case _:
                return DONE

    def _written(self) -> str:
        return self._said(1 << 16)
