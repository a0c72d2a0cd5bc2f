"""Records a run of the step policy: each question to its planners, each step as its trace has it, and the results.

The engine's own hooks are used; nothing of it is wrapped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shadow.observation import Event, Key, Kind, Observed, Point, Rows
from shadow.plain import plain
from shadow.record.questions import question_values
from shadow.record.recorder import machine
from shadow.record.tables import Header
from shadow.record.values import tree_bytes
from shadow.record.writer import CHUNK_EVENTS, RecordWriter

POLICY = "step"


class PolicyRecorder:
    """Of a worker with `loop.sched` and `generate`; `run` once. RecordError where `path` exists."""

    def __init__(
        self,
        worker: Any,
        path: Path,
        *,
        facts: Mapping[str, str],
        chunk_events: int = CHUNK_EVENTS,
        defects: Sequence[str] = (),
        questions: bool = True,
    ) -> None:
        """`defects`: switches of the worker's `Quirks` that are turned on. Without `questions` what each token did to
        its row is recorded instead: what was sent of it, and each field that it changed."""
        self._worker = worker
        sched = worker.loop.sched
        sched.quirks = dataclasses.replace(sched.quirks, **dict.fromkeys(defects, True))
        settings = {"policy": POLICY, "page_size": sched.io.device.block_size}
        known = [name for name, on in dataclasses.asdict(sched.quirks).items() if on]
        said = {"known defects": ", ".join(known) or "none"}
        self.writer = RecordWriter(
            path,
            Header(
                chunk_events=chunk_events,
                content=(),
                gpus_per_node=1,
                world_size=1,
                settings=tree_bytes(settings),
                facts=tuple({**machine(), **facts, **said}.items()),
            ),
        )
        sched.record = self._stepped
        if questions:
            sched.planned = self._planned
        else:
            sched.levers = dataclasses.replace(sched.levers, trace_rows=True)
        self._sched = sched

    def run(self, requests: Sequence[Any]) -> Sequence[Any]:
        """What `generate` returns for the requests. An exception of the worker is the record's outcome."""
        self.writer.requests([plain(request) for request in requests])
        try:
            results: Sequence[Any] = self._worker.generate(requests)
        except BaseException as error:
            self.writer.finish(f"raised {type(error).__name__}: {error}")
            raise
        values: dict[Key, Observed] = {
            Key(Kind.RESULT, None, "order"): Rows(tuple(str(r.custom_id) for r in results))
        }
        values |= {Key(Kind.RESULT, str(r.custom_id), "result"): plain(r) for r in results}
        self.writer.add(Event(Point.END, self._sched.steps, values))
        self.writer.finish("done")
        return results

    def _planned(self, planned: Any) -> None:
        values = question_values(planned.planner, planned.inputs, planned.plan)
        self.writer.add(Event(Point.PLANNED, self._sched.steps, values))

    def _stepped(self, trace: Any) -> None:
        if trace.order is None or not trace.order.ids:
            return
        ids = trace.launches[-1].ids if trace.launches else ()
        values: dict[Key, Observed] = {
            Key(Kind.TOKENS, name, "token"): token for name, token in zip(ids, trace.tokens, strict=False)
        }
        for name in ("order", "launches", "victims", "outcome", "drained", "buffer"):
            values[Key(Kind.POLICY, None, name)] = plain(getattr(trace, name))
        for row in trace.rows:
            values[Key(Kind.POLICY, row.request_id, "events")] = row.events
            values[Key(Kind.POLICY, row.request_id, "changed")] = plain(row.changed)
        self.writer.add(Event(Point.DECODE, trace.step, values))
