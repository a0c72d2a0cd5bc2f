"""What may replace a hasattr or getattr on self without a change of meaning."""

from __future__ import annotations

import ast

from migration.code.source import Source
from migration.code.syntax import expression_or_none
from migration.presence.answer import Answer, is_plain_name, refused, spelled
from migration.presence.capability import capability
from migration.presence.declaring import against_declaring, declared, declaring_obstacles
from migration.presence.findings import Rewrite
from migration.presence.world import World


def is_special(name: str, world: World) -> bool:
    """Names that Python treats in its own way: `__x__`, and what `self.__x` is stored under."""
    mangled = (f"_{known.name.lstrip('_')}__" for known in world.kin.order)
    return name.startswith("__") or any(name.startswith(prefix) for prefix in mangled)


def rewrite(source: Source, world: World, answer: Answer) -> tuple[Rewrite, tuple[str, ...]]:
    """The rewrite of one call, `refused` where none is sound, and what could be wrong with it besides."""
    name, test = answer.test.attribute, answer.test
    if name is None or is_special(name, world) or world.rebound_builtin is not None:
        return refused(answer.reason), ()
    if not _is_editable(source, test.node):
        return refused("the call stands where it cannot be edited at its exact position"), ()
    if test.kind == "getattr" and len(test.node.args) == 2:
        if not is_plain_name(name):
            return refused("the name cannot be written after a dot"), ()
        return Rewrite(
            "attribute", spelled(test, name), "a getattr without a default is the attribute itself"
        ), ()
    if answer.verdict == "always":
        if test.kind == "hasattr":
            return _constant(answer, "True"), ()
        return _present(answer, name), ()
    if answer.verdict == "never":
        return _absent(source, answer), ()
    against = against_declaring(world, answer, name)
    if against is None:
        return declared(answer, name), declaring_obstacles(world)
    protocol = capability(world, answer, name)
    if protocol is not None:
        return protocol, (
            *world.blind_spots,
            *world.risks("adds"),
            *world.hooks("__getattr__"),
            *world.escapes,
        )
    return refused(against), ()


def _is_editable(source: Source, node: ast.Call) -> bool:
    """Inside f-strings, older Pythons give positions that are not those of the call."""
    parsed = expression_or_none(source.segment(node))
    return parsed is not None and ast.dump(parsed) == ast.dump(node)


def _present(answer: Answer, name: str) -> Rewrite:
    if not is_plain_name(name):
        return refused("the name cannot be written after a dot")
    if answer.default is not None and not _is_inert(answer.default):
        return refused("the default would no longer be evaluated")
    return Rewrite("attribute", spelled(answer.test, name), answer.reason)


def _constant(answer: Answer, text: str) -> Rewrite:
    if answer.holds_self:
        return refused("the closure would no longer hold self")
    return Rewrite("constant", text, answer.reason)


def _absent(source: Source, answer: Answer) -> Rewrite:
    if answer.default is None:
        return _constant(answer, "False")
    if answer.holds_self:
        return refused("the closure would no longer hold self")
    text = source.segment(answer.default).decode()
    atom = isinstance(answer.default, ast.Constant | ast.Name | ast.List | ast.Dict | ast.Set)
    return Rewrite("default", text if atom else f"({text})", answer.reason)


def _is_inert(node: ast.expr) -> bool:
    """Whether leaving out the evaluation of an expression cannot be noticed."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return all(_is_inert(part) for part in node.elts)
    if isinstance(node, ast.Dict):
        return not node.keys
    return isinstance(node, ast.Constant)
