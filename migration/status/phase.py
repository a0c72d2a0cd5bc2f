"""Which phase of a slice two files show. Pure: the class's file, the handler module and what the proof file says."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from enum import IntEnum

from migration.code.source import read_source
from migration.code.structure import ClassOutline, Method, outline
from migration.errors import MigrationError
from migration.move.cut import is_stub
from migration.move.moving import moved_name
from migration.move.others import LEGACY, own_methods
from migration.phases.gate_text import gated
from migration.recipe import Recipe


class Phase(IntEnum):
    """How far a slice is; the order of the pull requests."""

    ABSENT = 0
    PORTED = 1
    GATED = 2
    CLEANED = 3


#: What `migrate status` calls them.
WORDS = {
    Phase.ABSENT: "handler absent",
    Phase.PORTED: "ported",
    Phase.GATED: "gated",
    Phase.CLEANED: "cleaned",
}


@dataclass(frozen=True)
class Standing:
    """`done` of `wanted` methods are in the handler. `left` are the lines of the section that the class still has.

    `note` says what is out of the ordinary.
    """

    phase: Phase
    done: int
    wanted: int
    left: int
    note: str = ""

    @property
    def words(self) -> str:
        if self.phase is Phase.PORTED and self.done < self.wanted:
            return f"ported in part, {self.done} of {self.wanted}"
        return WORDS[self.phase]


@dataclass(frozen=True)
class Unclear:
    """The files do not tell, and why."""

    why: str


def standing(
    recipe: Recipe, worker: bytes | None, handler: bytes | None, proof: bytes | None
) -> Standing | Unclear:
    """The phase that these files show; the files tell first, the proof only where they leave it open."""
    if worker is None:
        return Unclear(f"{recipe.source_file} is not there")
    try:
        shape = outline(read_source(recipe.source_file, worker), recipe.source_class)
        methods = _section(recipe, shape)
        left = _lines(recipe, shape, methods)
        if handler is None:
            return Standing(Phase.ABSENT, 0, len(methods), left)
        names = _handler_methods(recipe, handler)
    except MigrationError as error:
        return Unclear(str(error))
    if names is None:
        note = f"{recipe.target_file} has no class {recipe.handler_class}"
        return Standing(Phase.ABSENT, 0, len(methods), left, note)
    pairs = gated(shape, recipe)
    if pairs:
        return Standing(Phase.GATED, len(pairs), max(len(pairs), len(methods)), left)
    copied = [m for m in methods if moved_name(m, recipe.source_class) in names and not is_stub(m, recipe)]
    if copied:
        return Standing(Phase.PORTED, len(copied), len(methods), left)
    said = proof_phase(proof)
    if said in ("cleanup", "cut") or _uses(shape.node, recipe.served[1]):
        note = "in one step (--cut)" if said == "cut" else ""
        return Standing(Phase.CLEANED, len(names), len(names), left, note)
    note = (
        f"{recipe.handler_class} is there, but nothing of the section is in it and the class does not use it"
    )
    return Standing(Phase.ABSENT, 0, len(methods), left, note)


def proof_phase(proof: bytes | None) -> str:
    """The phase that a proof file of any version states, "" where it states none."""
    try:
        body = json.loads(proof or b"")
    except ValueError:
        return ""
    return str(body.get("phase", "")) if isinstance(body, dict) else ""


def _section(recipe: Recipe, shape: ClassOutline) -> list[Method]:
    """The methods of the slice that the class has under their own names; of definitions of a name the last."""
    titled = " ".join(recipe.section.split())
    found = (
        [m for s in shape.sections if s.title and " ".join(s.title.split()) == titled for m in s.methods]
        if recipe.section
        else [m for m in shape.methods if m.name in recipe.methods]
    )
    return [
        m
        for m in {moved_name(m, recipe.source_class): m for m in own_methods(shape, found, recipe)}.values()
        if m.name not in recipe.stays
    ]


def _lines(recipe: Recipe, shape: ClassOutline, methods: list[Method]) -> int:
    """Of the section, banner and all; without a banner of the methods, with their legacy bodies."""
    if recipe.section:
        titled = " ".join(recipe.section.split())
        sections = [s for s in shape.sections if s.title and " ".join(s.title.split()) == titled]
        return sum(s.last_line - s.first_line + 1 for s in sections)
    names = {m.name for m in methods}
    return sum(m.block_end - m.block_start + 1 for m in shape.methods if m.name.removeprefix(LEGACY) in names)


def _handler_methods(recipe: Recipe, handler: bytes) -> frozenset[str] | None:
    """The methods of the handler class, None where the module has no such class."""
    source = read_source(recipe.target_file, handler)
    if not any(isinstance(n, ast.ClassDef) and n.name == recipe.handler_class for n in source.tree.body):
        return None
    names = frozenset(m.name for m in outline(source, recipe.handler_class).methods)
    return names - {"__init__", "for_worker", "on", *(handle.name for handle in recipe.handles)}


def _uses(node: ast.ClassDef, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))
