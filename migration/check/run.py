"""All rules on one subject: what they found, less what is waived, as the lines of the checklist."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from migration.check.model import Check, Finding, Place, Report, Seen, Status, Waived
from migration.check.rules import RULES
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.recipe_checklist import Item, Waiver

#: What a rule that always applies is asked with where the recipe has no item for it.
_PLAIN = Item("")


def check(subject: Subject, found_by: str) -> Report:
    """`found_by` says how the phase was found."""
    asked = [(rule, item) for rule in RULES for item in _items(subject, rule)]
    raw = [_ask(subject, rule, item) for rule, item in asked]
    checks, used = _waive(subject, raw)
    checks += [_expiry(subject, used)] if subject.checklist.waivers else []
    checks.sort(key=lambda check: (not check.line, check.line))
    return Report(
        subject.recipe.name,
        subject.phase,
        found_by,
        subject.checklist.path,
        Place(subject.handler.path, subject.handler_shape.node.lineno),
        tuple(checks),
        tuple(_unused(subject, used, checks)),
    )


def _items(subject: Subject, rule: Rule) -> Iterable[Item]:
    items = [item for item in subject.checklist.items if item.rule == rule.name]
    return items or ([_PLAIN] if rule.always else [])


def _ask(subject: Subject, rule: Rule, item: Item) -> Check:
    title = item.title or rule.title
    phases = [phase for phase in rule.phases if phase in item.phases]
    if subject.phase not in phases:
        note = f"for the phase {' and '.join(phases)}"
        return Check(rule.code, rule.name, title, "absent", 0, note, line=item.line)
    seen = rule.look(subject, item)
    status: Status = "failed" if seen.findings else "passed"
    if not seen.looked and not seen.findings:
        note = seen.note
        if subject.to_come:
            note += f"; {len(subject.to_come)} methods are to come with the next parts of the port"
        if item is _PLAIN or rule.always or subject.to_come:
            return Check(rule.code, rule.name, title, "absent", 0, note, line=item.line)
        seen = dataclasses.replace(seen, findings=(_nothing(subject, rule, item, seen),))
        status = "unseen"
    return Check(
        rule.code,
        rule.name,
        title,
        status,
        seen.looked,
        seen.note,
        seen.evidence,
        seen.findings,
        line=item.line,
    )


def _nothing(subject: Subject, rule: Rule, item: Item, seen: Seen) -> Finding:
    message = f"{rule.name} looked at nothing: {seen.note}"
    return Finding("MG601", message, Place(subject.checklist.path, item.line), rule.name)


def _waive(subject: Subject, checks: list[Check]) -> tuple[list[Check], set[Waiver]]:
    """The checks with waived findings set aside, and the waivers that matched something."""
    used: set[Waiver] = set()
    result = []
    for one in checks:
        kept: list[Finding] = []
        waived: list[Waived] = []
        for finding in one.findings:
            matching = [w for w in subject.checklist.waivers if _matches(w, one, finding, subject.phase)]
            used.update(matching)
            current = [w for w in matching if w.expires >= subject.today]
            if current:
                waived.append(Waived(finding, current[0]))
            else:
                kept.append(finding)
        status: Status = "waived" if waived and not kept else one.status
        result.append(dataclasses.replace(one, findings=tuple(kept), waived=tuple(waived), status=status))
    return result, used


def _matches(waiver: Waiver, check: Check, finding: Finding, phase: str) -> bool:
    places = {finding.symbol, finding.symbol.rpartition(".")[2], finding.place.path} - {""}
    return phase in waiver.phases and waiver.rule in (check.code, check.rule) and waiver.place in places


def _expiry(subject: Subject, used: set[Waiver]) -> Check:
    """The waivers themselves: none has run out."""
    found = tuple(
        Finding(
            "MG602",
            f"the waiver of {waiver.rule} for {waiver.place} expired on {waiver.expires}: {waiver.reason}",
            Place(subject.checklist.path, waiver.line),
            waiver.place,
        )
        for waiver in subject.checklist.waivers
        if waiver.expires < subject.today
    )
    count = len(subject.checklist.waivers)
    evidence = tuple(Place(subject.checklist.path, waiver.line) for waiver in subject.checklist.waivers)
    status: Status = "failed" if found else "passed"
    return Check(
        "MG602", "waivers", "No waiver has expired", status, count, f"{count} waivers", evidence, found
    )


def _unused(subject: Subject, used: set[Waiver], checks: list[Check]) -> Iterable[Finding]:
    """Waivers that match nothing; one whose rule is for another phase is left alone."""
    ran = {name for one in checks if one.status != "absent" for name in (one.code, one.rule)}
    known = {name for rule in RULES for name in (rule.code, rule.name)}
    for waiver in subject.checklist.waivers:
        idle = waiver.rule in known and waiver.rule not in ran
        if waiver not in used and not idle and subject.phase in waiver.phases:
            message = f"the waiver of {waiver.rule} for {waiver.place} matches nothing"
            yield Finding("MG603", message, Place(subject.checklist.path, waiver.line), waiver.place)
