"""The handler of the slice decode: the branch's own, or as its port writes it where the branch has none yet."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import batchgen.worker
from migration.code.tree import DiskTree
from migration.phases.port import PortPlan, plan_port
from migration.slices import load_recipe

ROOT = Path(__file__).parents[3]
RECIPE = load_recipe("decode")
if (ROOT / RECIPE.target_file).exists():
    HANDLER = (ROOT / RECIPE.target_file).read_bytes()
else:
    _port = plan_port(dataclasses.replace(RECIPE, budget=0), DiskTree(ROOT))
    assert isinstance(_port, PortPlan), _port
    HANDLER = next(change.after for change in _port.changes if change.path == RECIPE.target_file) or b""
    _folder = tempfile.TemporaryDirectory(prefix="decode-port-")
    Path(_folder.name, Path(RECIPE.target_file).name).write_bytes(HANDLER)
    batchgen.worker.__path__.append(_folder.name)

from batchgen.worker.decode import DecodeScheduler  # noqa: E402

__all__ = ["HANDLER", "RECIPE", "DecodeScheduler"]
