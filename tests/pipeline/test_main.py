"""This repository: main is what pipeline.toml says, byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from migration.code.tree import DiskTree
from migration.ledger.change import FileChange
from pipeline.config import Config, load_config
from pipeline.stack import landing

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(ROOT)


def differing(changes: Iterable[FileChange]) -> list[str]:
    return [change.path for change in changes]


def test_the_phases_from_the_kept_worker_give_main_byte_for_byte(config: Config) -> None:
    """Worker, handlers, proofs. To change them, edit the kept worker and run `python -m pipeline land`."""
    assert differing(landing(config, DiskTree(ROOT))) == []
