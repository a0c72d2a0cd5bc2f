"""`migrate port --commits`: the port, written and committed in the way that keeps most of its blame."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from migration import render
from migration.blame.landing import Landing, Measured, prepare
from migration.blame.objects import publish
from migration.burndown.gitrun import GitError, Repository, open_git
from migration.cli import DONE, ERROR
from migration.code.tree import DiskTree
from migration.commands.writing import write
from migration.ledger.change import FileChange
from migration.ledger.interrupts import held_back
from migration.phases.port import PortPlan
from migration.proofs.record import proof_change, record_port


def port_with_commits(arguments: argparse.Namespace, root: Path, plan: PortPlan) -> int:
    """Carry out a planned port and commit it; the exit code of the command."""
    tree = DiskTree(root)
    proof = record_port(plan, tree)
    *others, last = plan.changes
    changes = (*others, proof_change(proof, tree.read(proof.path)), last)
    try:
        repository = open_git(root)
        worker = (root / plan.recipe.source_file).read_bytes()
        landing = prepare(repository, plan, worker, changes, arguments.way)
        with held_back() as held:
            _write(root, repository, landing, changes, arguments)
            held.raise_if_any("interrupted: the port was under way, and has been written and committed")
    except GitError as error:
        print(f"migrate port: not committed: {error}", file=sys.stderr)
        return ERROR
    if arguments.json:
        render.as_json(landing_json(plan, landing, changes))
    else:
        _say(plan, landing, changes)
    return DONE


def _write(
    root: Path,
    repository: Repository,
    landing: Landing,
    changes: Sequence[FileChange],
    arguments: argparse.Namespace,
) -> None:
    """Files first: what is written and not committed can be seen in `git status`, the reverse looks like edits."""
    files = tuple((change.path, change.after) for change in changes)
    try:
        write(root, changes, arguments)
    except KeyboardInterrupt:
        # The write says whether it was finished; if so, its commit belongs to it.
        if all((root / path).is_file() and (root / path).read_bytes() == data for path, data in files):
            publish(repository, landing.best.built, landing.base, files)
        raise
    publish(repository, landing.best.built, landing.base, files)


def landing_json(plan: PortPlan, landing: Landing, changes: Sequence[FileChange]) -> dict[str, Any]:
    """Ready for `json.dumps`; described in docs/status.md."""
    return {
        "schema": 1,
        "slice": plan.recipe.name,
        "phase": "port",
        "outcome": "written",
        "part": plan.part,
        "methods": plan.methods,
        "left": plan.left,
        "added": plan.added,
        "files": [change.path for change in changes],
        "commits": landing.best.built.commits,
        "blame": {
            "lines": landing.lines,
            "way": landing.best.name,
            "edit": landing.best.built.edit,
            "ways": [
                {
                    "way": one.name,
                    "commits": len(one.built.commits),
                    "kept": {
                        "-C -C": one.plain,
                        "-w -C -C": one.spaces,
                        "-w -C -C --ignore-rev": one.ignoring,
                    },
                }
                for one in landing.measured
            ],
            "not_open": [{"way": one.name, "why": one.why} for one in landing.closed],
        },
    }


def _say(plan: PortPlan, landing: Landing, changes: Sequence[FileChange]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    recipe, best = plan.recipe, landing.best
    part = f", part {plan.part}" if plan.part else ""
    render.line(
        f"port {recipe.name}{part}: {len(plan.methods)} methods copied to {recipe.handler_class} in "
        f"{recipe.target_file}, {plan.added} lines added, committed as {best.built.tip[:10]}"
    )
    table = Table(
        "way",
        "commits",
        "-C -C",
        "-w -C -C",
        "with the edit ignored",
        "",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for one in landing.measured:
        shares = (_share(count, landing) for count in (one.plain, one.spaces, one.ignoring))
        table.add_row(one.name, str(len(one.built.commits)), *shares, "taken" if one is best else "")
    render.line(f"of {landing.lines} moved lines git blame gives to their authors of before the port:")
    Console().print(table)
    for closed in landing.closed:
        render.line(f"  the way {closed.name} is not open: {closed.why}")
    _hint(best)
    for change in changes:
        size = (change.after or b"").count(b"\n") - (change.before or b"").count(b"\n")
        render.line(f"  {'new' if change.before is None else 'changed'} {change.path} ({size:+} lines)")
    left = len(plan.left)
    render.line(
        f"  {left} methods are left: run the command again for the next part"
        if left
        else f"  next: migrate gate {recipe.name}"
    )


def _share(count: int | None, landing: Landing) -> str:
    return "-" if count is None else f"{count} ({count / landing.lines:.1%})"


def _hint(best: Measured) -> None:
    if best.ignoring is not None and best.ignoring > best.spaces:
        render.line(f"  for the last share: git blame -w -C -C --ignore-rev {best.built.edit}")
        render.line(
            "  or name that commit in .git-blame-ignore-revs (blame.ignoreRevsFile; hosting sites read it)"
        )
    if best.built.way.merge is not None:
        render.line("  merge it as it is: a squash or a rebase would lose the side line")
