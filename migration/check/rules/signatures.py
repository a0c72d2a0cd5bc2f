"""Gates and delegates take what the method takes, and pass it on."""

from __future__ import annotations

import ast
import re

from migration.check.model import Finding, Fix, Place, Seen, fix
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.code.source import Edit
from migration.code.structure import FunctionNode
from migration.inverse.fold import stubs_of
from migration.move.moving import yields
from migration.move.rewrite import forwarded
from migration.recipe_checklist import Item


def signature(subject: Subject, item: Item) -> Seen:
    """Gates and stubs take what the method took, and pass on each argument as it came."""
    found = []
    evidence: list[Place] = []
    fronts = {name: (front, legacy.node) for name, (front, legacy) in subject.pairs.items()}
    if subject.phase == "cleanup":
        there = {method.name: method.node for method in subject.methods}
        stubs = stubs_of(subject.recipe, subject.shape, list(there))
        fronts = {name: (stub, there[name]) for name, stub in stubs.items()}
    for name, (front, meant) in fronts.items():
        # Defaults that could not move stand on the stub alone: names and kinds are compared there.
        exact = subject.phase == "gate"
        mended = None
        faults = []
        if _parameters(front.node, exact=exact) != _parameters(meant, exact=exact):
            faults.append("takes other parameters than the method")
            mended = _same_signature(subject, front.node, meant) if exact else None
        elif missing := _not_passed(front.node):
            faults.append(f"does not pass on {', '.join(missing)} as it came")
        # The delegate of an asynchronous generator is a plain method that returns it.
        waits = isinstance(meant, ast.AsyncFunctionDef) and not yields(meant)
        if isinstance(front.node, ast.AsyncFunctionDef) != waits and not exact:
            faults.append("is not asynchronous where the method is")
        found += [
            Finding("MG633", f"{name} {fault}", subject.at_worker(front.node), name, mended)
            for fault in faults
        ]
        if not faults:
            evidence.append(subject.at_worker(front.node))
    kind = "gates" if subject.phase == "gate" else "delegates"
    note = f"{len(fronts)} {kind}" if fronts else f"no {kind}: every caller uses the handler"
    return Seen(tuple(found), len(fronts), tuple(evidence[:3]), note)


def _parameters(node: FunctionNode, *, exact: bool) -> str:
    if exact:
        return ast.dump(node.args)
    arguments = node.args
    parts = ("posonlyargs", "args", "kwonlyargs")
    names = [[a.arg for a in getattr(arguments, part)] for part in parts]
    if names[0] or names[1]:
        names[0 if names[0] else 1].pop(0)
    return repr((names, arguments.vararg and arguments.vararg.arg, arguments.kwarg and arguments.kwarg.arg))


def _not_passed(node: FunctionNode) -> list[str]:
    """Arguments that some call in the body that takes any does not get."""
    wanted = forwarded(node, skip_first=True)
    calls = [
        [ast.unparse(a) for a in call.args]
        + [f"{k.arg}={ast.unparse(k.value)}" if k.arg else f"**{ast.unparse(k.value)}" for k in call.keywords]
        for statement in node.body
        for call in ast.walk(statement)
        if isinstance(call, ast.Call) and not _makes_handler(call)
    ]
    return [argument for argument in wanted if any(argument not in given for given in calls)]


def _makes_handler(call: ast.Call) -> bool:
    return getattr(call.func, "attr", "") == "for_worker" or isinstance(call.func, ast.Name)


def _same_signature(subject: Subject, front: FunctionNode, meant: FunctionNode) -> Fix | None:
    """The parameters of the legacy body, as they are spelled there."""
    source = subject.worker

    def span(node: FunctionNode) -> tuple[int, int] | None:
        start = source.offset(node.lineno, node.col_offset)
        opening = source.data.find(b"(", start)
        body = source.offset(node.body[0].lineno)
        text = source.data[opening:body]
        match = re.search(rb"\)(?:\s*->[^\n]*)?:[ \t]*(?:#[^\n]*)?\s*$", text)
        return None if match is None else (opening, opening + match.start() + 1)

    own, other = span(front), span(meant)
    if own is None or other is None:
        return None
    return fix("take the parameters of the legacy body", source, [Edit(*own, source.data[slice(*other)])])


RULES = (
    Rule(
        "MG633",
        "signature",
        "Gates and stubs keep the exact signature",
        signature,
        always=True,
        phases=("gate", "cleanup"),
    ),
)
