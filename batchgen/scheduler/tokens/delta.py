"""What a token did to its row, as values: each field that changed, and what was sent."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter

from batchgen.scheduler.ports import Receiver
from batchgen.scheduler.sequences import ActiveSeq, Adaptive, RowEvent, Thinking, ToolCalls
from batchgen.scheduler.trace import RowDelta

_PATHS = (
    *("last_token", "remaining", "draws", "finished", "guard_stop", "error"),
    *(f"thinking.{f.name}" for f in fields(Thinking)),
    *(f"tools.{f.name}" for f in fields(ToolCalls)),
    *(f"adaptive.{f.name}" for f in fields(Adaptive)),
)
_values = attrgetter(*_PATHS)
_LENGTHS = ("len(output_tokens)", "len(logprobs)")


@dataclass
class Recorder:
    """Notes what is sent to a receiver, and passes it on."""

    receiver: Receiver
    events: list[str] = field(default_factory=list)

    def send(self, event: RowEvent) -> bool:
        self.events.append(event.kind if event.token is None else f"{event.kind} {event.token}")
        return self.receiver.send(event)


def snapshot(row: ActiveSeq) -> tuple[object, ...]:
    return (*_values(row), len(row.output_tokens), len(row.logprobs))


def delta(row: ActiveSeq, token: int, before: tuple[object, ...], events: list[str]) -> RowDelta:
    after = snapshot(row)
    changed = tuple(
        (path, str(old), str(new))
        for path, old, new in zip(_PATHS + _LENGTHS, before, after, strict=True)
        if old != new
    )
    return RowDelta(row.request_id, token, tuple(events), changed)
