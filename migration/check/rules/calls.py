"""Items about calls: through which handle, in which order, and what has to follow or come in pairs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.check.model import Finding, Fix, Place, Seen, fix, many
from migration.check.objects import Access, handle_root
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
    Rule("MG622", "paired", "Primary and auxiliary are treated alike", paired),
    Rule("MG624", "mutator", "Attributes are set by the methods that keep their indexes", mutator),
)
