"""The gate: there in its phase and gone after it, with exact signatures, an owner and an age."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.check.model import Finding, Place, Seen, many
from migration.check.phase import uses
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.code.structure import FunctionNode, Method
from migration.inverse.fold import stubs_of
from migration.move.others import LEGACY
from migration.recipe_checklist import Item


def gate(subject: Subject, item: Item) -> Seen:
    """Absent while only ported, whole while gated, gone without a trace after the clean-up."""
    look = {"port": _unwired, "gate": _whole, "cleanup": _gone}[subject.phase]
    return look(subject)


def _unwired(subject: Subject) -> Seen:
    recipe = subject.recipe
    found = []
    for word in dict.fromkeys((recipe.handler_class, recipe.served[1], recipe.gate_name, *recipe.switches)):
        if (node := uses(subject.worker, word)) is not None:
            message = f"{word} is used by the class's file before the gate"
            found.append(Finding("MG631", message, subject.at_worker(node), word))
    found += _legacy_left(subject)
    return Seen(
        tuple(found), 4 + len(subject.shape.methods), (Place(recipe.source_file, 1),), "nothing is wired"
    )


def _legacy_left(subject: Subject) -> Iterator[Finding]:
    for method in subject.legacy.values():
        yield Finding(
            "MG631", f"{method.name} is there without a gate", subject.at_worker(method.node), method.name
        )


def _whole(subject: Subject) -> Seen:
    """Each method of the handler has its gate, and each gate is the two-way switch that `migrate gate` writes."""
    recipe = subject.recipe
    names = {method.name for method in subject.methods}
    found = []
    for name in sorted(names - subject.pairs.keys()):
        method = next(m for m in subject.methods if m.name == name)
        if name in subject.legacy or _in_class(subject, name) is not None:
            found.append(Finding("MG631", f"{name} has no gate", subject.at(method.node), name))
    for name in sorted(subject.legacy.keys() - names):
        method = subject.legacy[name]
        found.append(
            Finding(
                "MG631",
                f"{method.name} has no counterpart in the handler",
                subject.at_worker(method.node),
                name,
            )
        )
    for name, (front, legacy) in subject.pairs.items():
        if fault := _gate_fault(recipe.gate_name, name, front.node, legacy.name):
            found.append(Finding("MG631", f"the gate of {name} {fault}", subject.at_worker(front.node), name))
    switch = _gate_object(subject)
    if switch is None:
        found.append(
            Finding(
                "MG631",
                f"{recipe.gate_name} is not made in the module",
                Place(recipe.source_file, 1),
                recipe.gate_name,
            )
        )
    evidence = () if switch is None else (subject.at_worker(switch),)
    note = f"{many(len(subject.pairs), 'gate')} on {recipe.prefix}_NATIVE and {recipe.prefix}_COMPARE"
    return Seen(tuple(found), len(subject.pairs) + len(names), evidence, note)


def _in_class(subject: Subject, name: str) -> Method | None:
    return stubs_of(subject.recipe, subject.shape, [name]).get(name)


def _gate_fault(gate_name: str, name: str, node: FunctionNode, legacy: str) -> str:
    """What makes it something else than a switch: an assert, a second statement, a call of something else."""
    body = [
        part
        for part in node.body
        if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
    ]
    if len(body) != 2 or not isinstance(body[0], ast.If) or not isinstance(body[1], ast.Return):
        return "is more than `if gate.on: return gate.run(...)` and the legacy call"
    if ast.unparse(body[0].test) != f"{gate_name}.on" or body[0].orelse or len(body[0].body) != 1:
        return f"does not ask {gate_name}.on alone"
    inner = ast.unparse(body[0].body[0])
    if f"{gate_name}.run" not in inner or f"'{name}'" not in inner:
        return f"does not run {name}"
    return "" if f".{legacy}(" in ast.unparse(body[1]) else f"does not call {legacy}"


def _gate_object(subject: Subject) -> ast.stmt | None:
    for node in subject.worker.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == subject.recipe.gate_name:
            return node
    return None


def _gone(subject: Subject) -> Seen:
    recipe = subject.recipe
    found = [
        Finding("MG631", f"{m.name} is left", subject.at_worker(m.node), m.name)
        for m in subject.legacy.values()
        if m.name.removeprefix(LEGACY) in {method.name for method in subject.methods}
    ]
    words = (recipe.gate_name, *recipe.switches)
    for path, data in subject.production.items():
        source = subject.source(path) if any(word.encode() in data for word in words) else None
        if source is None:
            continue
        for word in words:
            if (node := uses(source, word)) is not None:
                place = Place(path, getattr(node, "lineno", 0))
                found.append(Finding("MG631", f"{word} is still used", place, word))
    note = f"no legacy body, no gate and no flag in {many(len(subject.production), 'file')}"
    return Seen(tuple(found), len(subject.production), (Place(recipe.source_file, 1),), note)


def flag(subject: Subject, item: Item) -> Seen:
    """A gate has an owner and a date, and does not stay longer than it may."""
    checklist, recipe = subject.checklist, subject.recipe
    known = checklist.flag
    place = Place(checklist.path, checklist.line)
    if known is None:
        message = f"{recipe.prefix} has no owner and no date: [checklist.flag] is missing"
        return Seen((Finding("MG636", message, place, recipe.prefix),), 1)
    place = Place(checklist.path, known.line)
    age = (subject.today - known.introduced).days
    found = []
    if age < 0:
        found.append(
            Finding(
                "MG636",
                f"{recipe.prefix} is introduced in the future, {known.introduced}",
                place,
                recipe.prefix,
            )
        )
    if age > known.max_age_days:
        message = (
            f"{recipe.prefix} is {many(age, 'day')} old, {known.max_age_days} are allowed; ask {known.owner}"
        )
        found.append(Finding("MG636", message, place, recipe.prefix))
    return Seen(tuple(found), 1, (place,), f"{recipe.prefix}: {known.owner}, {many(age, 'day')} old")


RULES = (
    Rule("MG631", "gate", "The gate is there in its phase and in no other", gate, always=True),
    Rule("MG636", "flag", "The flag has an owner and is not overdue", flag, always=True, phases=("gate",)),
)
