"""The handler's source as such: its size, definitions that hide each other, exceptions that nobody sees."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.check.model import Finding, Place, Seen, many
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.code.facts import accessor_of
from migration.move.moving import is_overload
from migration.recipe_checklist import Item


def budget(subject: Subject, item: Item) -> Seen:
    """Lines changed since the base revision, against what one pull request of the phase may have."""
    recipe = subject.recipe
    limit = dict(subject.checklist.budgets).get(
        subject.phase, recipe.budget if subject.phase == "port" else 0
    )
    if not limit:
        return Seen((), 0, (), f"the recipe gives the phase {subject.phase} no budget")
    changed = subject.changed
    if changed is None:
        return Seen((), 0, (), "git knows no revision to compare with: pass --base")
    place = Place(subject.handler.path, 1)
    lines = f"{many(changed.added, 'line')} added and {changed.deleted} deleted since {changed.base}"
    note = f"{lines}; {limit} may be added"
    found: tuple[Finding, ...] = ()
    if changed.added > limit:
        message = (
            f"{many(changed.added, 'line')} added since {changed.base}, the budget of the phase is {limit}"
        )
        found = (Finding("MG630", message, place, recipe.name),)
    return Seen(found, len(changed.files), (place,), note)


def duplicate_method(subject: Subject, item: Item) -> Seen:
    """Of two definitions of one name the last one wins, and the first is dead."""
    seen: dict[str, int] = {}
    found = []
    for method in subject.handler_shape.methods:
        if accessor_of(method) or is_overload(method.node) or method.conditional:
            continue
        if method.name in seen:
            message = f"{method.name} is defined on line {seen[method.name]} already, and this one wins"
            found.append(Finding("MG642", message, subject.at(method.node), method.name))
        seen[method.name] = method.node.lineno
    return Seen(
        tuple(found),
        len(seen),
        (subject.at(subject.handler_shape.node),),
        f"{many(len(seen), 'name')}, each once",
    )


def swallowed_exception(subject: Subject, item: Item) -> Seen:
    """No handler that only raises again, and none of everything that goes on as if nothing had been."""
    found = []
    looked = 0
    for symbol, node in subject.functions():
        looked += 1
        for handler in _handlers(node):
            looked += 1
            kind = ast.unparse(handler.type) if handler.type else ""
            body = [part for part in handler.body if not _is_text(part)]
            if len(body) == 1 and isinstance(body[0], ast.Raise) and body[0].exc is None:
                message = f"`except {kind}` only raises again".replace("except `", "except`")
                found.append(Finding("MG643", message, subject.at(handler), symbol))
            elif kind.rpartition(".")[2] in ("", "Exception", "BaseException") and _goes_on(body):
                message = f"`except {kind or 'everything'}` goes on as if nothing had happened"
                found.append(Finding("MG643", message, subject.at(handler), symbol))
    note = f"{many(looked, 'function')} and except clauses"
    return Seen(tuple(found), looked, (subject.at(subject.handler_shape.node),), note)


def _handlers(node: ast.AST) -> Iterator[ast.ExceptHandler]:
    return (part for part in ast.walk(node) if isinstance(part, ast.ExceptHandler))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _goes_on(body: list[ast.stmt]) -> bool:
    """Whether it neither raises nor keeps the exception for anybody."""
    if any(isinstance(part, ast.Raise) for statement in body for part in ast.walk(statement)):
        return False
    quiet = ast.Pass | ast.Continue | ast.Break
    return all(isinstance(part, quiet) or _is_text(part) or _logs(part) for part in body)


def _logs(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    function = node.value.func
    name = getattr(function, "attr", "") or getattr(function, "id", "")
    return name in ("debug", "info", "warning", "warn", "error", "exception", "critical", "log", "print")


RULES = (
    Rule("MG630", "budget", "The change is within the budget of its phase", budget, always=True),
    Rule(
        "MG642",
        "duplicate-method",
        "No method of the handler is defined twice",
        duplicate_method,
        always=True,
    ),
    Rule(
        "MG643", "swallowed-exception", "No exception is caught for nothing", swallowed_exception, always=True
    ),
)
