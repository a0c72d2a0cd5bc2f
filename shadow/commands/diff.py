"""`shadow diff`."""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

from shadow.commands import options


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
    diff.add_argument(
        "--bound",
        type=bound,
        metavar="X",
        help="rows of logits are equal up to this relative L2; content digests are left out then",
    )
    options.add_report_options(diff)
    diff.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from reports.model import Fact
    from shadow.commands.deliver import deliver
    from shadow.record.diff import check_comparable, diff_records, judge_of, required_kinds
    from shadow.record.format import RecordError
    from shadow.record.reader import open_record
    from shadow.record.report import diff_report, trouble_report
    from shadow.tally import Tally

    started = time.monotonic()
    tally = Tally()
    try:
        legacy, candidate = open_record(arguments.legacy), open_record(arguments.candidate)
        check_comparable(legacy, candidate)
        judge = judge_of(legacy, candidate, arguments.bound)
        tally.required = required_kinds(legacy, candidate, judge)
        diff_records(legacy, candidate, judge, tally)
        facts = () if arguments.bound is None else (Fact("bound", f"{arguments.bound:g} relative L2"),)
        report = diff_report(legacy, candidate, tally, facts, time.monotonic() - started)
    except RecordError as error:
        report = trouble_report("shadow diff", str(error), time.monotonic() - started)
        return deliver(report, arguments, first="What went wrong")
    return deliver(report, arguments, first="First divergence")
