"""Plans of the step policy replayed: a tree's planners are asked again what was recorded."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from shadow.diff import Mismatch, Nature, diff_plain
from shadow.observation import Kind, Point
from shadow.plain import plain
from shadow.record.format import RecordError
from shadow.record.questions import PLAN, PLANNER, read_inputs
from shadow.record.source_tree import Importer, import_from
from shadow.record.unpack import Chunk


class PolicyReplay:
    """Replays the questions of chunk after chunk. A planner that the tree does not have is a RecordError."""

    kind, point = Kind.POLICY, Point.PLANNED

    def __init__(self, tree: Path, importer: Importer = import_from) -> None:
        self._tree, self._import = tree, importer
        self._modules: dict[str, ModuleType] = {}

    def replay(self, chunk: Chunk) -> Iterator[tuple[int, int, tuple[Mismatch, ...]]]:
        """(place in the chunk, 1, what differs) for each question."""
        for block in chunk.blocks:
            if block.shape.point is not Point.PLANNED:
                continue
            fields = [key.field for key in block.shape.keys]
            classes = block.classes.tolist()
            for column, index in zip(block.matrix.T.tolist(), block.events.tolist(), strict=True):
                cells = [chunk.cell(cls, number) for cls, number in zip(classes, column, strict=True)]
                values = dict(zip(fields, cells, strict=True))
                yield index, 1, tuple(self._differences(values, int(chunk.steps[index])))

    def _differences(self, values: Mapping[str, Any], step: int) -> Iterator[Mismatch]:
        recorded, name = values[PLAN.field], values[PLANNER.field]
        short = name.rpartition(".")[2]
        planner, types = self._planner(name)

        def at(field: str, nature: Nature, ours: str, theirs: str) -> Mismatch:
            return Mismatch(self.kind, nature, self.point, step, None, None, field, ours, theirs)

        try:
            found = plain(planner(*read_inputs(values, types)))
        except Exception as error:
            yield at(short, Nature.TYPE, "a plan", f"raised {type(error).__name__}: {error}")
            return
        if found != recorded:
            leaves, _, _ = diff_plain(recorded, found, short)
            for field, nature, ours, theirs in leaves:
                yield at(field, nature, ours, theirs)

    def _planner(self, dotted: str) -> tuple[Any, dict[str, Any]]:
        """The planner, and the classes that its module knows."""
        name, _, function = dotted.rpartition(".")
        module = self._modules.get(name)
        if module is None:
            module = self._modules[name] = self._import(self._tree, name, None)
        planner = getattr(module, function, None)
        if not callable(planner):
            raise RecordError(f"{self._tree}: {name} has no {function} to replay")
        return planner, {key: value for key, value in vars(module).items() if dataclasses.is_dataclass(value)}
