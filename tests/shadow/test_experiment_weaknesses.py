"""What hand-written gates get wrong, one by one; `docs/experiment.md` has the table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from shadow.experiment import Effect, Isolated, Kind, Pure
from tests.shadow.experiment_support import PREFIX, assert_equal, fresh_gates, gated, only

__all__ = ["fresh_gates"]
ROOT = Path(__file__).resolve().parents[2]


def test_asserts_that_are_stripped_are_none_of_the_gates() -> None:
    program = f"""if True:
        from tests.shadow.test_experiment_gate import add, add_wrongly
        from tests.shadow.experiment_support import gated
        worker, gate = gated(add, add_wrongly, env={{"{PREFIX}_COMPARE": "1"}})
        print(__debug__, worker.act(1), gate.summary().diverged)
    """
    done = subprocess.run(
        [sys.executable, "-O", "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "False 1 1\n"
    assert "verdict 1 (diverged)" in done.stderr


@pytest.mark.parametrize("effect", [Pure(), Isolated()])
def test_a_handler_that_lives_on_what_the_legacy_body_leaves_is_found(effect: Effect) -> None:
    def memoised(self: Any) -> int:
        return self.table.setdefault("memo", len(self.items))  # type: ignore[no-any-return]

    def remembered(self: Any) -> int:
        return self.worker.table["memo"]  # type: ignore[no-any-return]

    worker, gate = gated(memoised, remembered, effect)
    assert worker.act() == 3
    found = gate.divergences[0]
    assert (found.kind, found.control, found.candidate) == (
        Kind.EXCEPTION,
        "returned 3",
        "raised KeyError('memo')",
    )


@pytest.mark.parametrize("effect", [Pure(), Isolated()])
def test_a_handler_that_would_spoil_the_legacy_body_if_it_came_first_is_found_and_spoils_nothing(
    effect: Effect,
) -> None:
    def total(self: Any) -> int:
        return sum(self.items)

    def draining(self: Any) -> int:
        found = 0
        while self.worker.items:
            found += self.worker.items.pop()
        return found

    worker, gate = gated(total, draining, effect)
    assert [worker.act(), worker.act()] == [6, 6]
    assert worker.items == [1, 2, 3]
    assert {found.path for found in gate.divergences} == {"self.items[0]", "self.items[1]", "self.items[2]"}


def test_a_collective_is_joined_once_for_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []

    def all_gather_object(answers: list[int], value: int) -> None:
        joined.append(value)
        answers[:] = [value, 41]

    monkeypatch.setattr(torch.distributed, "all_gather_object", all_gather_object)

    def total(self: Any) -> int:
        answers = [0, 0]
        torch.distributed.all_gather_object(answers, self.count + 1)
        return sum(answers)

    worker, gate = gated(total, lambda self: total(self.worker))
    assert worker.act() == 42
    assert joined == [1]
    assert_equal(gate)


def test_a_collective_that_the_handler_would_join_with_something_else_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined: list[int] = []
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", joined.append)

    def send(self: Any, more: int = 0) -> None:
        torch.distributed.broadcast_object_list(self.count + more)

    worker, gate = gated(send, lambda self: send(self.worker, 5))
    worker.act()
    assert joined == [0]
    assert only(gate).path == "call 1 torch.distributed.broadcast_object_list[0]"


def test_a_handler_that_goes_on_where_the_legacy_body_raises_is_found() -> None:
    def refuse(self: Any) -> None:
        self.count += 1
        raise KeyError("page")

    worker, gate = gated(refuse, lambda self: 5)
    with pytest.raises(KeyError):
        worker.act()
    found = gate.divergences[0]
    assert (found.kind, found.control, found.candidate) == (
        Kind.EXCEPTION,
        "raised KeyError('page')",
        "returned 5",
    )


def test_the_table_of_weaknesses_is_whole_and_names_tests_that_are_there() -> None:
    text = (ROOT / "docs/experiment.md").read_text(encoding="utf-8")
    section = text.partition("## What hand-written gates get wrong")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| \d+ \|", line)]
    assert [line.split()[1] for line in lines] == [str(number) for number in range(1, 11)]
    there = "\n".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_experiment_*.py")
    )
    for line in lines:
        named = re.findall(r"`(test_\w+)`", line)
        assert named, line
        assert [name for name in named if f"def {name}(" not in there] == []
