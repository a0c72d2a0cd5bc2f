"""This repository: main is what pipeline.toml says, byte for byte; cleanup leaves what the golden folders hold."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from migration.code.tree import DiskTree
from migration.ledger.change import FileChange
from pipeline.config import Config, load_config
from pipeline.stack import golden, landing

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(ROOT)


def differing(changes: Iterable[FileChange]) -> list[str]:
    return [change.path for change in changes]


def test_the_phases_from_the_kept_worker_give_main_byte_for_byte(config: Config) -> None:
    """Worker, handlers, proofs. To change them, edit the kept worker and run `python -m pipeline land`."""
    assert differing(landing(config, DiskTree(ROOT))) == []


@pytest.mark.slow
def test_cleanup_leaves_what_the_golden_folders_hold(config: Config) -> None:
    """After an edit of the kept worker or a recipe: `python -m pipeline golden`, and look at the difference."""
    if not any(one.golden for one in config.slices):
        pytest.skip("pipeline.toml has no slice with `golden = true` yet")
    assert differing(golden(config, DiskTree(ROOT))) == []
