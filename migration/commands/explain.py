"""`migrate explain`: what a code means, why going on would be unsafe, and how to get past it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from migration.cli import DONE, USAGE, Commands

if TYPE_CHECKING:
    from migration.explanations import Explanation

_GROUPS = {
    "MG0": "a method cannot move",
    "MG1": "the slice or its target",
    "MG2": "the result did not pass the checks",
    "MG3": "files, writing, undoing",
    "MG4": "the recipe",
    "MG5": "splitting a method, recording types, adapters, planning",
    "MG6": "the checklist of a slice",
}


def configure(commands: Commands) -> None:
    parser = commands.add_parser(
        "explain",
        help="what a code such as MG012 means and how to get past it",
        description="Explain a code: what it says, why going on would be unsafe, how to get past it. "
        "Without a code: list all of them.",
    )
    parser.add_argument("code", metavar="CODE", nargs="?", help="such as MG012")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(arguments: argparse.Namespace) -> int:
    from migration.errors import CATALOGUE
    from migration.explanations import explanations

    known = explanations()
    if arguments.code is None:
        chosen = list(CATALOGUE)
    elif (code := arguments.code.strip().upper()) in CATALOGUE:
        chosen = [code]
    else:
        print(_unknown(arguments.code, list(CATALOGUE)), file=sys.stderr)
        return USAGE
    if arguments.json:
        _print_json({code: known[code] for code in chosen})
    elif arguments.code is None:
        _print_list(chosen)
    else:
        _print(chosen[0], known[chosen[0]])
    return DONE


def _unknown(code: str, known: list[str]) -> str:
    import difflib

    wanted = code.strip().upper()
    digits = wanted.removeprefix("MG")
    padded = f"MG{int(digits):03}" if digits.isdecimal() else wanted
    near = [padded] if padded in known else difflib.get_close_matches(wanted, known, 3)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"migrate explain: there is no code {code}{meant} (`migrate explain` lists them)"


def _print_list(codes: list[str]) -> None:
    from migration.errors import CATALOGUE

    group = ""
    for code in codes:
        if code[:3] != group:
            group = code[:3]
            print(f"{group}xx {_GROUPS.get(group, '')}".rstrip())
        print(f"  {code} {CATALOGUE[code].title}")
    print("`migrate explain CODE` says more.")


def _print(code: str, explanation: Explanation) -> None:
    import shutil
    import textwrap

    from migration.errors import CATALOGUE

    title = CATALOGUE[code].title
    print(f"{code}: {'the method ' if code < 'MG1' else ''}{title}\n")
    width = min(shutil.get_terminal_size().columns, 100)
    for heading, text in (
        ("what", explanation.what),
        ("why", explanation.why),
        ("way out", explanation.past),
    ):
        print(_wrapped(heading, text, width))
    for heading, text in (("before", explanation.before), ("after", explanation.after)):
        if text:
            print(f"\n{heading}:")
            print(textwrap.indent(textwrap.dedent(text), "    ").rstrip())


def _wrapped(heading: str, text: str, width: int) -> str:
    import textwrap

    # A command or a name in backticks stays on one line, so that it can be copied.
    parts = text.split("`")
    kept = "`".join(part.replace(" ", "\0") if index % 2 else part for index, part in enumerate(parts))
    lead = f"{heading:<9}"
    lines = textwrap.wrap(
        kept,
        max(width, 40),
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\0", " ")


def _print_json(chosen: dict[str, Explanation]) -> None:
    import dataclasses
    import json

    from migration.errors import CATALOGUE

    codes = [
        {"code": code, "title": CATALOGUE[code].title, **dataclasses.asdict(explanation)}
        for code, explanation in chosen.items()
    ]
    print(json.dumps({"schema": 1, "codes": codes}, indent=2, ensure_ascii=False))
