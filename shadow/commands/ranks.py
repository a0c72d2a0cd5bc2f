"""`shadow compare --ranks N`: the options, and what they exclude."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from shadow.commands import options

if TYPE_CHECKING:
    from reports import Report


def add_rank_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ranks",
        type=options.positive,
        default=1,
        metavar="N",
        help="data-parallel ranks of each side, a process each; rank r is compared with rank r (default: 1)",
    )
    parser.add_argument(
        "--mutant-rank", type=_rank, metavar="R", help="plant --mutant in this rank alone (default: in all)"
    )
    parser.set_defaults(usage_error=parser.error)


def _rank(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a rank, 0 or more")
    return int(text)


def check_rank_options(arguments: argparse.Namespace) -> None:
    """Leaves with a usage error where options exclude each other; threads are shared out among the ranks."""
    ranks, mutant = arguments.ranks, arguments.mutant_rank
    if mutant is not None and not arguments.mutant:
        arguments.usage_error("--mutant-rank says where a fault is planted: name it with --mutant")
    if mutant is not None and mutant >= ranks:
        arguments.usage_error(f"--mutant-rank {mutant}: the ranks are 0 to {ranks - 1} (--ranks {ranks})")
    if ranks == 1:
        return
    for name, given in (
        ("--graft", arguments.graft),
        ("--pairing batch-order", arguments.pairing == "batch-order"),
    ):
        if given:
            arguments.usage_error(f"{name} compares one rank: leave it out, or --ranks {ranks}")
    arguments.threads = arguments.threads or max(1, (os.cpu_count() or 2) // (2 * ranks))


def comparer(arguments: argparse.Namespace) -> Callable[..., Report]:
    """What compares two setups and reports: shadow.compare's, or that of several ranks."""
    if arguments.ranks > 1:
        from shadow.ranks.compare import Ranks, compare_ranks_and_report

        return partial(compare_ranks_and_report, ranks=Ranks(arguments.ranks, arguments.mutant_rank))
    from shadow.compare import compare_and_report

    return partial(compare_and_report, graft=arguments.graft)
