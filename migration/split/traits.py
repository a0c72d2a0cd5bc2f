"""What single statements do that a helper could not do in their place, or only in a certain form."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from migration.code.facts import dotted
from migration.code.structure import FunctionNode
from migration.split.effects import inner_statements
from migration.split.scope import Comprehension, Nested, Scope, bound_names, outside_parts

_FRAME_CALLS = ("currentframe", "inspect.stack", "inspect.trace", "_getframe", "_getframemodulename")
#: Calls whose result is done away with when the last name for it is gone.
_KEEPERS = frozenset(
    (
        "NamedTemporaryFile",
        "SpooledTemporaryFile",
        "TemporaryDirectory",
        "TemporaryFile",
        "create_task",
        "ensure_future",
    )
)
#: What gives away an object without holding it: its address, its descriptor, a weak reference.
_UNHELD = frozenset(
    (
        "__array_interface__",
        "__cuda_array_interface__",
        "addressof",
        "byref",
        "ctypes",
        "data_ptr",
        "fileno",
        "from_buffer",
        "weakref.finalize",
        "weakref.proxy",
        "weakref.ref",
    )
)
_Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True)
class Obstacle:
    """Why there can be no cut; `stands` when no longer run from the same start can help."""

    code: str
    line: int
    message: str
    stands: bool = False


@dataclass(frozen=True)
class Traits:
    """`blocked`: why it must stay in the method. `jump`: a `break` or `continue` that leads out of it.
    `returns`: the line of a `return` in it, or 0. `deleted`, `keepers`: masks of names that it deletes,
    and of those that keep something alive which other code uses without holding it.
    """

    blocked: Obstacle | None = None
    jump: Obstacle | None = None
    returns: int = 0
    awaits: bool = False
    deleted: int = 0
    keepers: int = 0


@dataclass
class TraitReader:
    """Traits in one method, read once a statement."""

    scope: Scope
    _known: dict[int, Traits] = field(default_factory=dict)

    def of(self, node: ast.stmt) -> Traits:
        if id(node) not in self._known:
            self._known[id(node)] = self._read(node)
        return self._known[id(node)]

    def _read(self, node: ast.stmt) -> Traits:
        own = self._own(node)
        if isinstance(node, FunctionNode | ast.ClassDef):
            return own
        inner = [self.of(part) for part in inner_statements(node)]
        leaving = [self.of(part) for part in node.orelse] if isinstance(node, _Loop) else inner
        merged = [own, *inner]
        return Traits(
            next((found.blocked for found in merged if found.blocked), None),
            next((found.jump for found in (own, *leaving) if found.jump), None),
            next((found.returns for found in merged if found.returns), 0),
            any(found.awaits for found in merged),
            _union(found.deleted for found in merged),
            _union(found.keepers for found in merged),
        )

    def _own(self, node: ast.stmt) -> Traits:
        """Of the statement without those inside it."""
        blocked: Obstacle | None = None
        jump: Obstacle | None = None
        if isinstance(node, ast.Break | ast.Continue):
            word = "break" if isinstance(node, ast.Break) else "continue"
            jump = Obstacle("MG509", node.lineno, f"{word} leads out of the block", True)
        elif isinstance(node, ast.Global):
            blocked = Obstacle("MG517", node.lineno, f"global {', '.join(node.names)}", True)
        awaits, deleted, keepers = isinstance(node, ast.AsyncFor | ast.AsyncWith), 0, 0
        for part in _own_parts(node):
            line = getattr(part, "lineno", node.lineno)
            awaits = awaits or _awaits(part)
            if isinstance(part, ast.Yield | ast.YieldFrom):
                blocked = Obstacle("MG510", line, "yields from the method itself", True)
            elif written := self.scope.globals.intersection(_bound_by(part)):
                blocked = Obstacle("MG517", line, f"writes the global {', '.join(sorted(written))}", True)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Del):
                deleted |= self.scope.mask([part.id])
            elif isinstance(value := getattr(part, "value", None), ast.Call):
                if dotted(value.func).rpartition(".")[2] in _KEEPERS:
                    keepers |= self.scope.mask(_assigned_by(part))
        deep = list(ast.walk(node) if isinstance(node, Nested) else _deep(_own_parts(node)))
        if any(map(_is_unheld, deep)):
            keepers |= self.scope.mask(part.id for part in deep if isinstance(part, ast.Name))
        for part in deep:
            if isinstance(part, ast.Name) and part.id in self.scope.type_parameters:
                blocked = Obstacle("MG518", part.lineno, f"names the type parameter {part.id}", True)
            elif isinstance(part, ast.keyword) and part.arg == "stacklevel":
                blocked = Obstacle("MG519", part.value.lineno, "stacklevel counts frames", True)
            elif isinstance(part, ast.Call) and dotted(part.func).endswith(_FRAME_CALLS):
                blocked = Obstacle(
                    "MG519", part.lineno, f"{dotted(part.func)}() sees the frame it is in", True
                )
        returns = node.lineno if isinstance(node, ast.Return) else 0
        return Traits(blocked, jump, returns, awaits, deleted, keepers)


def _is_unheld(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr in _UNHELD:
        return True
    return (
        isinstance(node, ast.Call)
        and (path := dotted(node.func)) != ""
        and (path in _UNHELD or path.rpartition(".")[2] in _UNHELD)
    )


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _own_parts(node: ast.stmt) -> list[ast.AST]:
    """The statement and what it evaluates in the method's scope, the statements inside it left out."""
    found: list[ast.AST] = [node]
    stack: list[ast.AST] = _evaluated(node)
    while stack:
        part = stack.pop()
        if not isinstance(part, ast.stmt):
            found.append(part)
            stack += _evaluated(part)
    return found


def _evaluated(node: ast.AST) -> list[ast.AST]:
    return [*outside_parts(node)] if isinstance(node, Nested) else [*ast.iter_child_nodes(node)]


def _deep(parts: list[ast.AST]) -> Iterator[ast.AST]:
    """`parts` and what is inside the nested scopes among them."""
    for part in parts:
        if isinstance(part, Nested):
            yield from ast.walk(part)
        else:
            yield part


def _awaits(node: ast.AST) -> bool:
    if isinstance(node, Comprehension):
        return any(
            isinstance(part, ast.Await) or (isinstance(part, ast.comprehension) and bool(part.is_async))
            for part in ast.walk(node)
        )
    return isinstance(node, ast.Await)


def _bound_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return [node.id]
    return bound_names(node)


def _assigned_by(node: ast.AST) -> list[str]:
    targets = [*getattr(node, "targets", ()), getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]
