"""The handler keeps nothing of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.check.model import Finding, Seen, many
from migration.check.objects import HANDLER, Access
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.recipe_checklist import Item
from migration.survey.effects.names import MUTATORS


def stateless(subject: Subject, item: Item) -> Seen:
    """No attribute of the handler is written outside `__init__`, which keeps what it is given and no more."""
    found = [*_made_in_constructor(subject), *_shared(subject)]
    looked = len(subject.injected)
    for part, method in subject.all_methods:
        symbol = f"{part.shape.name}.{method.name}"
        for access in subject.objects.accesses(method.node):
            looked += 1
            if ("self",) not in access.owner:
                continue
            if access.kind in ("write", "delete"):
                message = f"{access.name} of the handler is written outside __init__"
                found.append(Finding("MG614", message, subject.at(access.node), symbol))
        found += _changed_in_place(subject, method.node, symbol)
        for node in ast.walk(method.node):
            if isinstance(node, ast.Global):
                message = f"the module's {', '.join(node.names)} is rebound"
                found.append(Finding("MG614", message, subject.at(node), symbol))
    place = subject.constructor or subject.handler_shape.node
    return Seen(
        tuple(found),
        looked,
        (subject.at(place),),
        f"{many(looked, 'attribute use')}, none writes to the handler",
    )


def _shared(subject: Subject) -> Iterator[Finding]:
    """A container in the class body: every handler, and so every worker of the process, has the same one."""
    for node in (node for part in subject.parts for node in part.shape.node.body):
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(
            value, ast.List | ast.Dict | ast.Set | ast.Call | ast.ListComp | ast.DictComp | ast.SetComp
        ):
            message = f"`{ast.unparse(node)}` is shared by all handlers"
            yield Finding("MG614", message, subject.at(node))


def _made_in_constructor(subject: Subject) -> Iterator[Finding]:
    if subject.constructor is None:
        return
    for node in ast.walk(subject.constructor):
        value = getattr(node, "value", None)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if not isinstance(target, ast.Attribute) or target.attr in subject.injected:
                continue
            text = ast.unparse(value) if isinstance(value, ast.expr) else ""
            symbol = f"{subject.recipe.handler_class}.__init__"
            message = f"{target.attr} = {text} is no handle that was given"
            yield Finding("MG614", message, subject.at(node), symbol)


def _changed_in_place(
    subject: Subject, node: ast.FunctionDef | ast.AsyncFunctionDef, symbol: str
) -> Iterator[Finding]:
    """`self.seen.append(x)` and `self.seen[k] = v` of what is no handle."""
    own = {
        id(access.node): access
        for access in subject.objects.accesses(node)
        if any(way[0] == HANDLER for way in access.ways)
    }
    for part in ast.walk(node):
        changed: Access | None = None
        if isinstance(part, ast.Subscript) and not isinstance(part.ctx, ast.Load):
            changed = own.get(id(part.value))
        elif (
            isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in MUTATORS
        ):
            changed = own.get(id(part.func.value))
        if changed is not None:
            message = f"{changed.name} of the handler is changed in place"
            yield Finding("MG614", message, subject.at(part), symbol)


RULES = (Rule("MG614", "stateless", "The handler is stateless", stateless, always=True),)
