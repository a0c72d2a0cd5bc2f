"""The process of `shadow record`: one worker of one source tree, recorded. `python -m shadow.record.process JSON`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from shadow.record.recorder import Content

CONDITIONS = ("model", "dtype", "device", "threads", "page_size")
"""Fields of EngineOptions that a noise floor depends on, beside the version of torch."""


class Task(msgspec.Struct, frozen=True):
    """What to record. `options` are fields of batchgen.engine.EngineOptions; `facts` go into the record."""

    tree: str
    requests: str
    path: str
    threads: int
    options: dict[str, object]
    content: tuple[Content, ...]
    chunk_events: int
    facts: dict[str, str]


def run(task: Task) -> None:
    """Errors propagate; what was recorded before them is in the file."""
    import torch

    from shadow.child import check_origin, read_requests
    from shadow.record.recorder import Recorder

    tree = Path(task.tree)
    sys.path.insert(0, str(tree))
    torch.set_num_threads(task.threads)
    engine = importlib.import_module("batchgen.engine")
    check_origin(tree)
    options = engine.EngineOptions(**{**task.options, "threads": task.threads})
    worker = engine.build_worker(options)
    wrapper = importlib.import_module("batchgen.attention").AttnWrapperBase
    requests, refused = read_requests(worker, task.requests, None)
    chosen = {name: str(getattr(options, name)) for name in CONDITIONS}
    facts = {**task.facts, **chosen, "torch": version("torch")}
    if refused:
        facts["refused"] = f"{refused} lines of the requests file"
    recorder = Recorder(
        worker,
        wrapper,
        Path(task.path),
        content=frozenset(task.content),
        facts=facts,
        chunk_events=task.chunk_events,
    )
    check_origin(tree)
    recorder.run(requests)
    worker.close()


def main(arguments: Sequence[str]) -> int:
    run(msgspec.json.decode(arguments[0], type=Task))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
