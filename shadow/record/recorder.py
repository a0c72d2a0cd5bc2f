"""Records a live worker in this process: what an observer sees goes into a file, nothing else changes."""

from __future__ import annotations

import dataclasses
import platform
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from shadow.observation import Digests, Event, Key, Observed, Row, Tokens
from shadow.plain import Record, plain
from shadow.record.snapshot import BoundaryInputs, is_whole_input
from shadow.record.tables import Header
from shadow.record.values import tree_bytes
from shadow.record.writer import CHUNK_EVENTS, RecordWriter


class Content(StrEnum):
    """What a record holds beside integers. Digests and logits cost a read of every live page a step."""

    DIGESTS = "digests"
    LOGITS = "logits"


def kept(key: Key, value: Observed, content: frozenset[Content]) -> bool:
    """Whether a record with this content keeps the value. Tensors of a sequence are its tokens once more: those
    are recorded as requests and as they are selected."""
    if isinstance(value, Row):
        return Content.LOGITS in content
    if isinstance(value, Digests):
        return Content.DIGESTS in content
    return not is_whole_input(key) and not (isinstance(value, Record) and value.name == "Tensor")


class Recorder:
    """Wraps the worker's methods on the instance from construction on; `run` once.

    `wrapper` is the class that the tree's attention state is bound on. RecordError where `path` exists.
    """

    def __init__(
        self,
        worker: Any,
        wrapper: Any,
        path: Path,
        *,
        content: frozenset[Content] = frozenset(),
        facts: Mapping[str, str] | None = None,
        chunk_events: int = CHUNK_EVENTS,
    ) -> None:
        from shadow.observe import PROBES
        from shadow.observer import Observer

        self._worker, self._content = worker, content
        settings = getattr(worker, "args", None)
        header = Header(
            chunk_events=chunk_events,
            content=tuple(sorted(content)),
            gpus_per_node=int(getattr(sys.modules[type(worker).__module__], "NUM_GPUS_PER_NODE", 1)),
            world_size=int(getattr(worker, "world_size", 1)),
            settings=tree_bytes(_settings(settings)),
            facts=tuple({**machine(), **(facts or {})}.items()),
        )
        self.writer = RecordWriter(path, header)
        self.observer = Observer(
            worker,
            wrapper,
            self._add,
            self._ask,
            structural=not content,
            probes=(*PROBES, BoundaryInputs()),
            invariants=(),  # they are of one side alone, and cost more than the record
        )

    def run(self, requests: Sequence[Any]) -> Sequence[Any]:
        """What `generate` returns for the requests. An exception of the worker is the record's outcome."""
        self.writer.requests([plain(request) for request in requests])
        try:
            results: Sequence[Any] = self._worker.generate(requests)
            self.observer.finish(results)
        except BaseException as error:
            self.writer.finish(f"raised {type(error).__name__}: {error}")
            raise
        self.writer.finish("done")
        return results

    def _add(self, event: Event) -> None:
        dropped = [
            key
            for key, value in event.values.items()
            if type(value) is not int and not kept(key, value, self._content)
        ]
        if dropped:
            values = dict(event.values)
            for key in dropped:
                del values[key]
            event = dataclasses.replace(event, values=values)
        self.writer.add(event)

    def _ask(self, event: Event) -> Tokens:
        self._add(event)
        return {}


def _settings(settings: Any) -> dict[str, Any]:
    tree = plain(settings)
    return dict(tree.fields) if isinstance(tree, Record) else {}


def machine() -> dict[str, str]:
    """What a record says of where it was made."""
    torch = sys.modules.get("torch")
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(getattr(torch, "__version__", "-")),
    }
