"""SIGKILL at random instants of real writes and undos: never a mixed tree, never a record too many or too few."""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migration.ledger import journal

from .crash_server import CHANGES, NEW, OLD
from .disk_faults import labels, make_tree, tree, unsynced, with_folders

OLD_TREE, NEW_TREE = with_folders(OLD), with_folders(NEW)


class Server:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.migration.crash_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def ask(self, action: str, root: Path, delay: float | None, since: str) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        asked = {"action": action, "root": str(root), "delay": delay, "since": since}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.stop()


def start(root: Path, action: str) -> Path:
    """The tree before the action: old, or new with the record that is to be undone."""
    root.mkdir()
    make_tree(root, OLD)
    if action == "undo":
        with unsynced():
            journal.write_all(root, CHANGES, label="port")
    return root


def crash(server: Server, folder: Path, action: str, kills: int) -> Counter[str]:
    """`kills` kills: a third each spread over the whole action, over what follows its commit point, and over
    the moment at which it replaces files."""
    measured = [server.ask(action, start(folder / f"whole-{n}", action), None, "commit") for n in range(5)]
    # The seconds over which the delay is spread. The disk is not always as fast as now: a writer that ended
    # before its kill makes the next delays shorter.
    spread = {
        "start": statistics.median(run["seconds"] for run in measured),
        "commit": statistics.median(run["seconds"] - run["until"] for run in measured),
        "first": 0.001,
    }
    draw = random.Random(kills)
    seen: Counter[str] = Counter()
    for attempt in range(10 * kills):
        since = ("start", "commit", "first")[attempt % 3]
        # Every stretch of the write gets its share: one draw from each of 10 slices in turn.
        delay = spread[since] * (attempt // 3 % 10 + draw.random()) / 10
        root = start(folder / "root", action)
        run = server.ask(action, root, delay, since)
        if run["killed"]:
            files = {path: data for path, data in tree(root).items() if data and "migrate-tmp" not in path}
            seen["mixed before recovery"] += files not in (OLD, NEW)
            seen["interrupted"] += journal.pending(root)
        journal.recover(root)
        found = (tree(root), labels(root))
        assert found in ((OLD_TREE, []), (NEW_TREE, ["port"])) and not journal.pending(root), attempt
        if run["killed"]:
            seen["old" if found[0] == OLD_TREE else "new"] += 1
        spread[since] *= 1.05 if run["killed"] else 0.8
        shutil.rmtree(root)
        if seen["old"] + seen["new"] == kills:
            return seen
    raise AssertionError(f"the kills come too late: {seen}")


@pytest.mark.parametrize(("action", "kills"), [("write", 20), ("undo", 10)])
def test_kills_leave_whole_trees(server: Server, tmp_path: Path, action: str, kills: int):
    seen = crash(server, tmp_path, action, kills)
    assert seen["old"] and seen["new"] and seen["interrupted"] > kills // 4, seen


@pytest.mark.slow
@pytest.mark.parametrize(("action", "kills"), [("write", 200), ("undo", 100)])
def test_two_hundred_kills_leave_whole_trees(server: Server, tmp_path: Path, action: str, kills: int):
    seen = crash(server, tmp_path, action, kills)
    assert min(seen["old"], seen["new"], seen["interrupted"]) > kills // 10, seen
    assert seen["mixed before recovery"] > kills // 100, seen
