"""`--interactive`: accept a cut method by method."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable

from migration import render
from migration.code.source import Source
from migration.code.structure import outline
from migration.errors import MigrationError
from migration.inverse.fold import stubs_of
from migration.move.cut import CutPlan

HELP = (
    "y move it, n leave it where it is, a move it and all that follow, q leave it and all that follow, ? help"
)


def choose(plan: CutPlan, ask: Callable[[str], str] = input) -> tuple[str, ...]:
    """Names of the methods that the user accepts; each is shown as what its text becomes.

    Raises:
        MigrationError: MG131 where nobody can answer (standard input is closed or is no terminal's).
    """
    recipe = plan.recipe
    files = {change.path: change for change in plan.changes}
    worker, handler = files[recipe.source_file].before, files[recipe.target_file].after
    assert worker is not None and handler is not None
    before, after = Source(recipe.source_file, worker), Source(recipe.target_file, handler)
    names = [detail.moved_name for detail in plan.proof.details]
    originals = stubs_of(recipe, outline(before, recipe.source_class), names)
    moved = {method.name: method for method in outline(after, recipe.handler_class).methods}
    accepted: list[str] = []
    answer = ""
    for index, detail in enumerate(plan.proof.details, 1):
        if detail.name in accepted:
            continue  # an accessor goes with its property
        if answer != "a":
            old, new = originals[detail.moved_name], moved[detail.moved_name]
            _show(
                before.lines[old.block_start - 1 : old.block_end],
                after.lines[new.block_start - 1 : new.block_end],
            )
            answer = _answer(
                f"[{index}/{len(names)}] move {recipe.source_class}.{detail.name}? [y,n,a,q,?] ", ask
            )
        if answer == "q":
            break
        if answer in ("y", "a"):
            accepted.append(detail.name)
    return tuple(accepted)


def _show(old: tuple[bytes, ...], new: tuple[bytes, ...]) -> None:
    before, after = (
        [line.decode("utf-8", "replace").rstrip("\r\n") for line in lines] for lines in (old, new)
    )
    for line in difflib.unified_diff(before, after, "in the class", "in the handler", n=2, lineterm=""):
        render.line(line)


def _answer(prompt: str, ask: Callable[[str], str]) -> str:
    while True:
        try:
            answer = ask(prompt).strip().lower()
        except EOFError as error:
            raise MigrationError("MG131", "standard input ended before every method was answered") from error
        if answer in ("y", "n", "a", "q"):
            return answer
        print(HELP, file=sys.stderr)
