"""How effects are told apart, and what a finding's severity does to the verdict."""

from __future__ import annotations

import pickle

import pytest

from shadow.diff import Mismatch, Nature, compare_events
from shadow.lockstep import Outcome
from shadow.observation import Call, Calls, Event, Key, Kind, Point, Severity, Violation, severity
from shadow.pairing import BATCH_ORDER, SAME, Pairing
from shadow.tally import KEPT, Tally
from shadow.verdict import Circumstances, build_report, exit_code

FREE = Call("primary.free", (("a", None),))
GROW = Call("primary.grow", (("a", 2), ("b", 1)))
WAIT = Call("task.wait", (), "x3")


def compared(
    legacy: tuple[Call, ...], candidate: tuple[Call, ...], pairing: Pairing = SAME
) -> tuple[Mismatch, ...]:
    key = Key(Kind.EFFECTS, None, "calls")
    ours, theirs = (Event(Point.DECODE, 3, {key: Calls(calls)}) for calls in (legacy, candidate))
    return compare_events(ours, theirs, pairing).mismatches


@pytest.mark.parametrize(
    ("legacy", "candidate", "nature", "at", "texts"),
    [
        ((FREE, GROW), (GROW, FREE), Nature.ORDER, 0, ("primary.free(a)", "primary.grow(a: 2, b: 1)")),
        ((FREE, WAIT, GROW), (FREE, GROW), Nature.MISSING, 1, ("task.wait(x3)", "primary.grow(a: 2, b: 1)")),
        ((FREE, GROW), (FREE, WAIT, GROW), Nature.EXTRA, 1, ("primary.grow(a: 2, b: 1)", "task.wait(x3)")),
        ((FREE, WAIT), (FREE,), Nature.MISSING, 1, ("task.wait(x3)", "(absent)")),
        ((FREE,), (FREE, WAIT), Nature.EXTRA, 1, ("(absent)", "task.wait(x3)")),
    ],
    ids=["order", "missing in the middle", "extra in the middle", "missing at the end", "extra at the end"],
)
def test_of_effects_that_differ_the_first_is_the_finding(
    legacy: tuple[Call, ...], candidate: tuple[Call, ...], nature: Nature, at: int, texts: tuple[str, str]
) -> None:
    (found,) = compared(legacy, candidate)
    assert (found.nature, found.field, (found.legacy, found.candidate)) == (nature, f"calls[{at}]", texts)


def test_a_number_that_differs_names_its_sequence() -> None:
    (found,) = compared((GROW,), (Call("primary.grow", (("a", 2), ("b", 4))),))
    assert (found.nature, found.sequence) == (Nature.VALUE, "b")
    assert compared((), ()) == () and compared((GROW, WAIT), (GROW, WAIT)) == ()


def test_where_rows_may_be_reordered_calls_may_be_too() -> None:
    other = Call("primary.grow", (("b", 1), ("a", 2)))
    assert compared((FREE, GROW), (other, FREE), BATCH_ORDER) == ()
    assert compared((FREE, GROW), (Call("primary.grow", (("b", 2), ("a", 1))), FREE), BATCH_ORDER)


def test_a_key_travels_as_what_it_is() -> None:
    key = Key(Kind.LAYER, "a", "hidden", 3)
    assert pickle.loads(pickle.dumps(key)) == key and hash(pickle.loads(pickle.dumps(key))) == hash(key)
    assert key != Key(Kind.LAYER, "a", "hidden", 4) and key != Key(Kind.KV, "a", "hidden", 3)


# severity


def mismatch(kind: Kind, how_bad: Severity | None = None) -> Mismatch:
    bad = severity(kind) if how_bad is None else how_bad
    return Mismatch(kind, Nature.VALUE, Point.DECODE, 1, "a", None, "f", "1", "2", severity=bad)


def tally(*findings: Mismatch, strict: bool = False) -> Tally:
    made = Tally(required=frozenset({Kind.KV}), strict_hygiene=strict)
    made.compared[Kind.KV] = 1
    for finding in findings:
        made.find(finding)
    return made


def test_hygiene_alone_is_no_divergence_and_is_shown() -> None:
    seen = tally(mismatch(Kind.HYGIENE), mismatch(Kind.HYGIENE))
    assert (exit_code(seen, Outcome()), seen.total, seen.first) == (0, 0, None)
    report = build_report(Circumstances("x", "y"), seen, Outcome())
    assert report.verdict.exit_code == 0 and len(report.findings) == report.total_findings == 2
    assert "2 that nobody reads differ" in report.verdict.headline
    assert "[hygiene]" in report.findings[0].message


def test_hygiene_counts_where_it_is_asked_for() -> None:
    seen = tally(mismatch(Kind.HYGIENE), strict=True)
    assert exit_code(seen, Outcome()) == 1 and seen.first is seen.kept[0]


@pytest.mark.parametrize("kind", [Kind.FREE_LIST, Kind.HOST_KV, Kind.WRITE_SET, Kind.KV, Kind.EFFECTS])
def test_what_is_live_or_latent_is_a_divergence(kind: Kind) -> None:
    seen = tally(mismatch(Kind.HYGIENE), mismatch(kind))
    assert exit_code(seen, Outcome()) == 1
    assert seen.first is not None and seen.first.kind is kind
    report = build_report(Circumstances("x", "y"), seen, Outcome())
    assert report.findings[0].code == kind.value, "a divergence is shown before hygiene that came earlier"
    latent = kind in (Kind.FREE_LIST, Kind.HOST_KV, Kind.WRITE_SET)
    assert ("[latent]" in report.findings[0].message) is latent


def test_the_first_divergence_is_kept_behind_any_amount_of_hygiene() -> None:
    seen = tally(*[mismatch(Kind.HYGIENE)] * (KEPT + 5), mismatch(Kind.KV))
    assert len(seen.kept) == KEPT and seen.first is not None and seen.first.kind is Kind.KV
    assert (seen.total, seen.differences) == (1, KEPT + 6)


def test_what_a_forward_did_is_named_after_what_it_found() -> None:
    key = Key(Kind.KV, "a", "primary.k")
    early, late = Violation("row-order", "x", "a"), Violation("poison", "y", "a", late=True)
    hygiene = Violation("trailing-columns", "z", severity=Severity.HYGIENE)
    ours = Event(Point.DECODE, 0, {key: 1})
    theirs = Event(Point.DECODE, 0, {key: 2}, (late, early, hygiene))
    found = compare_events(ours, theirs).mismatches
    assert [f.field for f in found] == ["row-order", "trailing-columns", "primary.k", "poison"]
    assert found[1].severity is Severity.HYGIENE
