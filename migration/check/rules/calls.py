"""Items about calls: through which handle, in which order, and what has to follow or come in pairs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.check.model import Finding, Fix, Place, Seen, fix, many
from migration.check.objects import Access, Objects, as_way, handle_root
from migration.check.order import Event, follow
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.code.facts import dotted
from migration.code.source import Edit
from migration.code.structure import FunctionNode
from migration.recipe_checklist import Item


def called(node: ast.AST) -> str:
    """Last name of what a call calls, "" for anything else."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")


def routed_call(subject: Subject, item: Item) -> Seen:
    """A method of the worker is only called through a handle."""
    method, handle, member = item.text("method"), item.text("handle"), item.text("member")
    found: list[Finding] = []
    evidence: list[Place] = []
    for symbol, function in subject.functions():
        for access in subject.objects.accesses(function):
            if (handle_root(handle), member) in access.ways and access.kind in ("call", "read"):
                evidence.append(subject.at(access.node))
            elif access.name == method and not any(way[0] == handle_root(handle) for way in access.ways):
                message = f"{ast.unparse(access.node)} goes past the handle {handle}"
                found.append(
                    Finding("MG619", message, subject.at(access.node), symbol, _routed(subject, access, item))
                )
    note = f"{many(len(evidence), 'call')} of {handle}.{member}, {len(found)} of {method}"
    return Seen(tuple(found), len(found) + len(evidence), tuple(evidence[:3]), note)


def _routed(subject: Subject, access: Access, item: Item) -> Fix | None:
    node = access.node
    if not isinstance(node, ast.Attribute) or node.lineno != node.end_lineno:
        return None
    source = subject.source_of(node)
    start, end = (
        source.offset(node.lineno, node.col_offset),
        source.offset(node.lineno, node.end_col_offset or 0),
    )
    text = f"self._{item.text('handle')}.{item.text('member')}"
    return fix(f"call it through {item.text('handle')}", source, [Edit(start, end, text.encode())])


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
    found: list[Finding] = []
    evidence: list[Place] = []
    looked = 0
    for symbol, function in subject.functions():
        names = {called(node) for node in ast.walk(function)}
        if then not in names or (item.data.get("where_both", False) and first not in names):
            continue

        def events(node: ast.AST) -> Event | None:
            name = called(node)
            if name == then:
                return Event(needs=first)
            return Event(does=first) if name == first else None

        seen = follow(function, events)
        calls = [node for node in seen.events if called(node) == then]
        looked += len(calls)
        for node in calls:
            if node in seen.early:
                message = f"{then}() may run although {first}() has not"
                found.append(Finding("MG623", message, subject.at(node), symbol))
            else:
                evidence.append(subject.at(node))
    return Seen(
        tuple(found), looked, tuple(evidence), f"{many(looked, 'call')} of {then}(), each after {first}()"
    )


def followed_by(subject: Subject, item: Item) -> Seen:
    """After the one call the other is made on every way on which the function ends."""
    call, by = item.text("call"), item.text("by")

    def events(node: ast.AST) -> Event | None:
        name = called(node)
        if name == by:
            return Event(settles=True)
        return Event(begins=True) if name == call else None

    found: list[Finding] = []
    evidence: list[Place] = []
    looked = 0
    for symbol, function in subject.functions():
        seen = follow(function, events)
        calls = [node for node in seen.events if called(node) == call]
        looked += len(calls)
        for node in calls:
            if node in seen.unsettled:
                message = f"{by}() is not called after {call}() on every way"
                found.append(Finding("MG625", message, subject.at(node), symbol))
            else:
                evidence.append(subject.at(node))
    return Seen(
        tuple(found),
        looked,
        tuple(evidence),
        f"{many(looked, 'call')} of {call}(), each with {by}() behind it",
    )


def paired(subject: Subject, item: Item) -> Seen:
    """What is called on the primary object is called on the auxiliary one as well: in the same method, or in
    one of the handler's that it calls."""
    primary, auxiliary = item.text("primary"), item.text("auxiliary")
    wanted = item.texts("members")
    symbols = {
        method.name: f"{part.shape.name}.{method.name}" for part, method in reversed(subject.all_methods)
    }
    uses = {
        name: (_members(subject, node, primary), _members(subject, node, auxiliary))
        for name, node in _own(subject)
    }
    calls = {name: {called(part) for part in ast.walk(node)} & uses.keys() for name, node in _own(subject)}
    found: list[Finding] = []
    evidence: list[Place] = []
    looked = 0
    for name, (of_primary, _) in uses.items():
        reached = _reached(name, calls)
        there = set().union(*(uses[other][1] for other in reached))
        for member, node in of_primary.items():
            if wanted and member not in wanted:
                continue
            looked += 1
            if member in there:
                evidence.append(subject.at(node))
            else:
                message = f"{primary}.{member} has no {auxiliary}.{member} beside it"
                found.append(Finding("MG622", message, subject.at(node), symbols[name]))
    return Seen(
        tuple(found),
        looked,
        tuple(evidence[:3]),
        f"{many(looked, 'use')} of {primary}, each with {auxiliary}",
    )


def _own(subject: Subject) -> Iterator[tuple[str, FunctionNode]]:
    return ((method.name, method.node) for _, method in subject.all_methods)


def _reached(name: str, calls: dict[str, set[str]]) -> set[str]:
    found, queue = {name}, [name]
    for current in queue:
        for other in calls[current] - found:
            found.add(other)
            queue.append(other)
    return found


def _members(subject: Subject, function: FunctionNode, name: str) -> dict[str, ast.AST]:
    """Members that are called on, or written to, the object of that name."""
    found: dict[str, ast.AST] = {}
    for access in subject.objects.accesses(function):
        node = access.node
        if access.kind not in ("call", "write") or not isinstance(node, ast.Attribute):
            continue
        last = dotted(node.value).rpartition(".")[2] or getattr(node.value, "attr", "")
        if last == name or any(way[-1] == name for way in access.owner):
            found.setdefault(access.name, node)
    return found


def mutator(subject: Subject, item: Item) -> Seen:
    """An attribute that has a method to set it is not assigned."""
    methods = dict(item.data["attributes"])
    found: list[Finding] = []
    evidence: list[Place] = []
    for symbol, function in subject.functions():
        for access in subject.objects.accesses(function):
            if access.name in methods and access.kind in ("write", "delete"):
                message = f"{ast.unparse(access.node)} is assigned, not set by {methods[access.name]}()"
                found.append(Finding("MG624", message, subject.at(access.node), symbol))
        for node in ast.walk(function):
            if called(node) in methods.values():
                evidence.append(subject.at(node))
    names = ", ".join(methods)
    looked = len(found) + len(evidence)
    return Seen(
        tuple(found),
        looked,
        tuple(evidence[:3]),
        f"{names}: {many(len(evidence), 'call')}, {many(len(found), 'assignment')}",
    )


RULES = (
    Rule("MG619", "routed-call", "The call goes through its handle", routed_call),
    Rule("MG620", "synced-back", "What the call made is handed back to the worker", synced_back),
    Rule("MG622", "paired", "Primary and auxiliary are treated alike", paired),
    Rule("MG623", "call-order", "One call comes before the other", call_order),
    Rule("MG625", "followed-by", "One call has another behind it", followed_by),
    Rule("MG624", "mutator", "Attributes are set by the methods that keep their indexes", mutator),
)
