"""`shadow diff`."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadow.commands import options
from shadow.commands.judged import PAIRINGS

if TYPE_CHECKING:
    from reports import Report


def bound(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return number


def add_parser(commands: Any) -> None:
    diff = commands.add_parser(
        "diff",
        help="two records: of two machines, of two commits",
        description="Compares two records of the same requests event by event and says where they part: step, "
        "sequence, layer, field. Nothing is run again; a bound for logits can be tried on saved records.",
    )
    diff.add_argument("legacy", type=options.file, metavar="LEGACY")
    diff.add_argument("candidate", type=options.file, metavar="CANDIDATE")
    judged = diff.add_mutually_exclusive_group()
    judged.add_argument(
        "--bound",
        type=bound,
        metavar="X",
        help="rows of logits are equal up to this relative L2; content digests are left out then",
    )
    judged.add_argument(
        "--noise", type=Path, metavar="FILE", help="judge numbers by the bounds that `shadow noise` measured"
    )
    diff.add_argument(
        "--pairing",
        choices=PAIRINGS,
        default="same",
        help="what the runs differ in, for --noise (default: same)",
    )
    options.add_report_options(diff)
    diff.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from shadow.commands.deliver import deliver
    from shadow.verdict import Exit

    report = _compared(arguments)
    failed = report.verdict.exit_code == Exit.HARNESS
    return deliver(report, arguments, first="What went wrong" if failed else "First divergence")


def _compared(arguments: argparse.Namespace) -> Report:
    from reports.model import Fact
    from shadow.noise import Class, NoiseFileError, load
    from shadow.noise.judging import Judge as NoiseJudge
    from shadow.noise.report import with_noise
    from shadow.noise.store import check_conditions
    from shadow.record.diff import check_comparable, conditions_of, diff_records, judge_of, required_kinds
    from shadow.record.format import RecordError
    from shadow.record.reader import open_record
    from shadow.record.report import diff_report, trouble_report
    from shadow.tally import Tally

    started = time.monotonic()
    tally = Tally()
    try:
        legacy, candidate = open_record(arguments.legacy), open_record(arguments.candidate)
        noise = None
        if arguments.noise is not None:
            floor = load(arguments.noise)
            check_conditions(arguments.noise, floor, conditions_of(legacy))
            noise = NoiseJudge(floor, Class(arguments.pairing))
        check_comparable(legacy, candidate)
        judge = judge_of(legacy, candidate, arguments.bound, noise)
        tally.required = required_kinds(legacy, candidate, judge)
        diff_records(legacy, candidate, judge, tally)
        facts = () if arguments.bound is None else (Fact("bound", f"{arguments.bound:g} relative L2"),)
        report = diff_report(legacy, candidate, tally, facts, time.monotonic() - started)
    except (RecordError, NoiseFileError) as error:
        return trouble_report("shadow diff", str(error), time.monotonic() - started)
    return report if noise is None else with_noise(report, noise, str(arguments.noise))
