"""`migrate plan`: where a class comes apart, each slice tried out in memory."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from migration.cli import DONE, REFUSED, Commands
from migration.commands.options import add_repository

if TYPE_CHECKING:
    from migration.seams.plan import ClassPlan


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "plan",
        help="find the slices of a class, try each in memory, save one as a recipe",
        description="Propose slices of a class: with nothing else given, the clusters of methods that need least "
        "from the rest. Each is cut in memory, with all checks; nothing of the class is written.",
        epilog="examples:\n  migrate plan app/worker.py\n  migrate plan app/worker.py --section 'KV Cache'\n"
        "  migrate plan app/worker.py --methods take,put --write cache.toml\n"
        "  migrate plan app/worker.py --pick 2 --write sampling.toml && migrate port sampling.toml --cut --diff",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--class", dest="class_name", metavar="C", help="default: the longest of the file")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--section", metavar="TITLE", default="", help="the methods under this banner")
    what.add_argument("--methods", metavar="A,B", type=_names, default=(), help="these methods")
    parser.add_argument(
        "--budget", metavar="LOC", type=_positive, help="most lines of a slice (default: 500)"
    )
    parser.add_argument("--top", metavar="N", type=_positive, help="how many slices to propose (default: 5)")
    parser.add_argument("--write", metavar="PATH", type=Path, help="save one slice as a recipe (.toml)")
    parser.add_argument(
        "--pick", metavar="K", type=_positive, default=1, help="which one (default: the first)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite PATH")
    add_repository(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of tables")
    form.add_argument("--mermaid", action="store_true", help="print what comes first as a Mermaid chart")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    from migration.code.tree import DiskTree
    from migration.errors import MigrationError
    from migration.seams.graph import class_graph
    from migration.seams.plan import DEFAULT_BUDGET, DEFAULT_TOP, Wanted, candidates, try_all
    from migration.survey.remembered import RememberedTree

    root, path = _place(arguments)
    budget, top = arguments.budget or DEFAULT_BUDGET, arguments.top or DEFAULT_TOP
    wanted = Wanted(arguments.section, arguments.methods, budget, max(top, arguments.pick))
    tree = RememberedTree(DiskTree(root))
    graph = class_graph(tree, path, arguments.class_name)
    found = candidates(tree, graph, wanted)
    if arguments.write is not None:
        if arguments.pick > len(found):
            raise MigrationError("MG533", f"there are {len(found)} slices to pick from")
        found = found[arguments.pick - 1 : arguments.pick]
    with _progress(len(found)) as progress:
        first = arguments.pick if arguments.write is not None else 1
        plan = try_all(tree, graph, wanted, found, progress, first)
    code = _write(plan, arguments) if arguments.write is not None else DONE
    _print(plan, arguments)
    return code


def _place(arguments: argparse.Namespace) -> tuple[Path, str]:
    """The repository, and the file relative to it; MG303, MG313, MG531."""
    from migration.errors import MigrationError

    root: Path = arguments.root.resolve()
    file: Path = arguments.file
    file = next((f for f in (file, root / file) if f.is_file()), file).resolve()
    if not file.is_file():
        raise MigrationError("MG303", f"{arguments.file} does not exist")
    if not file.is_relative_to(root):
        raise MigrationError("MG313", f"{file} is not under {root}")
    if (root / "__init__.py").exists():
        raise MigrationError("MG531", f"{root} is inside a package, whose imports start above it")
    return root, file.relative_to(root).as_posix()


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int, str], None]]:
    """What is tried at the moment, on stderr; nothing where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("trying", total=total)
        yield lambda done, what: bar.update(task, completed=done, description=f"trying {what}")


def _write(plan: ClassPlan, arguments: argparse.Namespace) -> int:
    from migration.recipe import parse_recipe
    from migration.seams.write import planned_text, write_recipe

    (trial,) = plan.trials
    if trial.plan is None:
        return REFUSED
    text = planned_text(plan, trial)
    assert parse_recipe(text, arguments.write.name) == trial.recipe
    write_recipe(arguments.write, text, force=arguments.force)
    return DONE


def _print(plan: ClassPlan, arguments: argparse.Namespace) -> None:
    if arguments.json:
        from migration import render
        from migration.seams.plan_json import plan_json

        render.as_json(plan_json(plan))
    elif arguments.mermaid:
        from migration.seams.mikado import mermaid, steps

        print(mermaid(steps(plan)), end="")
    else:
        from rich.console import Console

        from migration.seams.report import print_plan

        print_plan(plan, Console())
        _say_next(plan, arguments)


def _say_next(plan: ClassPlan, arguments: argparse.Namespace) -> None:
    if arguments.write is None:
        moving = next((number for number, trial in enumerate(plan.trials, 1) if trial.plan), None)
        if moving is not None:
            print(f"\nnext: migrate plan {arguments.file} ... --pick {moving} --write SLICE.toml")
    elif plan.trials[0].plan is None:
        print(f"\nnot written: {arguments.write}, nothing of the slice moves before it is fixed")
    else:
        print(f"\nwrote {arguments.write}; next: migrate port {arguments.write} --cut --diff")
