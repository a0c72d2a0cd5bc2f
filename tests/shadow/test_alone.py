"""One process for one worker: however it ends, it is said in a line."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shadow.alone import run_alone

DIES = "tests.shadow.dies_in_a_message"


class Nothing(msgspec.Struct):
    """No task."""


def test_a_process_that_is_killed_in_the_middle_of_a_message_is_told_of_as_any_other() -> None:
    heard: list[Any] = []
    assert run_alone(DIES, Nothing(), 1, hear=heard.append) == "was killed by SIGKILL"
    assert heard == []


def test_one_that_cannot_start_says_why() -> None:
    said = run_alone("tests.shadow.is_not_there", Nothing(), 1)
    assert said is not None and said.startswith("failed: ") and "is_not_there" in said


def test_what_the_listener_raises_is_not_taken_for_the_end() -> None:
    def hear(message: Any) -> None:
        raise OSError("a full disk")

    with pytest.raises(OSError, match="a full disk"):
        run_alone("tests.shadow.says_one_thing", Nothing(), 1, hear=hear)
