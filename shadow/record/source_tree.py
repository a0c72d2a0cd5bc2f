"""The worker class of a source tree, imported beside whatever `batchgen` this process has already."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from shadow.record.format import RecordError
from shadow.record.snapshot import METHOD, Snapshot

_PACKAGE, _MODULE, _CLASS = "batchgen", "batchgen.batchgen_worker", "BatchGenWorker"


def _own_modules() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.split(".")[0] == _PACKAGE}


@contextmanager
def _imports_from(tree: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """`batchgen` comes from `tree`; afterwards this process has the modules and variables that it had."""
    others, variables = _own_modules(), {name: os.environ.get(name) for name in environment}
    for name in others:
        del sys.modules[name]
    sys.path.insert(0, str(tree))
    os.environ.update(environment)
    try:
        yield
    finally:
        sys.path.remove(str(tree))
        for name in _own_modules():
            del sys.modules[name]
        sys.modules.update(others)
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def import_from(tree: Path, name: str, gpus_per_node: int | None = None) -> ModuleType:
    """A module of the tree. RecordError where it cannot be imported or comes from elsewhere."""
    environment = {} if gpus_per_node is None else {"NUM_GPUS_PER_NODE": str(gpus_per_node)}
    with _imports_from(tree.resolve(), environment):
        try:
            module = importlib.import_module(name)
        except Exception as error:
            raise RecordError(
                f"{tree}: {name} cannot be imported: {type(error).__name__}: {error}"
            ) from error
    file = Path(module.__file__ or "")
    if not file.resolve().is_relative_to(tree.resolve()):
        raise RecordError(f"{tree}: {name} was imported from {file}, which is outside of it")
    return module


Importer = Callable[[Path, str, int | None], ModuleType]
"""As `import_from`; one that keeps its modules saves their import for the next record."""


def _settings(recorded: Mapping[str, Any], module: ModuleType) -> SimpleNamespace:
    """The recorded settings; those that only this tree has keep its default."""
    known = getattr(module, f"{_CLASS}Args", None)
    defaults: dict[str, Any] = {}
    if is_dataclass(known):
        for field in fields(known):
            if field.default is not MISSING:
                defaults[field.name] = field.default
    return SimpleNamespace(**{**defaults, **recorded})


class TreePlanner:
    """The tree's `_compute_boundary_decisions` on recorded inputs: no engine is built and no GPU is needed.

    The method runs on an instance that was never initialised and has `args`, `rank`, `world_size` and
    `global_batch.get_sequence` only.
    """

    def __init__(
        self,
        tree: Path,
        settings: Mapping[str, Any],
        world_size: int,
        gpus_per_node: int,
        importer: Importer = import_from,
    ) -> None:
        self.tree = tree
        module = importer(tree, _MODULE, gpus_per_node)
        worker = getattr(module, _CLASS, None)
        if not isinstance(worker, type) or not callable(getattr(worker, METHOD, None)):
            raise RecordError(f"{tree}: {_MODULE} has no {_CLASS}.{METHOD} to replay")
        bare: Any = worker
        self._worker = object.__new__(bare)
        self._worker.args = _settings(settings, module)
        self._worker.rank, self._worker.world_size = 0, world_size
        self._decide = getattr(self._worker, METHOD)
        self.types: dict[str, Any] = {
            name: value for name, value in vars(module).items() if is_dataclass(value)
        }

    def __call__(self, snapshot: Snapshot) -> Any:
        """The decisions; what the planner raises comes through. RecordError where it needs more than it has."""
        self._worker.global_batch = snapshot
        try:
            return self._decide(**snapshot.arguments)
        except AttributeError as error:
            if error.obj is not self._worker:
                raise
            raise RecordError(
                f"{self.tree}: {METHOD} reads the worker's {error.name!r}, which no record has: "
                "give a planner of your own with --planners"
            ) from error
        except TypeError as error:
            if METHOD not in str(error):
                raise
            raise RecordError(f"{self.tree}: the recorded inputs do not fit it: {error}") from error
