"""Which class the history is of, and which modules took over from it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migration.code.source import read_source
from migration.code.structure import outline
from migration.errors import MigrationError
from migration.recipe import Recipe


@dataclass(frozen=True)
class Subject:
    """`handlers` are the target modules of the slices, and the modules that their Protocols come from."""

    file: str
    class_name: str
    handlers: tuple[str, ...]


def choose_subject(
    root: Path, recipes: Sequence[Recipe], file: str | None, class_name: str | None
) -> Subject:
    """The file that was named, else the one that the slices in this tree take apart.

    MG303 where there is none, MG401 where there are several to choose from.
    """
    if file is not None:
        file = _within(root, file)
    else:
        here = [recipe for recipe in recipes if (root / recipe.source_file).is_file()]
        files = list(dict.fromkeys(recipe.source_file for recipe in here))
        if not files:
            wanted = ", ".join(sorted({recipe.source_file for recipe in recipes})) or "none"
            raise MigrationError("MG303", f"no slice is of a file in {root} (they are of {wanted}): name one")
        if len(files) > 1:
            raise MigrationError("MG401", f"the slices are of several files, name one: {', '.join(files)}")
        file = files[0]
    own = [recipe for recipe in recipes if recipe.source_file == file]
    classes = list(dict.fromkeys(recipe.source_class for recipe in own))
    if class_name is None:
        class_name = classes[0] if len(classes) == 1 else _longest(root, file)
    handlers = dict.fromkeys(
        path
        for recipe in own
        if recipe.source_class == class_name
        for path in (recipe.target_file, *_given(recipe))
    )
    handlers.pop(file, None)
    return Subject(file, class_name, tuple(handlers))


def _within(root: Path, file: str) -> str:
    """As git knows it: relative to `root`, whether it was named from there or from the current folder."""
    named = Path(file).resolve()
    if named.is_relative_to(root) and (named.is_file() or Path(file).is_absolute()):
        return named.relative_to(root).as_posix()
    return Path(file).as_posix()


def _given(recipe: Recipe) -> list[str]:
    """The modules of Protocols that a recipe names and does not write."""
    root = f"{recipe.import_root}/" if recipe.import_root else ""
    modules = [handle.protocol_from.partition(":")[0] for handle in recipe.handles if handle.protocol_from]
    return [f"{root}{module.replace('.', '/')}.py" for module in modules]


def _longest(root: Path, file: str) -> str:
    path = root / file
    if not path.is_file():
        near = difflib.get_close_matches(file, [p.as_posix() for p in Path(root).glob("*.py")], 1)
        hint = f", did you mean {near[0]}?" if near else ""
        raise MigrationError(
            "MG303", f"{file} does not exist in {root}{hint}; with --class its history can be shown"
        )
    return outline(read_source(file, path.read_bytes())).name
