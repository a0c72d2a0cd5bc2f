"""The process of `shadow record`: one worker of one source tree, recorded. `python -m shadow.record.process JSON`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from shadow.record.recorder import Content

CONDITIONS = ("model", "dtype", "device", "threads", "page_size")
"""Fields of EngineOptions that a noise floor depends on, beside the version of torch."""


class Task(msgspec.Struct, frozen=True):
    """What to record. `options` are fields of batchgen.engine.EngineOptions; `facts` go into the record.

    Of the step policy alone: which known `defects` are switched on; beside what its steps do, whether the `questions`
    to its planners are recorded, or what each token did to its row.
    """

    tree: str
    requests: str
    path: str
    threads: int
    options: dict[str, object]
    content: tuple[Content, ...]
    chunk_events: int
    facts: dict[str, str]
    defects: tuple[str, ...] = ()
    questions: bool = True


def run(task: Task) -> None:
    """Errors propagate; what was recorded before them is in the file."""
    from shadow.child import build, check_origin, read_requests
    from shadow.record.policy_recorder import POLICY, PolicyRecorder
    from shadow.record.recorder import Recorder

    tree = Path(task.tree)
    built = build(tree, task.options, task.threads)
    step_policy = task.options.get("policy") == POLICY
    # A tree from before the step policy has no such default.
    defaults = {"policy": POLICY} if step_policy else {}
    requests, refused = read_requests(built.worker, task.requests, None, **defaults)
    chosen = {name: str(getattr(built.options, name)) for name in CONDITIONS}
    facts = {**task.facts, **chosen, "torch": version("torch")}
    if refused:
        facts["refused"] = f"{refused} lines of the requests file"
    recorder: Recorder | PolicyRecorder
    if step_policy:
        recorder = PolicyRecorder(
            built.worker,
            Path(task.path),
            facts=facts,
            chunk_events=task.chunk_events,
            defects=task.defects,
            questions=task.questions,
        )
    else:
        recorder = Recorder(
            built.worker,
            built.wrapper,
            Path(task.path),
            content=frozenset(task.content),
            facts=facts,
            chunk_events=task.chunk_events,
        )
    check_origin(tree)
    recorder.run(requests)
    built.worker.close()


def main(arguments: Sequence[str]) -> int:
    run(msgspec.json.decode(arguments[0], type=Task))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
