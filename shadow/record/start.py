"""Starts the process that records, waits for it and says what became of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from shadow.record.format import RecordError
from shadow.record.process import Task


def record_tree(task: Task) -> None:
    """Returns once the run is recorded to its end.

    RecordError, with the last line that the process said, where it ended otherwise; what it had recorded by
    then can be read.
    """
    threads = str(task.threads)
    environment = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads),
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # -P: the current folder must not decide where batchgen comes from
    command = [sys.executable, "-P", "-m", "shadow.record.process", msgspec.json.encode(task).decode()]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == 0:
        return
    if done.returncode < 0:
        raise RecordError(f"the recorder was killed by {signal.Signals(-done.returncode).name}")
    said = [line for line in done.stderr.splitlines() if line.strip()]
    raise RecordError(f"the recorder failed: {said[-1] if said else f'exit code {done.returncode}'}")
