"""What one method does: every use of self with its position, calls, collectives, environment reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from migration.code.structure import FunctionNode, Method

_ACCESSORS = ("setter", "deleter", "getter")

UseKind = Literal[
    "read",
    "write",
    "augment",
    "delete",
    "call",
    "hasattr",
    "getattr",
    "setattr",
    "delattr",
    "dynamic",
    "escape",
]
_REFLECTION: dict[str, UseKind] = {
    "hasattr": "hasattr",
    "getattr": "getattr",
    "setattr": "setattr",
    "delattr": "delattr",
}
_RANK_LOCAL = frozenset(
    ("get_rank", "get_world_size", "get_backend", "is_initialized", "is_available", "get_process_group_ranks")
)
READING: frozenset[UseKind] = frozenset({"read", "augment", "call", "getattr"})
WRITING: frozenset[UseKind] = frozenset({"write", "augment", "setattr"})


@dataclass(frozen=True)
class SelfUse:
    """One mention of self: where its name stands (byte column) and the attribute that is meant."""

    kind: UseKind
    attribute: str | None
    line: int
    column: int


@dataclass(frozen=True)
class MethodFacts:
    self_name: str | None
    uses: tuple[SelfUse, ...]
    nested_over_self: tuple[str, ...]
    collectives: tuple[tuple[str, int], ...]
    environment: tuple[tuple[str, int], ...]

    def attributes(self, kinds: frozenset[UseKind]) -> tuple[str, ...]:
        return tuple(sorted({u.attribute for u in self.uses if u.kind in kinds and u.attribute is not None}))


def is_static(node: FunctionNode) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)


def self_name(node: FunctionNode) -> str | None:
    """Name of the first positional parameter, None for a static method or one without any."""
    positional = [*node.args.posonlyargs, *node.args.args]
    return positional[0].arg if positional and not is_static(node) else None


def accessor_of(method: Method) -> str:
    """ "setter", "deleter" or "getter" for `@name.setter def name`, "" for any other definition."""
    for decorator in method.node.decorator_list:
        owner, _, accessor = dotted(decorator).rpartition(".")
        if owner == method.name and accessor in _ACCESSORS:
            return accessor
    return ""


def parameters(arguments: ast.arguments) -> list[str]:
    """All parameter names of a signature."""
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [arg.arg for arg in (*named, arguments.vararg, arguments.kwarg) if arg is not None]


def method_facts(node: FunctionNode) -> MethodFacts:
    """Facts of one definition. A nested scope that takes the name of self as a parameter hides it."""
    name = self_name(node)
    visitor = _Visitor(name)
    for statement in node.body:
        visitor.visit(statement)
    return MethodFacts(
        name,
        tuple(sorted(visitor.uses, key=lambda use: (use.line, use.column))),
        tuple(visitor.nested),
        tuple(visitor.collectives),
        tuple(visitor.environment),
    )


def name_uses(node: FunctionNode, name: str) -> tuple[SelfUse, ...]:
    """Every use of a name in the body of a function, as if it were self."""
    visitor = _Visitor(name)
    for statement in node.body:
        visitor.visit(statement)
    return tuple(sorted(visitor.uses, key=lambda use: (use.line, use.column)))


class _Visitor(ast.NodeVisitor):
    def __init__(self, name: str | None) -> None:
        self.name = name
        self.uses: list[SelfUse] = []
        self.nested: list[str] = []
        self.collectives: list[tuple[str, int]] = []
        self.environment: list[tuple[str, int]] = []

    def _is_self(self, node: ast.AST) -> bool:
        return self.name is not None and isinstance(node, ast.Name) and node.id == self.name

    def _use(self, kind: UseKind, attribute: str | None, node: ast.expr) -> None:
        self.uses.append(SelfUse(kind, attribute, node.lineno, node.col_offset))

    def visit_Name(self, node: ast.Name) -> None:
        if self._is_self(node):
            self._use("escape", None, node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._is_self(node.value):
            kinds: dict[type[ast.expr_context], UseKind] = {
                ast.Load: "read",
                ast.Store: "write",
                ast.Del: "delete",
            }
            self._use(kinds[type(node.ctx)], node.attr, node.value)
            return
        if dotted(node) == "os.environ":
            self.environment.append(("os.environ", node.lineno))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Attribute) and self._is_self(target.value):
            self._use("augment", target.attr, target.value)
        else:
            self.visit(target)
        self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if dotted(node.value) == "os.environ":
            self.environment.append((_literal(node.slice), node.lineno))
            self.visit(node.slice)
        else:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        rest: list[ast.AST] = [*node.args, *node.keywords]
        path = dotted(function)
        if path in ("os.getenv", "os.environ.get", "_os.environ.get", "_os.getenv"):
            self.environment.append((_literal(node.args[0]) if node.args else "?", node.lineno))
        elif path.startswith(("dist.", "torch.distributed.")):
            if path.rpartition(".")[2] not in _RANK_LOCAL:
                self.collectives.append((path, node.lineno))
        elif isinstance(function, ast.Attribute) and self._is_self(function.value):
            self._use("call", function.attr, function.value)
        elif (
            isinstance(function, ast.Name) and function.id in _REFLECTION and rest and self._is_self(rest[0])
        ):
            name = node.args[1] if len(node.args) > 1 else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                self._use(_REFLECTION[function.id], name.value, node.args[0])
            else:
                self._use("dynamic", None, node.args[0])
            rest = rest[1:]
        else:
            self.visit(function)
        for part in rest:
            self.visit(part)

    def _nested(self, node: ast.AST, label: str, arguments: ast.arguments | None) -> None:
        if arguments is not None and self.name in parameters(arguments):
            # Its own parameter hides self inside; defaults and decorators still see the outer one.
            outside = [*arguments.defaults, *arguments.kw_defaults, *getattr(node, "decorator_list", [])]
            for part in outside:
                if part is not None:
                    self.visit(part)
            return
        before = len(self.uses)
        self.generic_visit(node)
        if len(self.uses) > before:
            self.nested.append(label)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._nested(node, node.name, node.args)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._nested(node, node.name, node.args)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._nested(node, f"lambda:{node.lineno}", node.args)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._nested(node, node.name, None)


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of names, "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _literal(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)


def own_scope(node: FunctionNode) -> Iterator[ast.AST]:
    """Nodes of the function body that run in its own scope, nested functions and classes left out."""
    stack: list[ast.AST] = list(node.body)
    while stack:
        current = stack.pop()
        yield current
        if not isinstance(current, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            stack.extend(ast.iter_child_nodes(current))


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Every statement below `node`, in no particular order; expressions are not entered."""
    stack: list[ast.AST] = [node]
    while stack:
        current = stack.pop()
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            children = getattr(current, field, None)
            if isinstance(children, list):
                stack += children
                yield from (child for child in children if isinstance(child, ast.stmt))


def facts_of_name(node: FunctionNode, name: str) -> MethodFacts:
    """Facts of one definition about another name as if it were self: an alias such as `worker = self`."""
    visitor = _Visitor(name)
    for statement in node.body:
        visitor.visit(statement)
    uses = tuple(sorted(visitor.uses, key=lambda use: (use.line, use.column)))
    return MethodFacts(name, uses, tuple(visitor.nested), (), ())


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Direct child nodes, the context markers left out."""
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            for item in value:
                if isinstance(item, ast.AST):
                    yield item
        elif isinstance(value, ast.AST) and name != "ctx":
            yield value
