"""The handler's handles: exactly those of the recipe, all of them used, asked for nothing that is not promised."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migration.check.model import Finding, Place, Seen, many
from migration.check.objects import WORKER, Access
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.code.facts import WRITING, UseKind, dotted, method_facts
from migration.code.structure import FunctionNode
from migration.move.handler_module import stored
from migration.move.request import request_faults
from migration.recipe_checklist import Item

_BINDING: frozenset[UseKind] = frozenset({"write", "delete", "setattr"})


def constructor(subject: Subject, item: Item) -> Seen:
    """Keyword-only, in the order of the recipe; or to the letter what the item says."""
    node = subject.constructor
    if node is None:
        return Seen((), 0, (), "the handler has no __init__: no handle is given to it")
    place = subject.at(node)
    bound = [
        Finding("MG621", fault, place, "on")
        for fault in request_faults(subject.recipe, subject.handler_shape.node)
    ]
    if text := item.text("signature"):
        wanted = ast.parse(f"def __init__{text}: ...").body[0]
        assert isinstance(wanted, ast.FunctionDef)
        same = _spelled(wanted, node) == _spelled(node, wanted)
        message = f"__init__({ast.unparse(node.args)}) is not {text}"
        bound += [] if same else [Finding("MG621", message, place, "__init__")]
        return Seen(tuple(bound), len(node.args.kwonlyargs) + 1, (place,), f"it is {text}")
    arguments = node.args
    given = [argument.arg for argument in arguments.kwonlyargs]
    names = [handle.name for handle in subject.recipe.handles if not handle.request]
    names += [subject.recipe.snapshot.name] if subject.recipe.snapshot else []
    faults = [f"{name} is no handle of the recipe" for name in given if name not in names]
    if [name for name in names if name in given] != [name for name in given if name in names]:
        faults.append(f"the order is {', '.join(given)}, the recipe's is {', '.join(names)}")
    if len(arguments.args) + len(arguments.posonlyargs) > 1 or arguments.vararg or arguments.kwarg:
        faults.append("takes arguments that are not keyword-only")
    if any(default is not None for default in arguments.kw_defaults):
        faults.append("a handle has a default")
    bound += [Finding("MG621", f"__init__: {fault}", place, "__init__") for fault in faults]
    return Seen(tuple(bound), len(given), (place,), f"(*, {', '.join(given)})")


def _spelled(node: FunctionNode, other: FunctionNode) -> str:
    """Names and kinds, and the annotations that both have."""

    def shown(own: ast.arg, theirs: dict[str, ast.arg]) -> str:
        note, counterpart = own.annotation, theirs.get(own.arg)
        if note is None or counterpart is None or counterpart.annotation is None:
            return own.arg
        return f"{own.arg}: {ast.unparse(note)}"

    def by_name(function: FunctionNode) -> dict[str, ast.arg]:
        arguments = function.args
        return {a.arg: a for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}

    theirs, arguments = by_name(other), node.args
    parts = [
        [shown(a, theirs) for a in part]
        for part in (arguments.posonlyargs, arguments.args, arguments.kwonlyargs)
    ]
    defaults = [ast.unparse(d) if d else "" for d in (*arguments.defaults, *arguments.kw_defaults)]
    rest = [a.arg if a else "" for a in (arguments.vararg, arguments.kwarg)]
    return repr((parts, defaults, rest))


def dead_handle(subject: Subject, item: Item) -> Seen:
    """Every parameter of the constructor is stored, and what is stored is used."""
    node = subject.constructor
    if node is None:
        return Seen((), 0, (), "the handler has no __init__: no handle is given to it")
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)][1:]
    used: dict[str, ast.AST] = {}
    for _, method in subject.all_methods:
        for part in ast.walk(method.node):
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load):
                used.setdefault(part.attr, part)
    read = {stored(handle): f"_{handle.name}" for handle in subject.recipe.handles}
    kept = {parameter: attribute for attribute, parameter in subject.injected.items()}
    found, evidence = [], []
    for name in names:
        attribute = read.get(kept.get(name, ""), kept.get(name, ""))
        if attribute in used:
            evidence.append(subject.at(used[attribute]))
            continue
        fault = "is injected and no method uses it" if name in kept else "is taken and not stored"
        argument = next(a for a in (*node.args.args, *node.args.kwonlyargs) if a.arg == name)
        found.append(Finding("MG634", f"{name} {fault}", subject.at(argument), name))
    return Seen(tuple(found), len(names), tuple(evidence[:3]), f"{many(len(names), 'handle')}, all used")


def optional_handle(subject: Subject, item: Item) -> Seen:
    """A handle with a Protocol of its own is there: nobody asks whether it is, or for what it may lack."""
    found = []
    looked = 0
    for symbol, node in subject.functions():
        for access in subject.objects.accesses(node):
            of_handle = any(way[0].startswith("<") for way in (*access.owner, *access.ways))
            looked += of_handle
            if access.kind == "ask" and any(len(way) == 1 and way[0].startswith("<") for way in access.owner):
                message = f"{ast.unparse(access.node)} asks a Protocol what it may lack"
                found.append(Finding("MG618", message, subject.at(access.node), symbol))
        for part in ast.walk(node):
            if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Is | ast.IsNot):
                if ast.unparse(part.comparators[0]) == "None" and _is_handle(subject, node, part.left):
                    message = f"`{ast.unparse(part)}` asks whether a handle is there"
                    found.append(Finding("MG618", message, subject.at(part), symbol))
    if not looked and not found:
        return Seen((), 0, (), "every handle is the worker, seen in part")
    return Seen(
        tuple(found), looked, (subject.at(subject.handler_shape.node),), f"{many(looked, 'use')} of handles"
    )


def _is_handle(subject: Subject, function: FunctionNode, node: ast.expr) -> bool:
    ways = subject.objects.ways(function, node)
    return any(len(way) == 1 and way[0].startswith("<") for way in ways)


def private_attribute(subject: Subject, item: Item) -> Seen:
    """What a handle leads to is used by its public names."""
    found = []
    looked = 0
    for symbol, node in subject.functions():
        for access in subject.objects.accesses(node):
            collaborators = [
                way for way in access.owner if way[0].startswith("<") or (way[0] == WORKER and len(way) > 1)
            ]
            looked += bool(collaborators)
            name = access.name
            if (
                collaborators
                and name.startswith("_")
                and not name.endswith("__")
                and not _promised(subject, access)
            ):
                message = f"{ast.unparse(access.node)}: {name} is private to {_named(collaborators[0])}"
                found.append(Finding("MG639", message, subject.at(access.node), symbol))
    note = f"{many(looked, 'use')} of collaborators" if looked else "no handle leads to another object"
    return Seen(tuple(found), looked, (subject.at(subject.handler_shape.node),), note)


def _promised(subject: Subject, access: Access) -> bool:
    """Whether a Protocol of the module has the private name: then it is agreed."""
    roots = {way[0].strip("<>") for way in access.owner if len(way) == 1}
    protocols = {handle.protocol for handle in subject.recipe.handles if handle.name in roots}
    for node in subject.handler.tree.body:
        if isinstance(node, ast.ClassDef) and node.name in protocols:
            members = {
                getattr(m, "name", "") or getattr(getattr(m, "target", None), "id", "") for m in node.body
            }
            if access.name in members:
                return True
    return False


def _named(way: tuple[str, ...]) -> str:
    return ".".join(way)


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
    known |= {a.name for _, a in accesses if a.kind == "write"}
    for method in subject.shape.methods:
        known |= set(method_facts(method.node).attributes(WRITING))
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
        if name not in live
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
        "MG621",
        "constructor",
        "The constructor takes the recipe's handles and nothing else",
        constructor,
        always=True,
    ),
    Rule("MG634", "dead-handle", "No handle is injected and unused", dead_handle, always=True),
    Rule(
        "MG635",
        "dead-method",
        "Every method of the handler has a production caller",
        dead_method,
        always=True,
        phases=("gate", "cleanup"),
    ),
    Rule("MG618", "optional-handle", "Handles are there: nobody asks whether", optional_handle, always=True),
    Rule(
        "MG639",
        "private-attribute",
        "Collaborators are used by their public names",
        private_attribute,
        always=True,
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
