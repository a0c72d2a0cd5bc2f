"""`migrate inventory`: what is in a class."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from migration.cli import DONE, USAGE, Commands

if TYPE_CHECKING:
    from migration.code.source import Source
    from migration.code.structure import ClassOutline
    from migration.presence.findings import HasattrFinding


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "inventory",
        help="what is in a class: sections, methods, attributes, coupling, hazards",
        description="What is in a class: sections, methods, attributes, how the parts hang together, hazards.",
    )
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument(
        "--class", dest="class_name", metavar="C", help="default: the longest class of the file"
    )
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--section", metavar="TITLE", help="one section in detail")
    part.add_argument("--method", metavar="NAME", help="one method in full")
    parser.add_argument(
        "--clusters", action="store_true", help="couple clusters of methods instead of the sections"
    )
    parser.add_argument(
        "--hasattr",
        dest="prove",
        action="store_true",
        help="decide each hasattr and getattr on self: always, never, or depends",
    )
    parser.add_argument(
        "--score",
        action="store_true",
        help="try to move every definition of the class, in memory: what moves, what is refused and why",
    )
    parser.add_argument(
        "--repo",
        "--root",
        dest="root",
        type=Path,
        metavar="DIR",
        help="repository that --hasattr and --score look at (default: the one around FILE)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(arguments: argparse.Namespace) -> int:
    from migration.code.collector import no_collections
    from migration.errors import MigrationError

    if not arguments.file.is_file():
        raise MigrationError("MG303", f"{arguments.file} does not exist")
    if arguments.score:
        return _score(arguments)
    with no_collections():
        return _inventory(arguments)


def _inventory(arguments: argparse.Namespace) -> int:
    from migration.code.source import Source
    from migration.code.structure import outline
    from migration.declare.advice import declare_commands
    from migration.survey.inventory import inventory_of
    from migration.survey.selection import NotFound, select_method, select_section

    path: Path = arguments.file
    source = Source(str(path), path.read_bytes())
    shape = outline(source, arguments.class_name)
    found = inventory_of(source, shape, by_clusters=arguments.clusters)
    try:
        if arguments.section is not None:
            found = select_section(found, arguments.section)
        elif arguments.method is not None:
            found = select_method(found, arguments.method)
    except NotFound as error:
        print(f"migrate inventory: {error}", file=sys.stderr)
        return USAGE
    findings = _findings(source, shape, arguments) if arguments.prove else None
    commands: dict[str, str] = {}
    if findings is not None:
        commands = declare_commands(findings, _words(arguments))
        names = {method.name for method in found.methods}
        findings = tuple(finding for finding in findings if finding.method in names)
    if arguments.json:
        import json

        from migration.survey.inventory_json import inventory_json

        json.dump(inventory_json(found, findings, commands), sys.stdout, indent=2, ensure_ascii=False)
        sys.stdout.write("\n")
        return DONE

    from rich.console import Console

    from migration import render_hasattr, render_inventory, render_method

    console = Console()
    if findings is not None:
        render_hasattr.hasattr_list(findings, console, commands)
    elif arguments.method is not None:
        render_method.method_details(found, console)
    elif arguments.section is not None:
        render_inventory.one_section(found, console)
    else:
        render_inventory.overview(found, console)
    return DONE


def _score(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from migration import render
    from migration.code.tree import DiskTree
    from migration.survey.score import score_class
    from migration.survey.score_report import print_score, score_json

    root, path = _place(arguments)
    errors = Console(stderr=True)
    with errors.status(f"trying every definition of {arguments.file}") as status:
        found = score_class(DiskTree(root), path, arguments.class_name, status.update)
    if arguments.json:
        render.as_json(score_json(found))
    else:
        print_score(found, Console())
    return DONE


def _place(arguments: argparse.Namespace) -> tuple[Path, str]:
    """(repository, path of the file in it)."""
    from migration.errors import MigrationError

    path: Path = arguments.file.resolve()
    root = arguments.root.resolve() if arguments.root is not None else _root_of(path)
    if not path.is_relative_to(root):
        raise MigrationError("MG303", f"{arguments.file} is not below {root}")
    return root, path.relative_to(root).as_posix()


def _findings(
    source: Source, shape: ClassOutline, arguments: argparse.Namespace
) -> tuple[HasattrFinding, ...]:
    from migration.code.tree import DiskTree
    from migration.presence.prover import prove_hasattr

    root, path = _place(arguments)
    return prove_hasattr(source, shape, DiskTree(root), path)


def _words(arguments: argparse.Namespace) -> list[str]:
    """How `migrate declare` names the class from the same folder."""
    root, path = _place(arguments)
    words = [path, *(["--class", arguments.class_name] if arguments.class_name else [])]
    return words if root == Path.cwd() else [*words, "--repo", str(root)]


def _root_of(path: Path) -> Path:
    """The repository around a file: where git or a project file is, else above its outermost package."""
    for folder in path.parents:
        if any((folder / name).exists() for name in (".git", "pyproject.toml", "setup.py", "setup.cfg")):
            return folder
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        folder = folder.parent
    return folder
