"""Is a frozen snapshot the same as reading the worker at each use? Only where nothing writes a field later.

Reasons against a field, each with its site: MG119 it may change after `__init__`, MG120 it may not be there
yet when a handler is made, MG121 moved code changes the object through the snapshot.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from migration.code.facts import WRITING, MethodFacts, dotted
from migration.code.structure import ClassOutline, FunctionNode, Method
from migration.code.tree import Tree
from migration.errors import Refusal
from migration.move.attribute_writes import writes_of
from migration.move.declared import Declared, mark
from migration.move.kin import Kin, kin_of
from migration.move.moving import Moving, decorator_name
from migration.recipe import Recipe, SnapshotSpec

_REMOVING = ("delete", "delattr")
#: Python runs these on objects that `__init__` has not filled yet, or on the class.
_EARLY = frozenset(
    (
        "__init__",
        "__new__",
        "__init_subclass__",
        "__class_getitem__",
        "__getattr__",
        "__getattribute__",
        "__setattr__",
        "__delattr__",
        "__setstate__",
        "__del__",
    )
)
_MUTATORS = frozenset(
    (
        "add",
        "append",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "reverse",
        "setdefault",
        "sort",
        "update",
    )
)


def used_fields(spec: SnapshotSpec, declared: Sequence[Declared]) -> tuple[str, ...]:
    """The fields that moved code reads, in the recipe's order."""
    used = {use.attribute for one in declared for handle, use in one.uses if handle == spec.name}
    return tuple(path for path in spec.fields if path.rpartition(".")[2] in used)


@dataclass(frozen=True)
class _World:
    """All that a check may ask."""

    recipe: Recipe
    tree: Tree
    shape: ClassOutline
    facts: Mapping[int, MethodFacts]
    moving: Sequence[Moving]

    @cached_property
    def kin(self) -> Kin:
        return kin_of(self.tree, self.shape.name)

    def of(self, method: Method) -> MethodFacts:
        return self.facts[id(method.node)]


def snapshot_refusals(
    recipe: Recipe,
    tree: Tree,
    shape: ClassOutline,
    facts: Mapping[int, MethodFacts],
    moving: Sequence[Moving],
    declared: Sequence[Declared],
) -> list[Refusal]:
    """Why fields of the recipe's snapshot that moved code reads must not be read once and for all."""
    spec = recipe.snapshot
    if spec is None or not (fields := used_fields(spec, declared)):
        return []
    world = _World(recipe, tree, shape, facts, moving)
    found: list[Refusal] = []
    for path in fields:
        first, *rest = path.split(".")
        found += [Refusal("MG119", path, line, why) for line, why in _changes(world, first)]
        found += [
            Refusal("MG119", path, line, why) for name in rest for line, why in _inner_changes(world, name)
        ]
        found += [Refusal("MG120", path, line, why) for line, why in _missing(world, first)]
        found += [Refusal("MG120", path, line, why) for name in rest for line, why in _asked(world, name)]
    for one in declared:
        found += _mutations(spec, one)
    return found


def _changes(world: _World, name: str) -> Iterator[tuple[int, str]]:
    """Where the attribute of the worker itself is computed, or written other than straight in `__init__`."""
    for method in world.shape.methods:
        if method.name == name:
            yield method.node.lineno, f"{name} is computed at each read"
        if method.name != "__init__":
            for line in _computed_writes(method.node, world.of(method).self_name):
                yield line, f"{method.name} may write any attribute"
    for write in writes_of(world.tree, name):
        own = write.path == world.recipe.source_file and write.owner == world.shape.name
        # Of the same name and not derived from it: another class, a copy in a test's fixture say.
        other = write.owner == world.shape.name and not own and world.shape.name not in write.bases
        kin = write.owner in world.kin.all and not other
        if write.on_self and (not kin or (own and write.method == "__init__")):
            continue
        if not (own and write.is_property):
            yield (write.line if own else 0), f"{write.path}:{write.line} writes .{name}"


def _inner_changes(world: _World, name: str) -> Iterator[tuple[int, str]]:
    """Where an attribute of an object behind the worker is written after that object was made."""
    for write in writes_of(world.tree, name):
        making = write.method in ("__init__", "__post_init__", "__new__")
        if not (write.on_self and making):
            what = "computes" if write.is_property else "writes"
            yield 0, f"{write.path}:{write.line} {what} .{name}"


