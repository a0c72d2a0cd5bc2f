"""Gate flags that are open: the gates of a slice that stand in the class's module. Pure."""

from __future__ import annotations

import ast

from migration.code.source import read_source
from migration.recipe import Recipe

KINDS = ("NATIVE", "COMPARE")


def open_prefixes(recipe: Recipe, worker: bytes) -> tuple[str, ...]:
    """Prefixes of the slice's gate and of those of its parts (`KV`, `KV_STATS`), as the module creates them.

    Raises MG301 where the module does not parse.
    """
    found = [
        call.args[0].value
        for node in read_source(recipe.source_file, worker).tree.body
        if isinstance(node, ast.Assign)
        and isinstance(call := node.value, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "Gate"
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ]
    return tuple(p for p in found if isinstance(p, str) and f"{p}_".startswith(f"{recipe.prefix}_"))


def creates(worker: bytes, prefix: str) -> bool:
    """Whether a version of the module has the gate: by its text, which is quicker than by its tree."""
    return f'"{prefix}"'.encode() in worker or f"'{prefix}'".encode() in worker
