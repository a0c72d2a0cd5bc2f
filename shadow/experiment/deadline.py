"""Breaks off a candidate that takes too long, in its own thread.

A watching thread raises `Overdue` in the candidate's thread. Code that does not come back to the interpreter (a
C function that waits) is not broken off. No lock is shared: an exception that arrives while one is being taken
would leave it taken.
"""

from __future__ import annotations

import ctypes
import os
import threading
from time import monotonic, sleep  # the functions themselves: a candidate's clock is another
from types import TracebackType

_TICK = 0.1  # seconds between two looks


class Overdue(BaseException):
    """The candidate has used up its time."""


_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)

_armed: set[Deadline] = set()
_watched_pid = 0


def _watch() -> None:
    while True:
        sleep(_TICK)
        now = monotonic()
        for deadline in [d for d in _armed.copy() if d.at <= now]:
            deadline.fire()


class Deadline:
    """`with Deadline(seconds):` the body may be left by `Overdue`, and after it none comes any more."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.at = float("inf")
        self._thread = threading.get_ident()
        self._fired = False
        #: Whoever takes the only token decides: the watch fires, or the body has ended in time.
        self._token = [True]

    def __enter__(self) -> Deadline:
        global _watched_pid
        if (
            _watched_pid != os.getpid()
        ):  # the first, or the first after a fork: it does not take threads along
            _watched_pid = os.getpid()
            threading.Thread(target=_watch, name="shadow-deadline", daemon=True).start()
        self.at = monotonic() + self._seconds
        _armed.add(self)
        return self

    def fire(self) -> None:
        """Raises Overdue in the thread of the body, unless the body has ended."""
        _armed.discard(self)
        if self._take():
            _set_async_exc(self._thread, Overdue)
            self._fired = True

    def _take(self) -> bool:
        try:
            return self._token.pop()
        except IndexError:
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _armed.discard(self)
        if self._take() or kind is Overdue:
            return
        # On its way. It must arrive here, not in the caller.
        while not self._fired:
            sleep(0.0001)
        for _ in range(1000):
            pass
