"""Items about the ways through a function: which call comes first, and what has to follow on each of them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection

from migration.check.model import Finding, Place, Seen, many
from migration.check.objects import Objects, as_way
from migration.check.order import Event, Events, Found, follow
from migration.check.rules.base import Rule
from migration.check.rules.calls import called
from migration.check.subject import Subject
from migration.code.structure import FunctionNode
from migration.recipe_checklist import Item


def synced_back(subject: Subject, item: Item) -> Seen:
    """After the call the attribute of the worker is assigned on every way on which the function ends.

    A method of the handler may leave that to the class: then each of its callers there has to do it.
    """
    call, target = item.text("call"), as_way(item.text("attribute"))
    own = [_settled(subject.objects, node, {call}, target) for _, node in subject.functions()]
    open_in = {node.name for (_, node), (_, left) in zip(subject.functions(), own, strict=True) if left}
    callers = {
        method.name: _settled(subject.worker_objects, method.node, {call, *open_in}, target)
        for method in subject.shape.methods
        if method.name not in (call, *open_in)
    }
    left_there = {called(node): node for _, left in callers.values() for node in left}
    called_there = {called(node) for calls, _ in callers.values() for node in calls}
    found: list[Finding] = []
    evidence: list[Place] = []
    looked = 0
    for (symbol, function), (calls, left) in zip(subject.functions(), own, strict=True):
        looked += len(calls)
        evidence += [subject.at(node) for node in calls - left]
        name = function.name
        if name not in called_there or name in left_there:
            also = (
                f", nor is it by line {left_there[name].lineno} of the class's file"
                if name in left_there
                else ""
            )
            found += [_not_synced(item, subject.at(node), symbol, also) for node in left]
    for name, (calls, left) in callers.items():
        looked += len(calls)
        evidence += [subject.at_worker(node) for node in calls - left]
        symbol = f"{subject.recipe.source_class}.{name}"
        found += [
            _not_synced(item, subject.at_worker(node), symbol, "") for node in left if called(node) == call
        ]
    ordered = sorted(evidence, key=lambda place: (place.path != subject.handler.path, place.line))
    return Seen(tuple(found), looked, tuple(ordered), f"{many(looked, 'call')} of {call}()")


def _not_synced(item: Item, place: Place, symbol: str, also: str) -> Finding:
    message = f"{item.text('attribute')} is not assigned after {item.text('call')}() on every way{also}"
    return Finding("MG620", message, place, symbol)


def _settled(
    objects: Objects, function: FunctionNode, names: set[str], target: tuple[str, ...]
) -> tuple[set[ast.Call], set[ast.Call]]:
    """(calls of any of the names, those after which some way out does not assign the attribute)."""
    if not any(called(node) in names for node in ast.walk(function)) or function.name in names:
        return set(), set()
    assigned = {
        id(access.node)
        for access in objects.accesses(function)
        if access.kind == "write" and target in access.ways
    }

    def events(node: ast.AST) -> Event | None:
        if id(node) in assigned:
            return Event(settles=True)
        return Event(begins=True) if called(node) in names else None

    seen = follow(function, events)
    calls = {node for node in seen.events if isinstance(node, ast.Call) and called(node) in names}
    return calls, calls & seen.unsettled


def call_order(subject: Subject, item: Item) -> Seen:
    """The one call has been made before the other on every way."""
    first, then = item.text("first"), item.text("then")

    def events(node: ast.AST) -> Event | None:
        name = called(node)
        if name == then:
            return Event(needs=first)
        return Event(does=first) if name == first else None

    names = {then, first} if item.data.get("where_both", False) else {then}
    found, evidence, looked = _judged(
        subject, names, events, then, lambda seen: seen.early, f"{then}() may run although {first}() has not"
    )
    findings = tuple(Finding("MG623", *one) for one in found)
    return Seen(findings, looked, evidence, f"{many(looked, 'call')} of {then}(), each after {first}()")


def followed_by(subject: Subject, item: Item) -> Seen:
    """After the one call the other is made on every way on which the function ends."""
    call, by = item.text("call"), item.text("by")

    def events(node: ast.AST) -> Event | None:
        name = called(node)
        if name == by:
            return Event(settles=True)
        return Event(begins=True) if name == call else None

    found, evidence, looked = _judged(
        subject,
        {call},
        events,
        call,
        lambda seen: seen.unsettled,
        f"{by}() is not called after {call}() on every way",
    )
    findings = tuple(Finding("MG625", *one) for one in found)
    return Seen(findings, looked, evidence, f"{many(looked, 'call')} of {call}(), each with {by}() behind it")


def _judged(
    subject: Subject,
    names: set[str],
    events: Events,
    call: str,
    wrong: Callable[[Found], Collection[ast.AST]],
    message: str,
) -> tuple[list[tuple[str, Place, str]], tuple[Place, ...], int]:
    """The calls of `call`, in functions that call all of `names`: (message, place, symbol) of those that are
    `wrong`, the places of the others, and how many there are."""
    found: list[tuple[str, Place, str]] = []
    evidence: list[Place] = []
    for symbol, function in subject.functions():
        if not names.issubset(called(node) for node in ast.walk(function)):
            continue
        seen = follow(function, events)
        for node in seen.events:
            if called(node) != call:
                continue
            place = subject.at(node)
            if node in wrong(seen):
                found.append((message, place, symbol))
            else:
                evidence.append(place)
    return found, tuple(evidence), len(found) + len(evidence)


RULES = (
    Rule("MG620", "synced-back", "What the call made is handed back to the worker", synced_back),
    Rule("MG623", "call-order", "One call comes before the other", call_order),
    Rule("MG625", "followed-by", "One call has another behind it", followed_by),
)
