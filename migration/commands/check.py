"""`migrate check`: the pre-merge checklist of a slice, ticked by evidence."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from migration.cli import DONE, ERROR, REFUSED, WOULD_CHANGE, Commands
from migration.commands.options import add_repository, add_slice

if TYPE_CHECKING:
    from migration.check.model import Report
    from migration.recipe_checklist import Checklist

_FORMATS = ("terminal", "json", "sarif", "markdown", "junit")


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "check",
        help="the pre-merge checklist of a slice, as rules",
        description="Look at a slice in the phase that its tree is in: the items of the recipe's [checklist] and the "
        "rules that hold for every slice. Exit code 0 where nothing was found, 1 where something was, 2 where "
        "there is nothing to look at, 3 where the checklist itself is wrong.",
        epilog="examples:\n  migrate check kv\n  migrate check kv --phase gate --format markdown -o checklist.md\n"
        "  migrate check kv --format sarif -o check.sarif",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_slice(parser)
    parser.add_argument(
        "--phase", choices=("port", "gate", "cleanup"), help="default: the phase that the tree is in"
    )
    add_repository(parser)
    parser.add_argument(
        "--base",
        metavar="REV",
        help="revision that changed lines are counted from (default: the last commit)",
    )
    parser.add_argument("--format", choices=_FORMATS, default="terminal", help="default: terminal")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write to FILE instead of the screen"
    )
    parser.add_argument("--json", action="store_true", help="the same as --format json")


def run(arguments: argparse.Namespace) -> int:
    import datetime

    from migration.check.changes import changed_since
    from migration.check.reading import NothingThere, read_subject
    from migration.check.run import check
    from migration.code.tree import DiskTree
    from migration.commands.writing import open_repository
    from migration.proofs.store import known_proofs
    from migration.slices import load_recipe

    recipe = load_recipe(arguments.slice)
    root = open_repository(arguments)
    paths = (recipe.source_file, recipe.target_file, *recipe.generated)
    ready = read_subject(
        recipe,
        _checklist(arguments.slice, root),
        DiskTree(root),
        datetime.date.today(),
        phase=arguments.phase,
        proofs=known_proofs(root),
        changed=changed_since(root, arguments.base, paths),
    )
    form = "json" if arguments.json else arguments.format
    if isinstance(ready, NothingThere):
        from migration import render

        if form == "json":
            render.as_json(
                {"schema": 1, "slice": recipe.name, "exit_code": REFUSED, "refused": ready.refusal.message}
            )
        else:
            render.refusals(f"check {recipe.name}", (ready.refusal,))
        return REFUSED
    report = check(ready.subject, ready.found_by)
    exit_code = ERROR if report.errors else WOULD_CHANGE if report.findings else DONE
    text = _rendered(report, form, exit_code)
    if arguments.output is not None:
        from reports.write import write_report

        write_report(arguments.output, text)
        print(f"check {report.headline}")
    else:
        print(text, end="")
    return exit_code


def _checklist(name: str, root: Path) -> Checklist:
    """The part of the recipe that `load_recipe` leaves aside; its lines are evidence, so its path is shown."""
    from migration.recipe_checklist import parse_checklist
    from migration.slices import recipe_path

    path = recipe_path(name)
    shown = path.resolve()
    where = shown.relative_to(root).as_posix() if shown.is_relative_to(root) else path.name
    return parse_checklist(path.read_text(encoding="utf-8"), where)


def _rendered(report: Report, form: str, exit_code: int) -> str:
    if form == "json":
        from migration.check.json_form import to_json

        return to_json(report, exit_code)
    if form == "sarif":
        from migration.check.sarif import to_sarif

        return to_sarif(report, exit_code)
    if form == "markdown":
        from migration.check.markdown import to_markdown

        return to_markdown(report)
    if form == "junit":
        from migration.check.junit import to_junit_xml

        return to_junit_xml(report, exit_code)
    from migration.check.terminal import to_terminal

    return to_terminal(report)
