"""Items about what there may be one of: the place that makes an object, the caller of an effect, the formula."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.check.model import Finding, Place, Seen, many
from migration.check.objects import WORKER, Objects
from migration.check.rules.base import Rule
from migration.check.rules.calls import called
from migration.check.subject import Subject
from migration.code.structure import FunctionNode
from migration.move.moving import moved_name
from migration.move.others import LEGACY
from migration.recipe_checklist import Item


def _once(subject: Subject) -> Iterator[tuple[str, FunctionNode, str, Objects]]:
    """Functions of handler and class, those without that have a copy in the handler: (name, node, path, objects)."""
    moved = {method.name for method in subject.methods}
    for symbol, node in subject.functions():
        yield symbol, node, subject.source_of(node).path, subject.objects
    for method in subject.shape.methods:
        if moved_name(method, subject.recipe.source_class).removeprefix(LEGACY) not in moved:
            symbol = f"{subject.recipe.source_class}.{method.name}"
            yield symbol, method.node, subject.worker.path, subject.worker_objects


def made_once(subject: Subject, item: Item) -> Seen:
    """An attribute of the worker gets an object in one function only; None is no object."""
    found: list[Finding] = []
    evidence: list[Place] = []
    for name in item.texts("attributes"):
        makers: dict[str, Place] = {}
        for symbol, node, path, objects in _once(subject):
            emptied = {id(target) for target in _set_to_none(node)}
            for access in objects.accesses(node):
                if (
                    access.kind == "write"
                    and (WORKER, name) in access.ways
                    and id(access.node) not in emptied
                ):
                    makers.setdefault(symbol, Place(path, access.node.lineno))
        places = list(makers.items())
        evidence += [place for _, place in places[:1]]
        for symbol, place in places[1:]:
            message = f"{name} is made here and by {places[0][0]}"
            found.append(Finding("MG626", message, place, symbol))
    looked = len(found) + len(evidence)
    return Seen(
        tuple(found), looked, tuple(evidence), f"{many(len(evidence), 'attribute')}, each made in one place"
    )


def _set_to_none(node: FunctionNode) -> Iterator[ast.expr]:
    for part in ast.walk(node):
        if isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant) and part.value.value is None:
            yield from part.targets
        elif isinstance(part, ast.AnnAssign) and (part.value is None or isinstance(part.value, ast.Constant)):
            yield part.target


def one_caller(subject: Subject, item: Item) -> Seen:
    """A method with side effects has one caller: two pollers admit one request twice."""
    found: list[Finding] = []
    evidence: list[Place] = []
    for name in item.texts("methods"):
        callers: dict[str, Place] = {}
        for symbol, node, path, _ in _once(subject):
            for part in ast.walk(node):
                if called(part) == name and node.name != name:
                    callers.setdefault(symbol, Place(path, getattr(part, "lineno", 0)))
        places = list(callers.items())
        evidence += [place for _, place in places[:1]]
        for symbol, place in places[1:]:
            found.append(Finding("MG627", f"{name}() is called here and by {places[0][0]}", place, symbol))
    looked = len(found) + len(evidence)
    return Seen(
        tuple(found), looked, tuple(evidence), f"{many(len(evidence), 'method')}, each with one caller"
    )


def one_formula(subject: Subject, item: Item) -> Seen:
    """A division that rounds up is made by its helper, so that pages are counted in one way."""
    helper = item.text("helper")
    found: list[Finding] = []
    evidence: list[Place] = []
    for symbol, function in subject.functions():
        for node in ast.walk(function):
            if called(node) == helper:
                evidence.append(subject.at(node))
            elif function.name != helper and _rounds_up(node):
                message = f"`{ast.unparse(node)}` is {helper}() written out"
                found.append(Finding("MG628", message, subject.at(node), symbol))
    looked = len(found) + len(evidence)
    return Seen(tuple(found), looked, tuple(evidence[:3]), f"{many(len(evidence), 'call')} of {helper}()")


def _rounds_up(node: ast.AST) -> bool:
    """`-(-a // b)`, `(a + b - 1) // b`, `math.ceil(a / b)`."""
    match node:
        case ast.UnaryOp(
            op=ast.USub(), operand=ast.BinOp(op=ast.FloorDiv(), left=ast.UnaryOp(op=ast.USub()))
        ):
            return True
        case ast.BinOp(
            op=ast.FloorDiv(), left=ast.BinOp(op=ast.Sub(), right=ast.Constant(value=1)) as left, right=by
        ):
            return ast.dump(by) in {ast.dump(part) for part in ast.walk(left)}
        case ast.Call(args=[ast.BinOp(op=ast.Div())]):
            return called(node) == "ceil"
    return False


RULES = (
    Rule("MG626", "made-once", "Objects are made in one place", made_once),
    Rule("MG627", "one-caller", "Effects have one caller", one_caller),
    Rule("MG628", "one-formula", "One quantity has one formula", one_formula),
)
