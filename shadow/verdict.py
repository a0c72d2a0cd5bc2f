"""From what a run compared and found to a report: verdict, first divergence, counts by kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from reports import Check, Fact, Finding, Level, Picture, Report, Status, Table, Verdict
from shadow.diff import Mismatch, Nature
from shadow.lockstep import Outcome
from shadow.messages import Done
from shadow.numerics import RowScore
from shadow.observation import Kind, Severity
from shadow.pictures.draw import modules
from shadow.tally import Tally


class Exit(IntEnum):
    """Exit codes of `shadow`, worst first where several apply: 2, 1, 3, 0."""

    EQUAL = 0
    DIVERGENCE = 1
    HARNESS = 2
    COVERAGE = 3
    USAGE = 64

    @property
    def status(self) -> Status:
        """What a report says that ends with this code."""
        return {
            Exit.EQUAL: Status.PASS,
            Exit.DIVERGENCE: Status.FAIL,
            Exit.COVERAGE: Status.SHORT,
        }.get(self, Status.ERROR)


@dataclass(frozen=True)
class Circumstances:
    """What was compared with what, for the report. `same_code`: an A/A run, which says nothing about a change."""

    legacy: str
    candidate: str
    same_code: bool = False
    facts: tuple[Fact, ...] = ()
    seconds: float = 0.0


_HOW_TO_COVER = {
    Kind.BOUNDARY: "no page boundary was reached: generate more tokens or use a smaller --page-size",
    Kind.KV: "no decode step was observed: the requests must generate more than one token",
    Kind.PAGE_TABLE: "no decode step was observed: the requests must generate more than one token",
}


def exit_code(tally: Tally, outcome: Outcome) -> Exit:
    if outcome.trouble is not None:
        return Exit.HARNESS
    if tally.total:
        return Exit.DIVERGENCE
    return Exit.COVERAGE if tally.unseen else Exit.EQUAL


def where(mismatch: Mismatch) -> str:
    """Coordinates in words: rank, step, sequence, layer, field."""
    parts = [] if mismatch.rank is None else [f"rank {mismatch.rank}"]
    parts.append(f"step {mismatch.step}")
    if mismatch.sequence is not None:
        parts.append(f"sequence {mismatch.sequence}")
    if mismatch.layer is not None:
        parts.append(f"layer {mismatch.layer}")
    return ", ".join([*parts, f"field {mismatch.field}"])


_SUBJECT = {
    Kind.INVARIANT: "what must hold on either side alone",
    Kind.SCHEDULE: "the next thing to happen",
    Kind.EFFECTS: "what was done since the last event",
    Kind.LAUNCH: "how the forward was started",
    Kind.BINDING: "what is bound on the attention wrapper as the forward begins",
    Kind.SEQUENCE: "a field of a sequence",
    Kind.PAGE_TABLE: "who owns which page, or how much of it is live,",
    Kind.FREE_LIST: "the list of free pages",
    Kind.HYGIENE: "what nobody reads",
    Kind.PLAN: "what attention reads, or where it writes,",
    Kind.HOST_KV: "the content of host KV pages",
    Kind.STATE: "a recurrent state",
    Kind.KV: "the content of live KV pages",
    Kind.WRITE_SET: "the set of places that the forward wrote",
    Kind.PENDING: "what is on its way to the host",
    Kind.LAYER: "the output of a layer",
    Kind.BOUNDARY: "what rank 0 decides, or decides from,",
    Kind.POLICY: "what the step policy did, decided, or decided from,",
    Kind.LOGITS: "a row of logits",
    Kind.TOKENS: "a selected token",
    Kind.RESULT: "what generate() returned",
    Kind.OUTCOME: "how the run ends",
}


def finding_of(mismatch: Mismatch) -> Finding:
    """What differs, where, and both values."""
    nature = "" if mismatch.nature is Nature.VALUE else f" ({mismatch.nature.value})"
    message = f"{_SUBJECT[mismatch.kind]} differs{nature} at {mismatch.point.value}"
    if mismatch.kind is Kind.INVARIANT:
        message = f"{_SUBJECT[mismatch.kind]} does not, at {mismatch.point.value}"
    if mismatch.severity is not Severity.LIVE:
        message += f" [{mismatch.severity.value}]"
    if mismatch.detail:
        message += f", {mismatch.detail}"
    score = mismatch.score
    if score is not None:
        message += f": relative L2 {score.relative_l2:.3g}, max abs {score.max_abs:.3g}, {score.differing:,} elements"
        if isinstance(score, RowScore):
            message += ", same argmax" if score.argmax[0] == score.argmax[1] else ", other argmax"
    rank = () if mismatch.rank is None else (Fact("rank", str(mismatch.rank)),)
    where = (
        *rank,
        Fact("step", f"{mismatch.step}"),
        Fact("sequence", mismatch.sequence or "-"),
        Fact("layer", "-" if mismatch.layer is None else str(mismatch.layer)),
        Fact("field", mismatch.field),
    )
    level = Level.WARNING if mismatch.severity is Severity.HYGIENE else Level.ERROR
    return Finding(mismatch.kind.value, level, message, where, mismatch.legacy, mismatch.candidate)


def _check(kind: Kind, tally: Tally) -> Check:
    compared, differing = tally.compared[kind], tally.differing[kind]
    if differing:
        detail = f"{differing:,} differ, the first at {where(tally.first_of_kind[kind])}"
        harmless = differing == tally.hygiene[kind] and not tally.strict_hygiene
        return Check(kind.value, Status.PASS if harmless else Status.FAIL, compared, detail)
    if not compared:
        return Check(kind.value, Status.SHORT, 0, _HOW_TO_COVER.get(kind, "nothing was compared"))
    return Check(kind.value, Status.PASS, compared)


def _headline(code: Exit, tally: Tally, outcome: Outcome) -> str:
    steps = max((done.decode_steps for done in outcome.done if done is not None), default=None)
    match code:
        case Exit.HARNESS:
            assert outcome.trouble is not None
            return f"No verdict: {outcome.trouble.message}"
        case Exit.DIVERGENCE:
            assert tally.first is not None
            return f"Diverged at {where(tally.first)} ({tally.total:,} values differ)"
        case Exit.COVERAGE:
            return f"Coverage short: nothing compared of {', '.join(kind.value for kind in tally.unseen)}"
    unread = f"; {tally.differences:,} that nobody reads differ" if tally.differences else ""
    return f"Equal: {tally.compared.total():,} values over {steps} decode steps{unread}"


def _timings(outcome: Outcome) -> tuple[Table, ...]:
    if None in outcome.done:
        return ()

    def row(name: str, done: Done) -> tuple[str, ...]:
        steps = max(1, done.decode_steps)
        times = (done.forward_seconds, done.observe_seconds, done.wait_seconds)
        return (name, str(done.decode_steps), *(f"{1000 * seconds / steps:.1f}" for seconds in times))

    rows = tuple(
        row(name, done)
        for name, done in zip(("legacy", "candidate"), outcome.done, strict=True)
        if done is not None
    )
    columns = ("side", "decode steps", "forward ms/step", "observing ms/step", "waiting ms/step")
    return (Table("Time", columns, rows),)


def _facts(circumstances: Circumstances, tally: Tally, outcome: Outcome) -> tuple[Fact, ...]:
    facts = [*circumstances.facts]
    for name, hello in zip(("legacy", "candidate"), outcome.hello, strict=True):
        if hello is not None:
            facts.append(Fact(f"{name} worker", f"{hello.worker_file} (sha256 {hello.worker_sha256[:12]})"))
            if hello.refused_lines:
                facts.append(Fact(f"{name} refused", f"{hello.refused_lines} lines of the requests file"))
    for name, done in zip(("legacy", "candidate"), outcome.done, strict=True):
        if done is not None and done.gates:
            facts.append(Fact(f"{name} gates", done.gates))
    first = outcome.hello[0]
    if first is not None and first.unobservable:
        why = "; ".join(f"{kind} ({reason})" for kind, reason in sorted(first.unobservable.items()))
        facts.append(Fact("this worker has no", why))
    if first is not None:
        facts += [Fact("requests", str(first.requests)), Fact("torch", first.torch_version)]
    points = ", ".join(f"{count} x {point.value}" for point, count in tally.points.items())
    facts.append(Fact("observed", points or "nothing"))
    if tally.forced_tokens:
        facts.append(Fact("teacher-forced", f"{tally.forced_tokens} tokens of the candidate"))
    if tally.opaque:
        facts.append(Fact("seen by type only", ", ".join(sorted(tally.opaque))))
    return tuple(facts)


def _invariants(tally: Tally) -> tuple[Table, ...]:
    """How often each was looked at on the candidate."""
    rows = tuple((name, f"{count:,}") for name, count in sorted(tally.checked.items()))
    return (Table("Invariants of the candidate", ("invariant", "looked at"), rows),) if rows else ()


def _modules(outcome: Outcome) -> tuple[Table, ...]:
    ours, theirs = outcome.done
    if ours is None or theirs is None or not ours.modules:
        return ()
    return (modules(ours.modules, theirs.modules),)


def build_report(
    circumstances: Circumstances,
    tally: Tally,
    outcome: Outcome,
    account: tuple[str, ...] = (),
    pictures: tuple[Picture, ...] = (),
) -> Report:
    """The report of one run; its verdict carries the exit code. `account`: how a divergence came about."""
    code = exit_code(tally, outcome)
    first = sorted(tally.kept, key=lambda mismatch: not tally.counts(mismatch))
    findings = [finding_of(mismatch) for mismatch in first]
    total = tally.differences
    if outcome.trouble is not None:
        message = outcome.trouble.message
        findings.insert(0, Finding("harness", Level.ERROR, message, hint=outcome.trouble.detail or None))
        total += 1
    facts = (Fact("legacy", circumstances.legacy), Fact("candidate", circumstances.candidate))
    trace = outcome.candidate_traceback
    headline = _headline(code, tally, outcome)
    if circumstances.same_code and code is Exit.EQUAL:
        headline += "; A/A run: both trees hold the same code"
    return Report(
        title="shadow compare",
        verdict=Verdict(code.status, int(code), headline),
        facts=facts + _facts(circumstances, tally, outcome),
        checks=tuple(_check(kind, tally) for kind in Kind if kind in tally.required or tally.compared[kind]),
        findings=tuple(findings),
        total_findings=total,
        tables=((Table("How it came about", ("",), tuple((said,) for said in account)),) if account else ())
        + _timings(outcome)
        + ((Table("What the candidate said last", ("text",), ((trace,),)),) if trace else ())
        + _invariants(tally)
        + _modules(outcome),
        pictures=pictures,
        seconds=circumstances.seconds,
        sides=("legacy", "candidate"),
    )
