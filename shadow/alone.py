"""Starts a process of its own for one worker of one source tree, waits for it, and says what became of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import msgspec


def run_alone(
    module: str,
    task: msgspec.Struct,
    threads: int,
    *,
    environment: Mapping[str, str] | None = None,
    hear: Callable[[Any], None] = lambda message: None,
) -> str | None:
    """Returns once the process has ended: None where it got through, else how it ended and what it said last.

    `module` is run as a script with the task as JSON and the number of the descriptor of a pipe (`speaker`);
    `hear` gets what is sent through that. No process is left behind, whatever `hear` raises.
    """
    chosen = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads)),
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
        **(environment or {}),
    }
    ours, theirs = Pipe(duplex=False)
    # -P: the current folder must not decide where batchgen comes from
    command = [sys.executable, "-P", "-m", module, msgspec.json.encode(task).decode(), str(theirs.fileno())]
    with ours, tempfile.TemporaryFile("w+", errors="replace") as stderr:
        with theirs:
            process = subprocess.Popen(
                command,
                env=chosen,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=(theirs.fileno(),),
            )
        with process:
            try:
                for message in _messages(ours):
                    hear(message)
                code = process.wait()
            except BaseException:
                process.kill()
                raise
        if code == 0:
            return None
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        stderr.seek(0)
        said = [line for line in stderr.read().splitlines() if line.strip()]
        return f"failed: {said[-1] if said else f'exit code {code}'}"


def _messages(connection: Connection) -> Iterator[Any]:
    """Until the other end is closed, be it in the middle of a message."""
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return
        yield message


def speaker(descriptor: str) -> Connection:
    """The other end of the pipe, in the process that was started."""
    return Connection(int(descriptor), readable=False)
