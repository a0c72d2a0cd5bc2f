"""All records through an engine: as many at a time as it takes, those of lost workers again."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from shadow.record.fleet.engine import Done, Engine, Lost
from shadow.record.one import TITLE, Replayed
from shadow.record.report import trouble_report

TRIES = 3
"""How often a record is begun whose worker is lost every time."""


def replay_all(paths: Iterable[Path], engine: Engine) -> Iterator[Done | Lost]:
    """One Done for each record, as they end; one Lost for each worker that was lost. A record that has lost
    its worker TRIES times is done without a verdict."""
    waiting = deque(_largest_first(paths))
    lost: Counter[Path] = Counter()
    running = 0
    while waiting or running:
        while waiting and running < engine.slots:
            engine.submit(waiting.popleft())
            running += 1
        for answer in engine.results():
            running -= 1
            yield answer
            if isinstance(answer, Lost):
                path, lost[answer.path] = answer.path, lost[answer.path] + 1
                if lost[path] < TRIES:
                    waiting.append(path)
                else:
                    yield Done(path, _given_up(path, answer.reason))


def _largest_first(paths: Iterable[Path]) -> list[Path]:
    """The last to end is then a small one. What cannot be looked at comes last."""

    def size(path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError:
            return 0

    return sorted(paths, key=size, reverse=True)


def _given_up(path: Path, reason: str) -> Replayed:
    message = f"{path}: its replay has ended its worker {TRIES} times, which the last time {reason}; replay it alone"
    return Replayed(trouble_report(TITLE, message))
