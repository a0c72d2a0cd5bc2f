"""Folders and files of records replayed into one report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from reports import Fact, Report
from shadow.record.fleet.engine import Done, Engine
from shadow.record.fleet.find import Found
from shadow.record.fleet.progress import progress
from shadow.record.fleet.run import replay_all
from shadow.record.fleet.total import Total
from shadow.record.one import TITLE, Replayed
from shadow.record.report import trouble_report

_NAMED = 3
"""Files passed over of which the report gives the name."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, when the workers are gone; the message says what was done until then."""


def replay_fleet(
    found: Found, engine: Callable[[], Engine], described: str, places: Sequence[Path]
) -> Report:
    """The sum of all replays. `described` says what `engine` makes; nothing is made where there is no record.

    EngineError where there is no such engine, Interrupted.
    """
    started = time.monotonic()
    unread = {Path(folder): folder for folder in found.unread}
    total = Total(dict(sorted({**found.records, **unread}.items(), key=lambda pair: pair[1])))
    for folder, reason in found.unread.items():
        total.add(Path(folder), Replayed(trouble_report(TITLE, f"{folder}: cannot be looked into: {reason}")))
    try:
        if found.records:
            with progress(total.count) as show, closing(engine()) as running:
                for answer in replay_all(found.records, running):
                    if isinstance(answer, Done):
                        total.add(answer.path, answer.replayed)
                        show(total)
                    else:
                        total.lost_workers += 1
    except KeyboardInterrupt as stop:
        raise Interrupted(total.so_far()) from stop
    facts = (
        Fact("records from", ", ".join(map(str, places))),
        Fact("passed over", _passed_over(found.others)),
        Fact("engine", described),
    )
    return total.report(facts, time.monotonic() - started)


def _passed_over(others: tuple[str, ...]) -> str:
    if not others:
        return "nothing"
    more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
    return f"{len(others):,} without the signature of a record: {', '.join(others[:_NAMED])}{more}"
