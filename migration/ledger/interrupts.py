"""Ctrl-C and termination wait while files are written."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal came during a write. `number` is the signal's; the text says what became of the files."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


@dataclass
class HeldBack:
    """Signals that came while they were held back: `number` of the first one, None for none."""

    number: int | None = None
    _reported: bool = False

    def note(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number

    def raise_if_any(self, message: str) -> None:
        """Raise `Interrupted` with `message` if a signal came."""
        if self.number is not None:
            self._reported = True
            raise Interrupted(self.number, message)


@contextlib.contextmanager
def held_back() -> Iterator[HeldBack]:
    """Note SIGINT, SIGTERM and SIGHUP instead of acting on them; who holds them back asks when it may stop.

    Signals that the process ignores stay ignored; in a thread other than the main one nothing is held back.
    A signal that nobody asked about is delivered at the end.
    """
    held = HeldBack()
    if threading.current_thread() is not threading.main_thread():
        yield held
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler not in (signal.SIG_IGN, None):
            signal.signal(number, held.note)
    try:
        yield held
    finally:
        for number, handler in before.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(number, handler)
        if held.number is not None and not held._reported:
            signal.raise_signal(held.number)
