"""Slices that come with `migrate`, one TOML recipe each."""

from __future__ import annotations

from pathlib import Path

from migration.errors import MigrationError
from migration.recipe import Recipe, parse_recipe

_FOLDER = Path(__file__).parent


def load_recipe(name: str) -> Recipe:
    """Recipe by name (those in this folder) or by the path of a .toml file."""
    path = Path(name) if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in _FOLDER.glob("*.toml")))
        raise MigrationError("MG402", f"no slice {name}; known: {known}")
    return parse_recipe(path.read_text(encoding="utf-8"), path.name)
