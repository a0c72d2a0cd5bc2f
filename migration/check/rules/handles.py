"""The handler's handles: exactly those of the recipe, all of them used, asked for nothing that is not promised."""

from __future__ import annotations

import ast

from migration.check.model import Finding, Place, Seen, many
from migration.check.objects import WORKER, Access
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.code.structure import FunctionNode
from migration.move.handler_module import stored
from migration.move.request import request_faults
from migration.recipe_checklist import Item


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
    """A handle with a Protocol of its own is there: nobody asks whether it is, or for what it may lack. Of those
    that the item calls optional it may be asked whether they are there, and somebody does."""
    found = []
    looked = 0
    optional, asked = item.texts("optional"), set[str]()
    for symbol, node in subject.functions():
        for access in subject.objects.accesses(node):
            of_handle = any(way[0].startswith("<") for way in (*access.owner, *access.ways))
            looked += of_handle
            if access.kind == "ask" and any(len(way) == 1 and way[0].startswith("<") for way in access.owner):
                message = f"{ast.unparse(access.node)} asks a Protocol what it may lack"
                found.append(Finding("MG618", message, subject.at(access.node), symbol))
        for part in ast.walk(node):
            if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Is | ast.IsNot):
                if ast.unparse(part.comparators[0]) == "None" and (
                    names := _handles(subject, node, part.left)
                ):
                    asked |= names
                    if not names.issubset(optional):
                        message = f"`{ast.unparse(part)}` asks whether a handle is there"
                        found.append(Finding("MG618", message, subject.at(part), symbol))
    listed = Place(subject.checklist.path, item.line)
    for name in optional:
        if name not in asked:
            message = f"the checklist calls {name} optional, and nobody asks whether it is there"
            found.append(Finding("MG618", message, listed, name))
    if not looked and not found:
        return Seen((), 0, (), "every handle is the worker, seen in part")
    note = f"{many(looked, 'use')} of handles"
    note += f"; {', '.join(optional)} may be absent" if optional else ""
    return Seen(tuple(found), looked, (subject.at(subject.handler_shape.node),), note)


def _handles(subject: Subject, function: FunctionNode, node: ast.expr) -> set[str]:
    """Names of the handles that an expression may be."""
    ways = subject.objects.ways(function, node)
    return {way[0].strip("<>") for way in ways if len(way) == 1 and way[0].startswith("<")}


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


RULES = (
    Rule(
        "MG621",
        "constructor",
        "The constructor takes the recipe's handles and nothing else",
        constructor,
        always=True,
    ),
    Rule("MG634", "dead-handle", "No handle is injected and unused", dead_handle, always=True),
    Rule("MG618", "optional-handle", "Handles are there: nobody asks whether", optional_handle, always=True),
    Rule(
        "MG639",
        "private-attribute",
        "Collaborators are used by their public names",
        private_attribute,
        always=True,
    ),
)
