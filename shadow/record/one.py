"""One record replayed: what its report says, and the numbers that a report of many adds up."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reports import Report
from shadow.record.format import RecordError
from shadow.record.reader import open_record
from shadow.record.replay import replay_record
from shadow.record.replays import replays_of
from shadow.record.report import replay_report, trouble_report
from shadow.record.source_tree import Importer, import_from
from shadow.tally import Tally

TITLE = "shadow replay"


@dataclass(frozen=True)
class Work:
    """What records are replayed through; `named`: what the user called the tree."""

    tree: Path | None = None
    planners: Path | None = None
    named: str = ""


@dataclass(frozen=True)
class Replayed:
    """`plans` by planner, `sources`: where each planner is from, `lost`: bytes of an unfinished chunk at the end."""

    report: Report
    plans: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    events: int = 0
    lost: int = 0


def replay_one(path: Path, work: Work, importer: Importer = import_from) -> Replayed:
    """What cannot be replayed, or raises while it is, becomes a report of one line without a verdict."""
    started = time.monotonic()
    tally = Tally()
    try:
        record = open_record(path)
        replays, sources = replays_of(record, work.tree, work.planners, importer)
        sources |= {name: work.named for name, source in sources.items() if source == str(work.tree)}
        tally.required = frozenset(replay.kind for replay in replays.values())
        plans = replay_record(record, replays, tally)
        report = replay_report(record, tally, plans, sources, time.monotonic() - started)
    except RecordError as error:
        return Replayed(trouble_report(TITLE, str(error), time.monotonic() - started))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        message = (
            f"{path}: its replay raised {type(error).__name__}: {error} (at {last.filename}:{last.lineno}); "
            "correct the planner, or record again"
        )
        return Replayed(trouble_report(TITLE, message, time.monotonic() - started))
    lost = 0 if record.tail is None else record.tail.lost
    return Replayed(report, {name: plans[name] for name in sources}, sources, record.event_count, lost)
