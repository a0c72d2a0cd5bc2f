"""The options that say what the two sides are, and the setups that they come to."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from shadow.commands import options

if TYPE_CHECKING:
    from shadow.messages import Setup


def add_side_options(parser: argparse.ArgumentParser, *, requests_required: bool = True) -> None:
    named = "a folder that holds batchgen/, a worker file, or a git revision"
    for side in ("legacy", "candidate"):
        parser.add_argument(f"--{side}", default=".", metavar="TREE", help=f"{named} (default: this folder)")
    parser.add_argument(
        "--requests",
        required=requests_required,
        default=(),
        type=options.file,
        nargs="+",
        metavar="FILE",
        help="OpenAI batch format; several run back to back on the same live workers",
    )
    for side in ("legacy", "candidate"):
        parser.add_argument(
            f"--{side}-env",
            type=options.assignment,
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"environment of the {side} side (a gate's mode, say); repeatable",
        )
    parser.add_argument(
        "--mutant", metavar="NAME", help="plant this fault in the candidate (see `shadow mutants --list`)"
    )
    parser.add_argument(
        "--mutants", metavar="FILE", help="where --mutant is defined (default: the catalogue)"
    )
    parser.add_argument("--structural", action="store_true", help="integers only: no KV content, no logits")
    parser.add_argument(
        "--layers",
        type=options.layers,
        default=(),
        metavar="N,...",
        help="also compare the outputs of these layers, row by row",
    )
    parser.add_argument(
        "--numeric",
        action="store_true",
        help="score KV content instead of telling it apart bit by bit: for sides that round differently",
    )
    parser.add_argument(
        "--strict-hygiene",
        action="store_true",
        help="what nobody reads (tails of table rows, rows beyond the batch) counts as a divergence, too",
    )
    options.add_engine_options(parser)
    options.add_run_options(parser)


def setups(arguments: argparse.Namespace, legacy: Path, candidate: Path) -> tuple[Setup, Setup]:
    """(control, candidate) as `add_side_options` describes them."""
    from shadow.messages import Setup
    from shadow.mutants.registry import CATALOGUE

    mutant = (arguments.mutants or CATALOGUE, arguments.mutant) if arguments.mutant else None

    def setup(tree: Path, environment: list[tuple[str, str]], fault: tuple[str, str] | None) -> Setup:
        return Setup(
            str(tree),
            tuple(map(str, arguments.requests)),
            options.threads(arguments),
            options.engine_options(arguments),
            dict(environment),
            mutant=fault,
            structural=arguments.structural,
            numeric=arguments.numeric,
            layers=arguments.layers,
        )

    return setup(legacy, arguments.legacy_env, None), setup(candidate, arguments.candidate_env, mutant)
