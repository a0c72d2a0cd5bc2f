"""A repository that went through all three phases, built once and copied for each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .lives import commit, phase, start

Life = Callable[[str], Path]


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tree at the end of each phase, everything committed: 40, 20, 9 and 3 days ago."""
    folder = tmp_path_factory.mktemp("stages")
    root = start(folder / "life")
    found = {"start": shutil.copytree(root, folder / "start")}
    for name, days in (("port", 20.5), ("gate", 9.5), ("cleanup", 3.5)):
        phase(root, name)
        commit(root, name, days)
        found[name] = shutil.copytree(root, folder / name)
    return found


@pytest.fixture
def life(stages: dict[str, Path], tmp_path: Path) -> Life:
    """A copy of the tree as a phase left it."""
    return lambda name: shutil.copytree(stages[name], tmp_path / "tree")
