"""Buffers that calls hand out over and over with other numbers in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from shadow.experiment import Kind
from tests.shadow.experiment_support import Pool, Worker, assert_equal, fresh_gates, gated, only

__all__ = ["fresh_gates"]


class Replays(Pool):
    """Static buffers: each run leaves its outputs where the one before it did."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs = {"logits": torch.zeros(2)}

    def replay(self, by: float) -> dict[str, torch.Tensor]:
        self.outputs["logits"] += by
        return self.outputs


def _loop(self: Any) -> list[float]:
    first = self.pool.replay(1.0)["logits"]
    seen = [first[0].item()]
    again = self.pool.replay(2.0)["logits"]
    return [*seen, first[0].item(), again[0].item()]


def _gated(legacy: Callable[..., Any], handler: Callable[..., Any]) -> Any:
    worker, gate = gated(legacy, handler, base=Worker)
    worker.pool = Replays()
    return worker, gate


def test_each_answer_holds_what_it_held_for_the_legacy_body() -> None:
    worker, gate = _gated(_loop, lambda self: _loop(self.worker))
    assert worker.act() == [1.0, 3.0, 3.0]
    assert worker.pool.outputs["logits"].tolist() == [3.0, 3.0]
    assert_equal(gate)


def test_a_handler_that_reads_a_buffer_too_late_is_found() -> None:
    def late(self: Any) -> list[float]:
        first = self.worker.pool.replay(1.0)["logits"]
        again = self.worker.pool.replay(2.0)["logits"]
        return [first[0].item(), first[0].item(), again[0].item()]

    worker, gate = _gated(_loop, late)
    worker.act()
    found = only(gate)
    assert (found.kind, found.path, found.control, found.candidate) == (Kind.VALUE, "result[0]", "1.0", "3.0")


def _scaled(worker: Any, by: float, then: float) -> None:
    worker.pool.replay(1.0)["logits"].mul_(by)
    worker.pool.replay(then)


@pytest.mark.parametrize(
    ("by", "found"), [(2.0, None), (4.0, "what was handed out before call 2 Replays.replay[0]")]
)
def test_what_a_body_writes_to_a_buffer_itself_its_handler_has_to_write(by: float, found: str | None) -> None:
    worker, gate = _gated(lambda self: _scaled(self, 2.0, 0.0), lambda self: _scaled(self.worker, by, 0.0))
    worker.act()
    if found is None:
        assert_equal(gate)
    else:
        assert only(gate).path == found


def test_a_buffer_that_body_and_call_both_write_to_is_not_compared() -> None:
    worker, gate = _gated(lambda self: _scaled(self, 2.0, 1.0), lambda self: _scaled(self.worker, 2.0, 1.0))
    worker.act()
    summary = gate.summary()
    assert (summary.compared, summary.faults) == (0, 0)
    assert "isolation not proved: what was handed out before call 2 Replays.replay[0]" in summary.line()


class Views(Pool):
    """Hands out the part of a buffer that a call has filled, a new view each time."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = torch.zeros(4, dtype=torch.int64)

    def fill(self, rows: int) -> dict[str, torch.Tensor]:
        self.buffer[:rows] += 1
        return {"rows": self.buffer[:rows]}


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (None, None),
        (0, "result of call 1 Views.fill['rows'][0]"),
        (1, "result of call 2 Views.fill['rows'][0]"),
    ],
    ids=["neither writes", "to the first", "to the last"],
)
def test_views_of_one_buffer_are_compared_as_the_last_of_them(wrong: int | None, found: str | None) -> None:
    def fill(worker: Any) -> list[Any]:
        return [worker.pool.fill(rows)["rows"] for rows in (3, 2)]

    def legacy(self: Any) -> None:
        fill(self)

    def handler(self: Any) -> None:
        views = fill(self.worker)
        if wrong is not None:
            views[wrong][0] = 9

    worker, gate = gated(legacy, handler)
    worker.pool = Views()
    worker.act()
    if found is None:
        assert_equal(gate)
    else:
        assert found in {divergence.path for divergence in gate.divergences}


def test_a_buffer_that_only_the_handler_writes_to_is_found() -> None:
    def legacy(self: Any) -> None:
        self.pool.replay(1.0)

    def handler(self: Any) -> None:
        self.worker.pool.replay(1.0)["logits"].mul_(3.0)

    worker, gate = _gated(legacy, handler)
    worker.act()
    assert only(gate).path == "result of call 1 Replays.replay['logits'][0]"


def test_data_of_a_collaborator_that_only_the_handler_writes_to_is_found() -> None:
    worker, gate = _gated(lambda self: len(self.pool.free), lambda self: self.worker.pool.free.pop() + 1)
    worker.act()
    assert worker.pool.free == list(range(20))
    assert only(gate).path == "Replays.free[19]"
