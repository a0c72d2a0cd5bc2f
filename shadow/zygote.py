"""A process in which torch is loaded once, from which every side forks in a few milliseconds.

`python -m shadow.zygote FD` is started by `shadow.side` and serves one comparing process over its pipe until
that is gone; then it kills what it started. It never runs a torch operation itself: OpenMP threads do not
survive a fork. Sides of one tree may fork from a second process below it, which has their model (shadow.nursery).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path

from shadow import nursery
from shadow.nursery import Shared

_LOADING_SECONDS = 900
_MAPPED = 1 << 20  # bytes; see Zygote
_WARM = ("torch", "torch.distributed", "numpy", "msgspec", "shadow.observer", "shadow.child")


@dataclass(frozen=True)
class _Fork:
    """Start a side; its pipe and the file for what it prints follow as descriptors.

    `shared`: from the process that has this loaded, which is made where there is none.
    """

    environment: Mapping[str, str]
    shared: Shared | None = None


@dataclass(frozen=True)
class _Status:
    """How the process ended: its exit code, minus the signal, None while it runs. `kill`: end it first."""

    pid: int
    kill: bool = False


class Zygote:
    """The comparing process's end. Thread-safe; `shared()` gives the one of this process."""

    _shared: Zygote | None = None
    _starting = threading.Lock()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe, theirs = Pipe()
        environment = {
            # glibc: a block of this size goes back to the system when it is freed. Left to itself glibc raises the
            # size to 32 MiB, and small blocks keep hundreds of MB of holes open that loading and a prefill leave.
            "MALLOC_MMAP_THRESHOLD_": str(_MAPPED),
            **os.environ,
            # One thread until a side says how many: no thread may exist when a side is forked.
            **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        with theirs:
            self._process = subprocess.Popen(
                # -P: the current folder must not decide where batchgen comes from
                [sys.executable, "-P", "-m", "shadow.zygote", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
            )

    @classmethod
    def shared(cls) -> Zygote:
        """The zygote of this process, started on first use and ended with the process."""
        with cls._starting:
            if cls._shared is None or cls._shared._process.poll() is not None:
                cls._shared = Zygote()
                atexit.register(cls._shared.close)
            return cls._shared

    def fork(
        self, pipe: int, output: int, environment: Mapping[str, str], shared: Shared | None = None
    ) -> int:
        """Starts a side on the descriptors of its pipe and its output; returns its pid.

        OSError or EOFError: the zygote is gone.
        """
        with self._lock:
            self._pipe.send(_Fork(dict(environment), shared))
            for handle in (pipe, output):
                send_handle(self._pipe, handle, self._process.pid)
            pid: int = self._pipe.recv()
            return pid

    def ended(self, pid: int, *, kill: bool = False) -> int | None:
        """The exit code of a side (minus the signal that killed it), None while it runs."""
        with self._lock:
            self._pipe.send(_Status(pid, kill))
            code: int | None = self._pipe.recv()
            return code

    def close(self) -> None:
        """Ends it and every side that still runs. Idempotent."""
        self._pipe.close()
        self._process.wait()


class _Server:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._running: set[int] = set()
        self._ended: dict[int, int] = {}
        self._nursery: _Nursery | None = None
        self._of_nursery: dict[int, _Nursery] = {}

    def serve(self) -> None:
        while True:
            try:
                message = self._pipe.recv()
            except (EOFError, ConnectionResetError):
                break
            if message is None:
                break
            if isinstance(message, _Fork):
                self._fork(message)
            else:
                self._pipe.send(self._status(message))
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)

    def _fork(self, message: _Fork) -> None:
        pipe, output = recv_handle(self._pipe), recv_handle(self._pipe)
        if message.shared is not None:
            nursery = self._nursery_for(message.shared, pipe, output)
            child = None if nursery is None else nursery.fork(message, pipe, output)
            if nursery is not None and child is not None:
                os.close(pipe)
                os.close(output)
                self._of_nursery[child] = nursery
                self._pipe.send(child)
                return
        pid = os.fork()
        if pid == 0:
            _become_side(self._pipe, pipe, output, message.environment)
        os.close(pipe)
        os.close(output)
        self._running.add(pid)
        self._pipe.send(pid)

    def _nursery_for(self, shared: Shared, pipe: int, output: int) -> _Nursery | None:
        """The one with this loaded; the last one goes, with the sides of it that nobody waits for any more."""
        if self._nursery is not None and self._nursery.shared != shared:
            if any(nursery is self._nursery for nursery in self._of_nursery.values()):
                return None  # its sides still run: these load for themselves
            self._nursery.close()
            self._nursery = None
        if self._nursery is None:
            self._nursery = _Nursery(self._pipe, shared, pipe, output)
        return self._nursery

    def _status(self, message: _Status) -> int | None:
        pid = message.pid
        if pid in self._of_nursery:
            code = self._of_nursery[pid].status(message)
            if code is not None:
                self._ended[pid] = code
                del self._of_nursery[pid]
            return code
        if pid in self._running:
            if message.kill:
                os.kill(pid, signal.SIGKILL)
            done, status = os.waitpid(pid, 0 if message.kill else os.WNOHANG)
            if done:
                self._running.discard(pid)
                self._ended[pid] = os.waitstatus_to_exitcode(status)
        return self._ended.get(pid)


class _Nursery:
    """A forked process that has loaded what sides share and serves as this one does."""

    def __init__(self, control: Connection, shared: Shared, pipe: int, output: int) -> None:
        self.shared = shared
        self._pipe, theirs = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._pipe.close()
            os.close(pipe)  # the side's: held here, its end would not be noticed
            _become_nursery(control, theirs, shared, output)
        theirs.close()

    def fork(self, message: _Fork, pipe: int, output: int) -> int | None:
        """The pid of the new side; None where nothing could be loaded: it shall fail on its own, and say why."""
        try:
            self._pipe.send(_Fork(message.environment))
            for handle in (pipe, output):
                send_handle(self._pipe, handle, self._pid)
            if not self._pipe.poll(_LOADING_SECONDS):
                os.kill(self._pid, signal.SIGKILL)
                return None
            pid: int = self._pipe.recv()
        except (EOFError, OSError):
            return None
        return pid

    def status(self, message: _Status) -> int | None:
        try:
            self._pipe.send(message)
            code: int | None = self._pipe.recv()
        except (EOFError, OSError):
            return -signal.SIGKILL
        return code

    def close(self) -> None:
        with suppress(OSError):
            self._pipe.send(None)  # other sides may hold the pipe open: its end alone would not be noticed
        self._pipe.close()
        os.waitpid(self._pid, 0)


def _become_nursery(control: Connection, pipe: Connection, shared: Shared, output: int) -> None:
    control.close()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(shared.environment)
    code = 1
    try:
        nursery.load(shared)
        if nursery.threads() == 1:
            _Server(pipe).serve()
            code = 0
    finally:
        os._exit(code)


def _become_side(control: Connection, pipe: int, output: int, environment: Mapping[str, str]) -> None:
    control.close()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    from shadow import child

    code = 1
    try:
        code = child.main([str(pipe)])
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def main(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the comparing process's to handle
    for name in _WARM:
        importlib.import_module(name)
    loaded = [name for name in sys.modules if name.split(".")[0] == "batchgen"]
    assert not loaded, f"{loaded} must come from the tree of the side"
    gc.collect()
    gc.freeze()  # as in shadow.nursery
    _Server(Connection(int(arguments[0]))).serve()
    return 0


if __name__ == "__main__":
    from shadow import (
        zygote,
    )  # messages are of the module that the comparing process imports, not of __main__

    raise SystemExit(zygote.main(sys.argv[1:]))
