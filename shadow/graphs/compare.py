"""Runs one worker, hears what its replays and their eager runs differ in, and reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from reports import Fact, Report
from shadow.alone import run_alone
from shadow.graphs.messages import Begun, Ended, Replayed, Said, Task
from shadow.lockstep import Outcome, Trouble
from shadow.messages import Done
from shadow.noise.judging import Judge
from shadow.noise.report import with_noise
from shadow.observation import Kind, Point
from shadow.tally import Tally
from shadow.verdict import Circumstances, build_report

REQUIRED = frozenset((Kind.LOGITS, Kind.KV))


@dataclass
class _Heard:
    """What the process has said so far. `judge`: None where bits decide."""

    judge: Judge | None
    on_step: Callable[[int, int], None]
    tally: Tally = field(default_factory=lambda: Tally(required=REQUIRED))
    begun: Begun | None = None
    ended: Ended | None = None
    replays: int = 0

    def __call__(self, said: Said) -> None:
        match said:
            case Begun():
                self.begun = said
            case Ended():
                self.ended = said
            case Replayed(step, comparison):
                found = comparison.mismatches
                if self.judge is not None:
                    judged = map(self.judge.number, found)
                    found = tuple(one for one in judged if one is not None)
                self.replays += 1
                self.tally.points[Point.DECODE] += 1
                self.tally.compared.update(comparison.compared)
                for one in found:
                    self.tally.find(one)
                self.on_step(step, self.tally.total)


def compare_replays(
    task: Task,
    *,
    environment: Mapping[str, str] | None = None,
    judge: Judge | None = None,
    source: str = "",
    name: str = "",
    facts: tuple[Fact, ...] = (),
    on_step: Callable[[int, int], None] = lambda step, differing: None,
) -> Report:
    """The report; its verdict carries the exit code. `source`: where the judge's bounds come from."""
    started = time.monotonic()
    heard = _Heard(judge, on_step)
    trouble = run_alone(
        "shadow.graphs.process", task, task.threads, environment=environment or {}, hear=heard
    )
    steps = 0 if heard.ended is None else heard.ended.forwards.total()
    done = Done(steps, 0.0, 0.0, 0.0)
    outcome = Outcome(done=(done, done))
    if trouble is not None:
        outcome = Outcome(trouble=Trouble(f"the worker {trouble}"))
    circumstances = Circumstances(name or task.tree, "", seconds=time.monotonic() - started)
    report = build_report(circumstances, heard.tally, outcome)
    report = replace(
        report,
        title="shadow graphs",
        facts=(Fact("worker", circumstances.legacy), *facts, *_facts(heard), *report.facts[2:]),
        tables=(),
        sides=("eager", "replay"),
    )
    if judge is not None:
        return with_noise(report, judge, source)
    return replace(report, facts=(*report.facts, Fact("bounds", "0: bit by bit, no noise floor given")))


def _facts(heard: _Heard) -> tuple[Fact, ...]:
    facts = []
    if heard.begun is not None:
        begun = heard.begun
        compared = "by one kernel, read a step late" if begun.waits is None else f"by torch ({begun.waits})"
        facts += [
            Fact("compared", f"on {begun.device}, {compared}"),
            Fact("requests", str(begun.requests)),
            Fact("torch", begun.torch),
        ]
        if begun.refused:
            facts.append(Fact("refused", f"{begun.refused} lines of the requests file"))
    if heard.ended is not None:
        forwards = ", ".join(f"{count:,} x {how}" for how, count in heard.ended.forwards.most_common())
        facts.append(Fact("decode forwards", f"{forwards or 'none'}; {heard.replays:,} run again eagerly"))
        if heard.begun is not None and heard.begun.waits is None:
            facts.append(Fact("waited for the device", f"{heard.ended.waited:,} times, to compare"))
    return tuple(facts)