def _computed_writes(node: FunctionNode, owner: str | None) -> Iterator[int]:
    """Lines that write attributes of self by computed names."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and dotted(part.func) in ("setattr", "delattr", "vars") and part.args:
            on_self = isinstance(part.args[0], ast.Name) and part.args[0].id == owner
            named = len(part.args) > 1 and isinstance(part.args[1], ast.Constant)
            if on_self and not named:
                yield part.lineno
        elif isinstance(part, ast.Attribute) and part.attr == "__dict__" and dotted(part.value) == owner:
            yield part.lineno


def _missing(world: _World, name: str) -> Iterator[tuple[int, str]]:
    """Why a handler could be made before the attribute is there."""
    for one in world.moving:
        early = one.label in _EARLY or any(
            decorator_name(d) == "classmethod" for d in one.node.decorator_list
        )
        if early and not _at_class(world.shape, name):
            yield one.node.lineno, f"{one.label} runs where self.{name} need not be set"
    if _at_class(world.shape, name):
        return
    start = next((m for m in reversed(world.shape.methods) if m.name == "__init__"), None)
    if start is None or not (lines := _assignments(start.node, world.of(start).self_name, name)):
        yield world.shape.node.lineno, f"__init__ does not set self.{name} in any case"
        return
    last = max(
        [max(lines)]
        + [u.line for u in world.of(start).uses if u.attribute == name and u.kind in (*WRITING, *_REMOVING)]
    )
    reaching = _reaching(world)
    for use in world.of(start).uses:
        if use.line < last and (use.attribute is None or use.attribute in reaching):
            what = f"self.{use.attribute}" if use.attribute else "self"
            yield use.line, f"__init__ hands out {what} before it sets self.{name} in line {last}"
    for part in ast.walk(start.node):
        line = getattr(part, "lineno", last)
        if isinstance(part, ast.Return) and line < last:
            yield line, f"__init__ may return before it sets self.{name} in line {last}"
        if isinstance(part, ast.Name) and part.id == "super" and line < last:
            for path in _bases_that_call(world):
                yield (
                    line,
                    f"the base in {path} may call a moved method before self.{name} is set in line {last}",
                )


def _bases_that_call(world: _World) -> Iterator[str]:
    """Files that define a base of the class and call something of the name of a moved method on self."""
    labels = b"|".join(re.escape(one.label).encode() for one in world.moving)
    call = re.compile(rb"\bself\.(?:%b)\b" % labels)
    for path in world.tree.python_files():
        data = world.tree.read(path) or b""
        if path == world.recipe.source_file:
            start, end = world.shape.node.lineno - 1, world.shape.node.end_lineno
            lines = data.splitlines(keepends=True)
            data = b"".join((*lines[:start], *lines[end:]))
        defined = (
            re.search(rb"class[ \t]+%b\b" % re.escape(base).encode(), data) for base in world.kin.above
        )
        if any(defined) and call.search(data):
            yield path


def _at_class(shape: ClassOutline, name: str) -> bool:
    return any(
        isinstance(statement, ast.Assign | ast.AnnAssign)
        and statement.value is not None
        and name
        in {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for statement in shape.node.body
    )


def _assignments(node: FunctionNode, owner: str | None, name: str) -> list[int]:
    """Lines of statements of the function itself, under no condition, that bind `self.<name>`."""
    return [
        statement.lineno
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
        for part in ast.walk(statement)
        if isinstance(part, ast.Attribute)
        and isinstance(part.ctx, ast.Store)
        and part.attr == name
        and dotted(part.value) == owner
    ]


def _reaching(world: _World) -> frozenset[str]:
    """Methods that may come to run a moved one: by calling it, or by giving self away."""
    found = {one.label for one in world.moving}
    names = {method.name for method in world.shape.methods}
    while True:
        more = {
            method.name
            for method in world.shape.methods
            if method.name not in found
            and any(u.attribute is None or u.attribute in found & names for u in world.of(method).uses)
        }
        if not more:
            return frozenset(found & names)
        found |= more


def _asked(world: _World, name: str) -> Iterator[tuple[int, str]]:
    """Where the class asks whether an inner attribute is there at all."""
    for part in ast.walk(world.shape.node):
        if isinstance(part, ast.Call) and dotted(part.func) in ("hasattr", "getattr") and len(part.args) > 1:
            if isinstance(part.args[1], ast.Constant) and part.args[1].value == name:
                yield part.lineno, f"{dotted(part.func)}() asks whether there is {name}"


def _mutations(spec: SnapshotSpec, one: Declared) -> Iterator[Refusal]:
    """Statements of a moved method that change what a field holds."""
    held = mark(spec.name)
    for node in ast.walk(one.moving.node):
        changed: ast.expr | None = None
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            changed = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _MUTATORS
        ):
            changed = node.func.value
        field = _field(changed, held)
        if field:
            line = getattr(node, "lineno", 0)
            yield Refusal("MG121", one.moving.label, line, f"it changes {spec.name}.{field}")


def _field(node: ast.expr | None, held: str) -> str:
    """The field that an expression leads through, "" for none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == held:
            return node.attr
        node = node.value
    return ""
