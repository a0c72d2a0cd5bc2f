"""`migrate trace`: run a program and record the types that a class shows while it runs."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from migration.cli import ERROR, Commands

_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "trace",
        help="run a program and record the types of a class's attributes, parameters and results",
        description="Run COMMAND and record in TYPES.json which types the attributes, parameters and results "
        "of the named classes have, in every Python process that it starts. Exit code: COMMAND's own; 3 if "
        "that is 0 and no instance of a named class was seen.",
    )
    parser.add_argument("-o", "--output", metavar="TYPES.json", type=Path, required=True)
    parser.add_argument(
        "--class",
        dest="classes",
        metavar="pkg.module:Class",
        type=_class_path,
        action="append",
        default=[],
        help="class to trace (__main__:Class for one of the script itself); may be given several times",
    )
    parser.add_argument("--slice", metavar="SLICE", help="trace the source class of this recipe as well")
    parser.add_argument(
        "--max-depth",
        metavar="N",
        type=_count,
        default=2,
        help="how deep elements of containers are looked at (default 2: dict[str, list[int]])",
    )
    parser.add_argument(
        "--max-calls",
        metavar="N",
        type=_count,
        default=0,
        help="leave a method alone after N calls in a process (default 0: never)",
    )
    parser.add_argument("program", metavar="-- COMMAND ARGS", nargs=argparse.REMAINDER)
    parser.set_defaults(usage=parser.error)


def _class_path(text: str) -> str:
    if not _CLASS.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form pkg.module:Class")
    return text


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    import json
    import sys

    from migration.errors import MigrationError
    from migration.slices import load_recipe
    from migration.trace.merge import as_document
    from migration.trace.session import trace
    from migration.trace.summary import summary, unseen

    command = arguments.program[1:] if arguments.program[:1] == ["--"] else arguments.program
    classes = list(arguments.classes)
    if arguments.slice:
        recipe = load_recipe(arguments.slice)
        classes.append(f"{recipe.source_module}:{recipe.source_class}")
    if not command:
        arguments.usage("no command after --")
    if not classes:
        arguments.usage("name at least one class with --class or --slice")
    output: Path = arguments.output
    if not output.parent.is_dir():
        raise MigrationError("MG303", f"{output.parent} is not a directory, {output} cannot be written there")
    result = trace(command, classes, arguments.max_depth, arguments.max_calls)
    document = as_document(result.seen, classes)
    output.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(summary(result.seen, document, str(output)), file=sys.stderr)
    missing = unseen(result.seen, sorted(set(classes)))
    for line in missing:
        print(f"migrate: MG523 {line}", file=sys.stderr)
    return result.exit_code or (ERROR if missing else 0)
