"""`pipeline.toml`: which slices are taken out of a class, in which order, and how far main is with each.

schema = 1
worker = "app/worker.py"
kept = "tests/before/worker.py.txt"

[[slices]]
number = 5
recipe = "kv"
main = "gate"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from migration.recipe import Recipe
from migration.recipe_checklist import PHASES, Checklist, parse_checklist
from migration.slices import load_recipe, recipe_path
from pipeline.errors import SHORT, PipelineError

FILE: Final = "pipeline.toml"
_KEYS: Final = {"schema": int, "worker": str, "kept": str, "golden?": str, "slices": list, "shadow?": dict}
_SLICE: Final = {"number": int, "recipe": str, "main?": str, "golden?": bool}
_SHADOW: Final = {
    "model": str,
    "workload": str,
    "page_size": int,
    "scale": str,
    "scaled_page_size": int,
    "content_every": int,
    "alone?": str,
}


@dataclass(frozen=True)
class Slice:
    """`number` names its pull requests; `main` is the last phase that main has of it, "" for none of them.

    `golden`: what its cleanup leaves is kept to be compared with.
    """

    number: int
    #: The recipe as the configuration names it.
    path: str
    recipe: Recipe
    main: str
    golden: bool
    checklist: Checklist

    @property
    def phases(self) -> tuple[str, ...]:
        """Those that main has."""
        return PHASES[: PHASES.index(self.main) + 1] if self.main else ()


@dataclass(frozen=True)
class Shadow:
    """What gated workers are compared on; `scale` is for a machine without a GPU. Of a scaled run the pages are
    smaller too, or no row would ever need more of them than it gets at first."""

    model: str
    workload: str
    page_size: int
    scale: str
    scaled_page_size: int
    content_every: int
    #: A module and its arguments, run with the gate comparing and nobody watching.
    alone: str = ""


@dataclass(frozen=True)
class Config:
    """Paths are relative to the repository. `kept` is the class's file as it was before its first slice; the first
    landing writes it."""

    worker: str
    kept: str
    golden: str
    slices: tuple[Slice, ...]
    shadow: Shadow | None

    def slice(self, number: int) -> Slice:
        for one in self.slices:
            if one.number == number:
                return one
        known = ", ".join(str(one.number) for one in self.slices)
        raise PipelineError(
            f"{FILE} has no slice {number}, only {known}: add it there with its recipe", SHORT
        )


def load_config(root: Path) -> Config:
    """The configuration of a repository, with its recipes. PipelineError (3) says what is wrong, and where."""
    path = root / FILE
    if not path.is_file():
        raise PipelineError(
            f"{path} does not exist: it says which slices there are (docs/pipeline.md)", SHORT
        )
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineError(f"{FILE}: {error}", SHORT) from error
    _typed(data, _KEYS, "")
    if data["schema"] != 1:
        raise PipelineError(f"{FILE}: schema: this version reads 1, not {data['schema']}", SHORT)
    shadow = data.get("shadow")
    if shadow is not None:
        _typed(shadow, _SHADOW, "shadow.")
    slices = tuple(_slice(root, entry, f"slices[{i}].") for i, entry in enumerate(data["slices"]))
    _consistent(data["worker"], slices)
    return Config(
        data["worker"],
        data["kept"],
        data.get("golden", ""),
        slices,
        Shadow(**shadow) if shadow is not None else None,
    )


def _slice(root: Path, entry: Any, where: str) -> Slice:
    if not isinstance(entry, dict):
        raise PipelineError(f"{FILE}: {where[:-1]}: must be a table", SHORT)
    _typed(entry, _SLICE, where)
    main = entry.get("main", "")
    if main and main not in PHASES:
        raise PipelineError(f"{FILE}: {where}main: must be one of {', '.join(PHASES)}, is {main!r}", SHORT)
    name = entry["recipe"]
    name = str(root / name) if name.endswith(".toml") else name
    recipe = load_recipe(name)
    checklist = parse_checklist(recipe_path(name).read_text(encoding="utf-8"), name)
    return Slice(entry["number"], entry["recipe"], recipe, main, entry.get("golden", False), checklist)


def _typed(table: Mapping[str, Any], schema: Mapping[str, type], where: str) -> None:
    known = {key.rstrip("?"): kind for key, kind in schema.items()}
    for key in table:
        if key not in known:
            raise PipelineError(f"{FILE}: {where}{key}: unknown entry; there are {', '.join(known)}", SHORT)
    for key, kind in known.items():
        if key not in table and f"{key}?" not in schema:
            raise PipelineError(f"{FILE}: {where}{key}: missing", SHORT)
        if key in table and type(table[key]) is not kind:
            raise PipelineError(f"{FILE}: {where}{key}: must be {kind.__name__}, is {table[key]!r}", SHORT)


def _consistent(worker: str, slices: tuple[Slice, ...]) -> None:
    if not slices:
        raise PipelineError(f"{FILE}: slices: must have one at least", SHORT)
    for key in ("number", "recipe"):
        seen: set[object] = set()
        for index, one in enumerate(slices):
            value = one.number if key == "number" else one.recipe.name
            if value in seen:
                raise PipelineError(f"{FILE}: slices[{index}].{key}: {value} is there twice", SHORT)
            seen.add(value)
    for index, one in enumerate(slices):
        if one.recipe.source_file != worker:
            raise PipelineError(
                f"{FILE}: slices[{index}].recipe: {one.recipe.name} is of {one.recipe.source_file}, not {worker}",
                SHORT,
            )
