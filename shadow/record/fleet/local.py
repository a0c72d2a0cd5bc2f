"""Processes of this machine, each with one record at a time: it is known whose record a lost process had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

from shadow.record.fleet.engine import Done, Lost
from shadow.record.one import Work

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    def __init__(self, work: Work) -> None:
        self.connection, theirs = Pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed in end)
        root = str(Path(__file__).resolve().parents[3])
        environment = {
            **os.environ,
            **dict.fromkeys(_THREADS, "1"),
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join(dict.fromkeys((root, *filter(None, sys.path)))),
        }
        handle = theirs.fileno()
        command = [sys.executable, "-P", "-m", "shadow.record.fleet.worker", str(handle), str(os.getpid())]
        with theirs:
            # In a process group of its own: Ctrl-C is the starting process's to handle
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=(handle,),
                process_group=0,
            )
        self.send(work)

    def send(self, what: Work | Path) -> None:
        """One that is gone is noticed when its answer is received."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(what)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.connection.close()
        self._said.close()

    def ended(self) -> str:
        """How it has, after its pipe was closed; it is killed if it has not."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        code = self._process.poll()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        self.kill()
        if code is None:
            return "closed its pipe"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}" + (f": {lines[-1]}" if lines else "")


class LocalEngine:
    """Starts a process when a record comes and none is idle, so never more than `slots` of them."""

    def __init__(self, work: Work, slots: int) -> None:
        self.slots = slots
        self._work = work
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, tuple[_Worker, Path]] = {}

    def submit(self, path: Path) -> None:
        worker = self._idle.pop() if self._idle else self._start()
        self._busy[worker.connection] = (worker, path)
        worker.send(path)

    def _start(self) -> _Worker:
        worker = _Worker(self._work)
        self._workers.add(worker)
        return worker

    def results(self) -> Sequence[Done | Lost]:
        answers: list[Done | Lost] = []
        for connection in wait(list(self._busy)):
            assert isinstance(connection, Connection)
            worker, path = self._busy.pop(connection)
            try:
                answers.append(Done(path, connection.recv()))
                self._idle.append(worker)
            except (EOFError, OSError):
                self._workers.remove(worker)
                answers.append(Lost(path, worker.ended()))
        return answers

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()
