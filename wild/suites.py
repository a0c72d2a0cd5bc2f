"""Packages whose own tests judge a cut: the rows of suites.toml as values."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from wild.corpus import HERE


@dataclass(frozen=True)
class Suite:
    """How the tests of one package are run, and what breaks them soonest."""

    package: str
    #: Tests to run, relative to the unpacked package.
    tests: tuple[str, ...]
    #: The module that must come from the copy under test.
    module: str
    #: Folder to put on PYTHONPATH, relative to the unpacked package.
    path: str = "."
    #: Further options for pytest.
    options: tuple[str, ...] = ()
    #: Test ids and files that are left out, and why.
    deselect: dict[str, str] = field(default_factory=dict)
    #: Python statements that run before pytest starts.
    prelude: str = ""
    #: Tests to run first when a method has been broken; the others follow where these stay green.
    first: tuple[str, ...] = ()

    #: How often the tests are run until each has passed once: see outcomes.run_settled.
    tries: int = 1
    #: Methods that are broken one by one, by their names in the handler; all where none is named.
    breaks: tuple[str, ...] = ()
    #: Methods that its tests do not see, which are then not broken.
    unseen: tuple[str, ...] = ()

    @property
    def recipe(self) -> Path:
        return HERE / "recipes" / f"{self.package}.toml"


@lru_cache(maxsize=1)
def suites() -> dict[str, Suite]:
    """Every suite of suites.toml by package."""
    return load_suites((HERE / "suites.toml").read_text(encoding="utf-8"))


def load_suites(text: str) -> dict[str, Suite]:
    """Suites from TOML text; raises ValueError that names an entry nobody knows."""
    known = {item.name for item in fields(Suite)} - {"package"}
    found = {}
    for package, row in tomllib.loads(text).items():
        if unknown := row.keys() - known:
            raise ValueError(f"suites.toml: [{package}] has unknown entries: {', '.join(sorted(unknown))}")
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in row.items()
        }
        found[package] = Suite(package=package, **values)
    return found
