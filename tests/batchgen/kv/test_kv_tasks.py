"""Tasks beside the caller: order, errors, and the end of the queue."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import pytest
import torch

from batchgen.kv import DualAsyncLoadTask
from batchgen.kv.tasks import TaskQueue


def test_tasks_run_in_the_order_of_submission_in_one_other_thread() -> None:
    queue, seen, gate = TaskQueue("test"), [], threading.Event()
    threads = set()

    def work(number: int) -> None:
        gate.wait()
        threads.add(threading.current_thread())
        seen.append(number)

    tasks = [queue.submit(lambda i=i: work(i)) for i in range(20)]
    assert not any(task.done() for task in tasks)
    gate.set()
    tasks[-1].wait()
    assert seen == list(range(20))
    assert all(task.done() for task in tasks)
    assert len(threads) == 1 and threading.current_thread() not in threads
    queue.close()


def test_every_wait_raises_the_error_of_the_task_and_later_tasks_still_run() -> None:
    queue = TaskQueue("test")

    def fail() -> None:
        raise OSError("planted")

    failing, after = queue.submit(fail), queue.submit(lambda: None)
    queue.drain()
    assert failing.done() and after.done()
    for _ in range(2):
        with pytest.raises(OSError, match="planted"):
            failing.wait()
    after.wait()
    queue.close()


@pytest.mark.parametrize("failing", [(True, False), (False, True), (True, True)])
def test_a_pair_waits_for_both_even_when_one_fails(failing: tuple[bool, bool]) -> None:
    waited = []

    class Half:
        def __init__(self, name: str, fails: bool) -> None:
            self.name, self.fails = name, fails

        def wait(self) -> None:
            waited.append(self.name)
            if self.fails:
                raise OSError(self.name)

        def done(self) -> bool:
            return self.name in waited

    first, second = Half("first", failing[0]), Half("second", failing[1])
    pair = DualAsyncLoadTask(first, second)
    assert not pair.done()
    with pytest.raises(OSError):
        pair.wait()
    assert waited == ["first", "second"]
    assert pair.done()


def test_close_finishes_what_was_submitted_and_refuses_more() -> None:
    queue, seen = TaskQueue("test"), []
    for i in range(5):
        queue.submit(lambda i=i: seen.append(i))
    queue.close()
    queue.close()
    assert seen == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="test is closed"):
        queue.submit(lambda: None)


def test_a_task_lets_go_of_what_it_copied() -> None:
    queue, tensor = TaskQueue("test"), torch.zeros(3)
    gone = weakref.ref(tensor)
    task = queue.submit(lambda tensor=tensor: None)
    del tensor
    task.wait()
    gc.collect()
    assert gone() is None
    queue.close()


def test_tensors_made_in_inference_mode_can_be_written() -> None:
    with torch.inference_mode():
        pool = torch.zeros(2)
    queue = TaskQueue("test")
    queue.submit(lambda: pool.fill_(1.0)).wait()
    assert pool.tolist() == [1.0, 1.0]
    queue.close()


def test_copies_run_on_one_core_and_leave_everybody_else_s_threads_alone() -> None:
    counts: list[int] = []
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    queue = TaskQueue("test")
    queue.submit(lambda: counts.append(torch.get_num_threads())).wait()
    newcomer = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
    newcomer.start()
    newcomer.join()
    counts.append(torch.get_num_threads())
    torch.set_num_threads(before)
    assert counts == [1, 2, 2]
    queue.close()


def test_an_interpreter_that_ends_with_work_under_way_finishes_it_first() -> None:
    script = """
import time
from batchgen.kv.tasks import TaskQueue
queue = TaskQueue("test")
queue.submit(lambda: (time.sleep(0.2), print("finished", flush=True)))
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "finished\n"), result.stderr
