"""Where a process waits, from the stack that it writes when it is asked."""

from __future__ import annotations

import os
import re
import sysconfig
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shadow.ranks.announcing import ASK, foreign, shown

_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)
_BEGIN = "(most recent call first):\n"
_ANSWER = 2.0  # seconds
_LIBRARY = Path(sysconfig.get_paths()["stdlib"])


def answers(pid: int) -> bool:
    """Whether the process has a handler for the signal: one that has none would die of it."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, mask = line.partition(":")
            if name == "SigCgt":
                return bool(int(mask, 16) >> (ASK - 1) & 1)
    return False


def waits_at(pid: int, said: Callable[[], str], tree: Path) -> str:
    """Function, file and line in which the process is, "" where it does not say. `said`: the end of what it wrote."""
    if not answers(pid):
        return ""
    before = said().count(_BEGIN)
    os.kill(pid, ASK)
    deadline = time.monotonic() + _ANSWER
    while time.monotonic() < deadline:
        time.sleep(0.05)
        text = said()
        if text.count(_BEGIN) > before:
            time.sleep(0.05)  # it is written line by line
            return place(said().rpartition(_BEGIN)[2], tree)
    return ""


def place(stack: str, tree: Path) -> str:
    """The innermost frame that is neither the harness's nor a library's, and the collective in which that is."""
    frames = [
        (match["file"], int(match["line"]), match["function"].strip()) for match in _FRAME.finditer(stack)
    ]
    if not frames:
        return ""
    inner = [frame for frame in frames if not _library(frame[0])]
    file, line, function = (inner or frames)[0]
    collectives = [name for file, _, name in frames if file.endswith("distributed_c10d.py")]
    within = f"in dist.{collectives[-1]} " if collectives else ""  # those before it are what it is made of
    return f"{within}at {shown(file, tree)}:{line} ({function})"


def _library(file: str) -> bool:
    return foreign(file) or Path(file).is_relative_to(_LIBRARY)
