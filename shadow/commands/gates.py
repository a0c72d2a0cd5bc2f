"""`shadow gates`."""

from __future__ import annotations

import argparse
from typing import Any

from shadow.commands import options

EXAMPLES = """examples:
  BATCHGEN_WORKER_KV_COMPARE=1 BATCHGEN_WORKER_KV_REPORT=kv.jsonl batchgen run requests.jsonl -o results.jsonl
  shadow gates kv.jsonl
  shadow gates out/gates/*.jsonl --require BATCHGEN_WORKER_KV --require BATCHGEN_WORKER_DECODE
  shadow gates out/gates/*.jsonl --all-branches BATCHGEN_WORKER_KV   (runs with BATCHGEN_WORKER_KV_BRANCHES=1)

Exit codes: 0 every method compared and equal; 1 a call diverged; 2 the harness failed; 3 a method, or a branch where
all are wanted, was never compared; 64 usage.
"""


def add_parser(commands: Any) -> None:
    gates = commands.add_parser(
        "gates",
        help="what gates compared in all runs together",
        description="Adds up the reports that gates wrote in compare mode, of several runs, models and ranks, and says "
        "for each gated method how many calls were compared, and which branches of it no compared call has taken.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    gates.add_argument("reports", nargs="+", type=options.file, metavar="REPORT")
    gates.add_argument(
        "--require", action="append", default=[], metavar="PREFIX", help="a gate that must be there"
    )
    gates.add_argument(
        "--all-branches",
        action="append",
        default=[],
        metavar="PREFIX[:METHOD]",
        help="a gate, or one method of it, each of whose branches a compared call must have taken; repeatable",
    )
    gates.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="NAME",
        help="a method or branch, named as the report names it, that need not be compared; repeatable",
    )
    options.add_report_options(gates)
    gates.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from reports import Report, Status, Verdict
    from shadow.commands.deliver import deliver
    from shadow.gate_reports import GateReportError, added_up, read_reports
    from shadow.verdict import Exit

    try:
        report = added_up(
            read_reports(arguments.reports),
            require=arguments.require,
            all_branches=arguments.all_branches,
            allow=arguments.allow,
            runs=len(arguments.reports),
        )
    except GateReportError as error:
        report = Report("shadow gates", Verdict(Status.ERROR, int(Exit.HARNESS), str(error)))
    return deliver(report, arguments)
