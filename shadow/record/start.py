"""Starts the process that records, waits for it and says what became of it."""

from __future__ import annotations

from shadow.alone import run_alone
from shadow.record.format import RecordError
from shadow.record.process import Task


def record_tree(task: Task) -> None:
    """Returns once the run is recorded to its end.

    RecordError, with the last line that the process said, where it ended otherwise; what it had recorded by
    then can be read.
    """
    trouble = run_alone("shadow.record.process", task, task.threads)
    if trouble is not None:
        raise RecordError(f"the recorder {trouble}")
