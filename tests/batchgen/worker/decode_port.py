"""The handler of the slice decode as its port writes it: importable, though it is on no branch yet."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import batchgen.worker
from migration.code.tree import DiskTree
from migration.phases.port import PortPlan, plan_port
from migration.slices import load_recipe

RECIPE = load_recipe("decode")
PORT = plan_port(dataclasses.replace(RECIPE, budget=0), DiskTree(Path(__file__).parents[3]))
assert isinstance(PORT, PortPlan), PORT
HANDLER = next(change.after for change in PORT.changes if change.path == RECIPE.target_file)
_folder = tempfile.TemporaryDirectory(prefix="decode-port-")
Path(_folder.name, Path(RECIPE.target_file).name).write_bytes(HANDLER)
batchgen.worker.__path__.append(_folder.name)

from batchgen.worker.decode import DecodeScheduler  # noqa: E402

__all__ = ["HANDLER", "PORT", "RECIPE", "DecodeScheduler"]
