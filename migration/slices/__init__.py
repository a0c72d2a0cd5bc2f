"""Slices that come with `migrate`, one TOML recipe each."""

from __future__ import annotations

from pathlib import Path

from migration.errors import MigrationError
from migration.recipe import Recipe, parse_recipe

_FOLDER = Path(__file__).parent


def recipe_path(name: str) -> Path:
    """The file of a recipe, by name (those in this folder) or by the path of a .toml file; MG402 for none."""
    path = Path(name) if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in _FOLDER.glob("*.toml")))
        raise MigrationError("MG402", f"no slice {name}; known: {known}")
    return path


def load_recipe(name: str) -> Recipe:
    """Recipe by name or path, as `recipe_path` takes them; MG401 for what is wrong in it."""
    path = recipe_path(name)
    return parse_recipe(path.read_text(encoding="utf-8"), path.name)
