"""Memory of a process and of all below it, at its most: looked at again and again while something runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_EVERY = 0.05  # seconds


class Scales:
    """What has been seen so far: `most`, in MB."""

    def __init__(self) -> None:
        self.most = 0.0

    def look(self) -> None:
        try:
            self.most = max(self.most, sum(map(_proportional, _family(os.getpid()))))
        except (FileNotFoundError, ProcessLookupError):
            return  # a process ended between two looks at it


@contextmanager
def weighing() -> Iterator[Scales]:
    """Weighs this process and its family until the block is left. It slows them down: not for what is timed."""
    scales, done = Scales(), threading.Event()

    def look() -> None:
        while not done.wait(_EVERY):
            scales.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield scales
    finally:
        done.set()
        thread.join()
    assert scales.most, "too short to be weighed"


def _family(pid: int) -> list[int]:
    """A process and everything below it that its main threads have started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in _family(int(child)))]


def _proportional(pid: int) -> float:
    """MB of one process, what it shares with others divided among them (PSS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))
