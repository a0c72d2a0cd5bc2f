"""Protocols that the recipe gives: does what moved code does with a handle fit them?"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from migration.code.facts import READING, WRITING, SelfUse
from migration.code.module_file import module_file
from migration.code.source import Source
from migration.code.structure import FunctionNode
from migration.code.tree import Tree
from migration.errors import MigrationError, Refusal
from migration.move.members import Member
from migration.move.names import ImportName, ModuleNames, type_names
from migration.move.protocol_classes import ProtocolClass, ProtocolMember, ProtocolModule, annotations_of
from migration.recipe import HandleSpec, Recipe

_REMOVING = ("delete", "delattr")


@dataclass(frozen=True)
class Literal:
    """A given Protocol, and the imports that its annotations need in the handler module."""

    protocol: ProtocolClass
    imports: frozenset[ImportName]


def literal_of(spec: HandleSpec, recipe: Recipe, tree: Tree, worker: ModuleNames) -> Literal | None:
    """The Protocol that the recipe gives for a handle, None where it is to be inferred.

    MG527 where it cannot be read, or needs a name that neither it nor the worker's module knows.
    """
    if spec.protocol_text:
        module = ProtocolModule(Source("protocol_text", spec.protocol_text.encode()), recipe.target_module)
        (protocol,) = module.protocols
        return Literal(protocol, frozenset(_imports(spec, protocol, module, worker)))
    if not spec.protocol_from:
        return None
    name, _, _ = spec.protocol_from.partition(":")
    file = module_file(tree, name, recipe.import_root)
    if file is None:
        path = posixpath.join(recipe.import_root, name.replace(".", "/"))
        raise MigrationError("MG527", f"{path}.py does not exist (handle {spec.name})")
    found = [p for p in ProtocolModule(Source(*file), name).protocols if p.name == spec.protocol]
    if not found:
        raise MigrationError("MG527", f"{file[0]} has no Protocol {spec.protocol} (handle {spec.name})")
    return Literal(found[0], frozenset((ImportName(name, spec.protocol),)))


def _imports(
    spec: HandleSpec, protocol: ProtocolClass, module: ProtocolModule, worker: ModuleNames
) -> Iterator[ImportName]:
    known = {"Any", "Protocol", spec.protocol}
    for member in protocol.members:
        annotations = [member.annotation, *(annotations_of(member.node) if member.node is not None else ())]
        for name in (n for a in annotations if a is not None for n in type_names(a)):
            if name in known:
                continue
            names = module.names if name in module.names.bindings else worker
            imports = names.type_import(name)
            if imports is None:
                message = f"{spec.protocol}.{member.name}: nothing says what {name} is; import it in `protocol_text`"
                raise MigrationError("MG527", message)
            yield from imports


def literal_members(literal: Literal, uses: Iterable[tuple[str, SelfUse]]) -> tuple[Member, ...]:
    """All members of a given Protocol, with the places where moved code needs them."""
    cited = list(uses)
    return tuple(
        Member(
            member.name,
            "",
            any(use.kind in WRITING and use.attribute == member.name for _, use in cited),
            False,
            "given by the recipe",
            tuple(f"{method}:{use.line}" for method, use in cited if use.attribute == member.name),
        )
        for member in literal.protocol.members
    )


def misfits(
    literal: Literal,
    uses: Iterable[tuple[str, SelfUse]],
    calls: Iterable[tuple[str, ast.Call]],
    *,
    adapted: bool,
) -> Iterator[Refusal]:
    """MG117 for a member that the Protocol does not have, or not for that use; MG118 for arguments.

    `hasattr()` asks for no member, unless an adapter would answer in the object's place.
    """
    members = {member.name: member for member in literal.protocol.members}
    name = literal.protocol.name
    for method, use in uses:
        member = members.get(use.attribute or "")
        if use.attribute is None or hasattr(object, use.attribute):
            continue
        if member is None and adapted and use.kind == "hasattr":
            message = f"{name} has no {use.attribute}, and hasattr() would ask the adapter"
            yield Refusal("MG117", method, use.line, message)
        elif member is None and use.kind in READING | WRITING | {*_REMOVING}:
            yield Refusal("MG117", method, use.line, f"{name} has no {use.attribute}")
        elif member is not None and use.kind in WRITING | {*_REMOVING} and not member.writable:
            yield Refusal("MG117", method, use.line, f"{name}.{member.name} is read-only")
    for method, call in calls:
        assert isinstance(call.func, ast.Attribute)
        member = members.get(call.func.attr)
        if member is not None and member.node is not None:
            for problem in _arguments(member, call):
                yield Refusal("MG118", method, call.lineno, f"{name}.{member.name}: {problem}")


def _arguments(member: ProtocolMember, call: ast.Call) -> Iterator[str]:
    """What is wrong with the arguments of a call; those behind a star cannot be seen and are trusted."""
    node: FunctionNode | None = member.node
    assert node is not None
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args][1:]
    only = max(len(arguments.posonlyargs) - 1, 0)
    given = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    starred = len(given) < len(call.args)
    names = [keyword.arg for keyword in call.keywords if keyword.arg is not None]
    if len(given) > len(positional) and arguments.vararg is None:
        yield f"takes {len(positional)} positional arguments, {len(given)} are given"
    by_name = {arg.arg for arg in (*positional[only:], *arguments.kwonlyargs)}
    if arguments.kwarg is None:
        yield from (f"has no parameter {name}" for name in names if name not in by_name)
    if not starred:
        filled = {arg.arg for arg in positional[: len(given)]}
        yield from (f"{name} is given twice" for name in names if name in filled & by_name)
        if not any(keyword.arg is None for keyword in call.keywords):
            required = [arg.arg for arg in positional[: len(positional) - len(arguments.defaults)]]
            pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            required += [arg.arg for arg, default in pairs if default is None]
            missing = [name for name in required if name not in filled | set(names)]
            yield from (f"{name} is not given" for name in missing)
