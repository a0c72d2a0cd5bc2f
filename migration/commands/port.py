"""`migrate port`: copy a section into its handler module, or move it there in one step (`--cut`)."""

from __future__ import annotations

import argparse
import dataclasses
import sys

from migration.cli import DONE, REFUSED, USAGE, WOULD_CHANGE, Commands
from migration.commands.options import add_slice, add_write_modes


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "port",
        help="phase 1: copy a section into its handler module (--cut: move it in one step)",
        description="Copy the methods of a slice into their handler module, behind Protocols. Nothing is wired and "
        "the class does not change; over the recipe's budget each run writes the next part (a, b, c).\n"
        "With --cut, move them in one step and leave delegating stubs with the same signatures.",
        epilog="examples:\n  migrate port kv --diff\n  migrate port kv\n  migrate port kv --commits\n"
        "  migrate port slices/cache.toml --cut --check",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_slice(parser)
    parser.add_argument("--cut", action="store_true", help="one step: move the methods, leave stubs")
    parser.add_argument(
        "--interactive", action="store_true", help="with --cut: show each method and ask whether it moves"
    )
    parser.add_argument(
        "--commits",
        action="store_true",
        help="also commit it, in the way through which `git blame -C -C` keeps most; the shares are printed",
    )
    parser.add_argument(
        "--way",
        choices=("best", "one", "move", "rename"),
        default="best",
        help="with --commits: one commit; a copy as it stands and its edit; a rename on a side line, merged",
    )
    add_write_modes(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.interactive and not arguments.cut:
        print("migrate port: --interactive goes with --cut: a port copies a part as a whole", file=sys.stderr)
        return USAGE
    if arguments.way != "best" and not arguments.commits:
        print("migrate port: --way goes with --commits", file=sys.stderr)
        return USAGE
    if arguments.commits and (arguments.cut or arguments.diff or arguments.check):
        print("migrate port: --commits does not go with --cut, --diff and --check", file=sys.stderr)
        return USAGE
    if arguments.commits:
        return _port_with_commits(arguments)
    return _cut(arguments) if arguments.cut else _port(arguments)


def _port_with_commits(arguments: argparse.Namespace) -> int:
    from migration.blame.commits import port_with_commits
    from migration.code.tree import DiskTree
    from migration.commands.writing import open_repository
    from migration.phases.port import PortPlan, plan_port
    from migration.slices import load_recipe

    root = open_repository(arguments)
    plan = plan_port(load_recipe(arguments.slice), DiskTree(root))
    # A refusal, or nothing to do, is said as without --commits.
    return port_with_commits(arguments, root, plan) if isinstance(plan, PortPlan) else _port(arguments)


def _port(arguments: argparse.Namespace) -> int:
    from migration.commands.phase import carry_out
    from migration.phases.port import PortPlan, plan_port
    from migration.proofs.record import record_port

    return carry_out(arguments, plan_port, PortPlan, record_port)


def _cut(arguments: argparse.Namespace) -> int:
    from migration import render
    from migration.code.tree import DiskTree
    from migration.commands.interactive import choose
    from migration.commands.writing import open_repository, write
    from migration.move.cut import CutClean, CutPlan, plan_cut
    from migration.move.outcome_json import outcome_json
    from migration.phases.parts import part_of
    from migration.proofs.record import proof_change, record
    from migration.slices import load_recipe

    recipe = load_recipe(arguments.slice)
    root = open_repository(arguments)
    tree = DiskTree(root)
    outcome = plan_cut(recipe, tree)
    if arguments.interactive and isinstance(outcome, CutPlan):
        accepted = choose(outcome)
        if not accepted:
            render.line(f"{recipe.name}: no method was accepted, nothing written")
            return DONE
        if set(accepted) != set(outcome.methods):
            outcome = plan_cut(part_of(recipe, accepted), tree)
    if isinstance(outcome, CutPlan):
        proof = record(outcome)
        # The class's own file is written last: a kill before it leaves a handler that nobody imports.
        *others, worker = outcome.changes
        changes = (*others, proof_change(proof, tree.read(proof.path)), worker)
        outcome = dataclasses.replace(outcome, changes=changes)
        write(root, changes, arguments)
    written = not (arguments.diff or arguments.check)
    if arguments.json:
        render.as_json(outcome_json(outcome, written=written))
    elif not (arguments.diff and isinstance(outcome, CutPlan)):
        render.outcome(outcome, written=written)
    if isinstance(outcome, CutPlan):
        return WOULD_CHANGE if arguments.check else DONE
    return DONE if isinstance(outcome, CutClean) else REFUSED
