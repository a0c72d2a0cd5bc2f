"""Sides that fork from the test process, where torch is loaded already, instead of starting Python anew."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import pytest

from shadow import child, side


class ForkedProcess:
    """The part of subprocess.Popen that shadow.side uses. The command's last argument is the pipe."""

    def __init__(self, command: list[str], *, pass_fds: list[int], env: Any, stdout: Any, **_: Any) -> None:
        self._code: int | None = None
        self._pid = os.fork()
        if self._pid == 0:
            os.dup2(stdout.fileno(), 1)
            os.dup2(stdout.fileno(), 2)
            # pytest replaced both; the side writes to its own file
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            for name in [name for name in sys.modules if name.split(".")[0] == "batchgen"]:
                del sys.modules[name]
            code = 1
            try:
                code = child.main(command[-1:])
            finally:
                os._exit(code)

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def wait(self, timeout: float = 60) -> int:
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise side.subprocess.TimeoutExpired("forked side", timeout)
            time.sleep(0.01)
        return code


@pytest.fixture
def forked_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    torch.set_num_threads(1)  # OpenMP threads do not survive a fork
    monkeypatch.setattr(side.subprocess, "Popen", ForkedProcess)
