"""What ties the handler to its worker: what is kept of it, what is read from it, and who calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migration.check.model import Finding, Place, Seen, many
from migration.check.objects import WORKER
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.code.facts import WRITING, UseKind, dotted, method_facts
from migration.code.structure import FunctionNode
from migration.move.moving import mangled
from migration.recipe_checklist import Item

_BINDING: frozenset[UseKind] = frozenset({"write", "delete", "setattr"})


def captured_attribute(subject: Subject, item: Item) -> Seen:
    """Whoever makes the handler, or stands in front of a handle, keeps no attribute that is bound anew later."""
    rebound = _bound_later(subject)
    found = []
    looked = 0
    for path, function in _makers(subject):
        names = {a.arg for a in (*function.args.args, *function.args.kwonlyargs)} & {
            "worker",
            "host",
            "owner",
        }
        for node in _eager(function):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in names
            ):
                looked += 1
                if (
                    isinstance(node.ctx, ast.Load)
                    and node.attr in rebound
                    and not _is_snapshot_field(subject, node)
                ):
                    message = f"{ast.unparse(node)} is kept, and {rebound[node.attr]} binds it anew"
                    found.append(Finding("MG644", message, Place(path, node.lineno), function.name))
        looked += 1
    note = f"{many(looked, 'place')} where a handle is made, none keeps what is bound anew later"
    return Seen(tuple(found), looked, (subject.at(subject.handler_shape.node),), note)


def _bound_later(subject: Subject) -> dict[str, str]:
    """Attribute of the worker -> a method other than `__init__` that assigns it."""
    found: dict[str, str] = {}
    for method in subject.shape.methods:
        if method.name != "__init__":
            for name in method_facts(method.node).attributes(_BINDING):
                found.setdefault(name, method.name)
    return found


def _makers(subject: Subject) -> Iterator[tuple[str, FunctionNode]]:
    for method in subject.handler_shape.methods:
        if method.name in ("__init__", "for_worker"):
            yield subject.handler.path, method.node
    modules = [handle.adapter.partition(":")[0] for handle in subject.recipe.handles if handle.adapter]
    paths = dict.fromkeys(
        (*(f"{m.replace('.', '/')}.py" for m in modules), *(a.file for a in subject.recipe.adapters))
    )
    for path in paths:
        source = subject.source(path)
        for node in ast.walk(source.tree) if source else ():
            if isinstance(node, FunctionNode) and node.name == "__init__":
                yield path, node


def _eager(function: FunctionNode) -> Iterator[ast.AST]:
    """Nodes that are evaluated when the function runs: what is in a lambda is asked for later."""
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef):
            stack += ast.iter_child_nodes(node)


def _is_snapshot_field(subject: Subject, node: ast.Attribute) -> bool:
    """A field of the snapshot is meant to be read once; that it does not change was proved by the port."""
    fields = subject.recipe.snapshot.fields if subject.recipe.snapshot else ()
    return any(path.partition(".")[0] == node.attr for path in fields)


def unknown_attribute(subject: Subject, item: Item) -> Seen:
    """What the handler reads from the worker is made somewhere: in the class, or by the handler itself."""
    node = subject.shape.node
    if node.bases or any(m.name in ("__getattr__", "__getattribute__") for m in subject.shape.methods):
        return Seen((), 0, (), f"{subject.recipe.source_class} has a base or computes attributes")
    known = {target.id for part in node.body for target in _targets(part) if isinstance(target, ast.Name)}
    known |= {method.name for method in subject.shape.methods}
    accesses = [(symbol, a) for symbol, f in subject.functions() for a in subject.objects.accesses(f)]
    known |= {a.name for _, a in accesses if a.kind in ("write", "ask")}
    known |= set(subject.recipe.hasattr.capability if subject.recipe.hasattr else ())
    for method in subject.shape.methods:
        known |= set(method_facts(method.node).attributes(WRITING))
    known |= {mangled(name, subject.recipe.source_class) for name in known}
    found, looked = [], 0
    for symbol, access in accesses:
        if access.owner != frozenset({(WORKER,)}) or access.kind in ("write", "ask"):
            continue
        looked += 1
        name = access.name
        dunder = name.startswith("__") and name.endswith("__")
        if name not in known and not dunder and not _is_set_elsewhere(subject, name):
            message = f"{ast.unparse(access.node)}: nothing gives {subject.recipe.source_class} a {name}"
            found.append(Finding("MG645", message, subject.at(access.node), symbol))
    return Seen(
        tuple(found),
        looked,
        (subject.at_worker(node),),
        f"{many(looked, 'read')} of the worker, all made somewhere",
    )


def _targets(part: ast.stmt) -> list[ast.expr]:
    if isinstance(part, ast.Assign):
        return part.targets
    return [part.target] if isinstance(part, ast.AnnAssign) else []


def _is_set_elsewhere(subject: Subject, name: str) -> bool:
    """Whether some file of the project assigns an attribute of that name on whatever object."""
    pattern = re.compile(rb"\.%s\s*(?::|[-+|&*/]?=[^=])" % re.escape(name).encode())
    return any(pattern.search(data) for data in subject.production.values())


def dead_method(subject: Subject, item: Item) -> Seen:
    """Every method of the handler is reached from production code, not from tests alone."""
    names = {method.name: method for _, method in reversed(subject.all_methods)}
    live = _callers(subject, set(names))
    if subject.phase == "gate":
        live |= {name: subject.at_worker(front.node) for name, (front, _) in subject.pairs.items()}
    queue = list(live)
    for name in queue:
        if name not in names:
            continue
        for part in ast.walk(names[name].node):
            other = part.attr if isinstance(part, ast.Attribute) else ""
            if other in names and other not in live and dotted(part).startswith("self."):
                live[other] = subject.at(part)
                queue.append(other)
    found = tuple(
        Finding("MG635", f"{name} has no caller outside tests", subject.at(method.node), name)
        for name, method in names.items()
        if name not in live and not (name.startswith("__") and name.endswith("__"))
    )
    return Seen(
        found, len(names), tuple(live.values())[:3], f"{many(len(names), 'method')}, all with a caller"
    )


def _callers(subject: Subject, names: set[str]) -> dict[str, Place]:
    """name -> a place outside the handler that uses the method on a handler."""
    found: dict[str, Place] = {}
    recipe = subject.recipe
    own = {part.source.path for part in subject.parts}
    names_of = b"|".join(re.escape(name).encode() for name in (recipe.handler_class, recipe.served[1]))
    mention = re.compile(rb"\b(?:%s)\b" % names_of)
    for path, data in subject.production.items():
        if path in own or not mention.search(data):
            continue
        source = subject.source(path)
        for node in ast.walk(source.tree) if source else ():
            if isinstance(node, ast.Attribute) and node.attr in names and not _is_self(node.value):
                found.setdefault(node.attr, Place(path, node.lineno))
    return found


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


RULES = (
    Rule(
        "MG635",
        "dead-method",
        "Every method of the handler has a production caller",
        dead_method,
        always=True,
        phases=("gate", "cleanup"),
    ),
    Rule(
        "MG644",
        "captured-attribute",
        "No handle keeps what is bound anew later",
        captured_attribute,
        always=True,
    ),
    Rule(
        "MG645",
        "unknown-attribute",
        "What is read from the worker is made somewhere",
        unknown_attribute,
        always=True,
    ),
)
