"""Work that runs beside the caller: one thread per queue, first in first out."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

import torch

_EXIT_SECONDS = 30.0  # how long the end of the process waits for a copy that may be stuck


class Waitable(Protocol):
    def wait(self) -> None: ...

    def done(self) -> bool: ...


class AsyncTask:
    """Something submitted to a `TaskQueue`. An error in it is kept and raised by every `wait()`."""

    def __init__(self) -> None:
        self._finished = threading.Event()
        self._error: BaseException | None = None

    def wait(self) -> None:
        """Block until the work has ended; raise its error if it failed."""
        self._finished.wait()
        if self._error is not None:
            raise self._error

    def done(self) -> bool:
        """Whether the work has ended, well or badly."""
        return self._finished.is_set()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            # Pools may have been made in inference mode, where only inference mode may write to them.
            with torch.inference_mode():
                work()
        except BaseException as error:
            self._error = error
        finally:
            self._finished.set()


#: What is submitted; None ends the thread.
_Queue = queue.SimpleQueue[tuple[AsyncTask, Callable[[], None]] | None]


class DualAsyncLoadTask:
    """Two tasks as one. `wait()` waits for both even when the first fails, then raises the first error."""

    def __init__(self, first: Waitable, second: Waitable) -> None:
        self._first, self._second = first, second

    def wait(self) -> None:
        try:
            self._first.wait()
        finally:
            self._second.wait()

    def done(self) -> bool:
        return self._first.done() and self._second.done()


class TaskQueue:
    """Runs tasks one after the other, in the order of `submit`, in a daemon thread that starts on first use.

    One thread and one order: a load sees every append submitted before it, and a page that was released after
    `drain()` is written by no task of its former owner.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: _Queue = queue.SimpleQueue()
        self._last: AsyncTask | None = None
        self._end: weakref.finalize | None = None
        self._closed = False

    def submit(self, work: Callable[[], None]) -> AsyncTask:
        """RuntimeError after `close()`."""
        if self._closed:
            raise RuntimeError(f"{self.name} is closed and takes no more work")
        if self._end is None:
            ready = threading.Event()
            thread = threading.Thread(target=_serve, args=(self._tasks, ready), name=self.name, daemon=True)
            thread.start()
            ready.wait()
            # What the thread chose for itself also became the default of threads to come: put that back.
            torch.set_num_threads(torch.get_num_threads())
            # Also runs when the interpreter exits: a thread must not be torn down inside a tensor operation.
            self._end = weakref.finalize(self, _end_thread, self._tasks, thread)
        self._last = task = AsyncTask()
        self._tasks.put((task, work))
        return task

    def drain(self) -> None:
        """Block until everything submitted so far has ended. Errors stay with their tasks."""
        if self._last is not None:
            self._last._finished.wait()
            self._last = None

    def close(self) -> None:
        """Finish what was submitted and end the thread; a second call does nothing."""
        self._closed = True
        self.drain()
        if self._end is not None:
            self._end()


def _serve(tasks: _Queue, ready: threading.Event) -> None:
    # Copies gain little from a second core, and an OpenMP team of their own would fight the forward pass.
    torch.get_num_threads()  # the first call adopts the process's number, so it must not come after ours
    torch.set_num_threads(1)
    ready.set()
    while (submitted := tasks.get()) is not None:
        task, work = submitted
        task._run(work)
        del submitted, task, work  # what the work holds is not kept until the next one comes


def _end_thread(tasks: _Queue, thread: threading.Thread) -> None:
    tasks.put(None)
    if thread is not threading.current_thread():
        thread.join(_EXIT_SECONDS)
