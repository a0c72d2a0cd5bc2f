"""What stands in front of a handle does all that its Protocol promises, with all that it is given."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator

from migration.check.model import Finding, Place, Seen, many
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.code.facts import parameters
from migration.code.module_file import module_file
from migration.code.source import Source, read_source
from migration.code.structure import FunctionNode
from migration.recipe import HandleSpec
from migration.recipe_checklist import Item


def adapter(subject: Subject, item: Item) -> Seen:
    """Each member of the Protocol is there, and each parameter of a method is used by its body."""
    found: list[Finding] = []
    evidence: list[Place] = []
    looked = 0
    handles = [handle for handle in subject.recipe.handles if handle.adapter]
    for handle in handles:
        module, _, name = handle.adapter.partition(":")
        file = module_file(subject.tree, module, subject.recipe.import_root)
        node = _class(read_source(*file), name) if file else None
        if file is None or node is None:
            place = Place(subject.handler.path, subject.handler_shape.node.lineno)
            found.append(Finding("MG646", f"there is no {handle.adapter}", place, handle.name))
            continue
        evidence.append(Place(file[0], node.lineno))
        wanted = sorted(_members(subject, handle))
        looked += len(wanted)
        there = {getattr(part, "name", "") or _attribute(part) for part in node.body}
        if "__getattr__" not in there and not node.bases:
            for member in wanted:
                if member not in there:
                    message = f"{name} has no {member}, which {handle.protocol} promises"
                    found.append(Finding("MG646", message, Place(file[0], node.lineno), f"{name}.{member}"))
        for method, parameter in _unused(node):
            looked += 1
            message = f"{name}.{method.name} takes {parameter} and does nothing with it"
            found.append(Finding("MG646", message, Place(file[0], method.lineno), f"{name}.{method.name}"))
    note = (
        f"{many(looked, 'member')} of {many(len(handles), 'adapter')}"
        if handles
        else "no handle has an adapter"
    )
    return Seen(tuple(found), looked, tuple(evidence), note)


def _class(source: Source, name: str) -> ast.ClassDef | None:
    return next((n for n in source.tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)


def _members(subject: Subject, handle: HandleSpec) -> Iterator[str]:
    """Members of the handle's Protocol, in the handler's module or where the recipe takes it from."""
    source: Source | None = subject.handler
    if handle.protocol_from:
        module = handle.protocol_from.partition(":")[0].replace(".", "/")
        source = subject.source(posixpath.join(subject.recipe.import_root, f"{module}.py"))
    node = _class(source, handle.protocol) if source else None
    for part in node.body if node else ():
        if name := getattr(part, "name", "") or _attribute(part):
            yield name


def _attribute(part: ast.stmt) -> str:
    return getattr(getattr(part, "target", None), "id", "")


def _unused(node: ast.ClassDef) -> Iterator[tuple[FunctionNode, str]]:
    for method in node.body:
        if isinstance(method, FunctionNode) and not method.name.startswith("__"):
            used = {part.id for part in ast.walk(method) if isinstance(part, ast.Name)}
            for name in parameters(method.args)[1:]:
                if name not in used and not name.startswith("_"):
                    yield method, name


RULES = (Rule("MG646", "adapter", "Adapters do all that their Protocols promise", adapter, always=True),)
