"""Which phase a tree is in, and by what that shows."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from migration.code.source import Source
from migration.code.structure import ClassOutline
from migration.move.others import LEGACY
from migration.phases.gate_text import gated
from migration.recipe import Recipe

Phase = Literal["port", "gate", "cleanup"]


@dataclass(frozen=True)
class FoundPhase:
    """`how` says what in the tree shows it."""

    phase: Phase
    how: str


def find_phase(recipe: Recipe, worker: Source, shape: ClassOutline) -> FoundPhase:
    """The phase of a slice whose handler is there. One gate, or one legacy body, makes it `gate`."""
    if pairs := gated(shape, recipe):
        return FoundPhase("gate", f"{len(pairs)} methods are gated by {recipe.gate_name}")
    legacy = [method.name for method in shape.methods if method.name.startswith(LEGACY)]
    if uses(worker, recipe.gate_name) and legacy:
        return FoundPhase("gate", f"{recipe.gate_name} and {legacy[0]} are there")
    served = recipe.served[1]
    if uses(worker, served):
        return FoundPhase("cleanup", f"the class uses {served}, without a gate")
    return FoundPhase("port", f"nothing in {recipe.source_file} uses {served}")


def uses(source: Source, name: str) -> ast.AST | None:
    """Where the code of a module first has a name; what comments and texts say does not count."""
    if name.encode() not in source.data:
        return None
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name | ast.Attribute | ast.Constant | ast.alias):
            word = getattr(node, "id", "") or getattr(node, "attr", "") or getattr(node, "name", "")
            if name in (word, getattr(node, "value", None)):
                return node
    return None
