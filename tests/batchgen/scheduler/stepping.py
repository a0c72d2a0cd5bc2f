"""One call of `step_decode_only` on rows of a stub device."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchgen.scheduler.ports import SchedCtx, SpillIo
from batchgen.scheduler.sequences import ActiveSeq, PreemptedSeq, SwappedSeq
from batchgen.scheduler.step import step_decode_only
from batchgen.scheduler.trace import StepTrace


@dataclass
class Batch:
    """The three lists, the traces of the steps, and the five special tokens: none."""

    sched: SchedCtx
    active: list[ActiveSeq]
    spill: SpillIo | None = None
    swapped: list[SwappedSeq] = field(default_factory=list)
    preempted: list[PreemptedSeq] = field(default_factory=list)
    traces: list[StepTrace] = field(default_factory=list)
    ids: tuple[int | None, int | None, int | None, int | None, int | None] = (None,) * 5

    def __post_init__(self) -> None:
        self.sched.record = self.traces.append

    def step(self) -> StepTrace:
        step_decode_only(
            self.active,
            *self.ids,
            False,
            self.sched,
            self.spill,
            self.swapped,
            self.preempted,
        )
        return self.traces[-1]

    @property
    def names(self) -> list[str]:
        return [row.request_id for row in self.active]
