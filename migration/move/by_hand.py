"""`[human] files`: what belongs to a slice and is written by hand. The codemod reads it and nothing more."""

from __future__ import annotations

import hashlib

from migration.code.tree import Tree
from migration.errors import Refusal
from migration.recipe import Recipe


def missing_by_hand(recipe: Recipe, tree: Tree) -> tuple[Refusal, ...]:
    """Files that the recipe lists and nobody has written yet."""
    return tuple(
        Refusal("MG126", path, 0, "it does not exist") for path in recipe.human if tree.read(path) is None
    )


def hashes_by_hand(recipe: Recipe, tree: Tree) -> tuple[tuple[str, str], ...]:
    """(path, SHA-256) of those that are there."""
    found = ((path, tree.read(path)) for path in recipe.human)
    return tuple((path, hashlib.sha256(data).hexdigest()) for path, data in found if data is not None)
