"""Methods that cannot be split at all, whatever the cut."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migration.code.facts import dotted, is_static, self_name
from migration.code.source import Source
from migration.code.structure import ClassOutline, Method
from migration.code.syntax import parse_or_none
from migration.code.tree import Tree
from migration.errors import Refusal
from migration.split.scope import bound_names

_CLASS_NAMES = frozenset(("cls", "klass", "mcs", "metacls"))
_BINDERS = frozenset(("MethodType", "partial", "partialmethod"))
#: Decorators, by the last part of their name, that compile what they read in the source or the bytecode.
_READERS = frozenset(
    (
        "guvectorize",
        "jit",
        "jit_module",
        "kernel",
        "njit",
        "pjit",
        "script",
        "script_if_tracing",
        "stencil",
        "vectorize",
    )
)


def method_refusals(
    source: Source, shape: ClassOutline, method: Method, over: int, tree: Tree | None
) -> tuple[Refusal, ...]:
    """Every reason; `over` is how many definitions of that name are over the budget."""
    found = [*_definition(shape, method, over), *_body(method), *_foreign_uses(source, shape, method, tree)]
    return tuple(Refusal(code, method.name, line, message) for code, line, message in found)


_Found = Iterator[tuple[str, int, str]]


def _definition(shape: ClassOutline, method: Method, over: int) -> _Found:
    node, line = method.node, method.node.lineno
    if over > 1:
        yield "MG502", line, f"{over} definitions of {method.name} are over the budget"
    name = self_name(node)
    positional = [*node.args.posonlyargs, *node.args.args]
    if is_static(node) or name is None:
        yield "MG503", line, "it is static" if is_static(node) else "it has no positional parameter"
    elif node.name in ("__new__", "__init_subclass__", "__class_getitem__"):
        yield (
            "MG503",
            line,
            f"{positional[0].arg} is the class, and {node.name} has no decorator that says so",
        )
    elif positional[0].arg in _CLASS_NAMES and not _is_class_method(method) and not _is_metaclass(shape):
        yield "MG503", line, f"{name} is a class by its name, and nothing known makes it a class method"
    for decorator in node.decorator_list:
        path = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if path.rpartition(".")[2] in _READERS:
            yield "MG505", decorator.lineno, f"@{path}"
    if "Protocol" in _bases(shape):
        yield "MG507", line, f"{shape.name} is a Protocol: a helper would become a member of it"
    elif shape.definitions("__getattribute__"):
        yield "MG507", line, f"{shape.name} has a __getattribute__, which would see the helpers being called"


def _bases(shape: ClassOutline) -> set[str]:
    parts = (base.value if isinstance(base, ast.Subscript) else base for base in shape.node.bases)
    return {dotted(base).rpartition(".")[2] for base in parts}


def _is_metaclass(shape: ClassOutline) -> bool:
    return any(base == "type" or base.endswith("Meta") for base in _bases(shape))


def _is_class_method(method: Method) -> bool:
    return "classmethod" in {dotted(decorator) for decorator in method.node.decorator_list}


def _body(method: Method) -> _Found:
    name = self_name(method.node)
    for node in ast.walk(method.node):
        stored = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and node.id == name
        if stored or (node is not method.node and name in bound_names(node)):
            yield "MG506", getattr(node, "lineno", method.node.lineno), f"{name} is bound again"


def _foreign_uses(source: Source, shape: ClassOutline, method: Method, tree: Tree | None) -> _Found:
    """Places where the method runs on an object that may lack the helpers: a fake, an instance of another class."""
    if _is_class_method(method):
        return
    wanted = re.compile(rb"\b%s\s*\.\s*%s\b" % (shape.name.encode(), method.name.encode()))
    files = [(source.path, source.data)]
    if tree is not None:
        files += [(path, tree.read(path) or b"") for path in tree.python_files() if path != source.path]
    for path, data in files:
        if not wanted.search(data):
            continue
        module = source.tree if path == source.path else parse_or_none(data)
        if module is None:
            continue
        for node in ast.walk(module):
            yield from (
                ("MG520", line, f"{path}:{line} {how}")
                for line, how in _foreign_at(node, shape.name, method.name)
            )


def _foreign_at(node: ast.AST, owner: str, method: str) -> Iterator[tuple[int, str]]:
    def meant(part: ast.AST) -> bool:
        return (
            isinstance(part, ast.Attribute)
            and part.attr == method
            and dotted(part.value).rpartition(".")[2] == owner
        )

    if isinstance(node, ast.Call):
        first = node.args[0] if node.args else None
        if (
            meant(node.func)
            and not isinstance(first, ast.Starred)
            and dotted(first or node) not in ("self", "cls")
        ):
            yield node.lineno, "calls it on an object that is not self"
        elif dotted(node.func).rpartition(".")[2] in _BINDERS and first is not None and meant(first):
            yield node.lineno, "binds it to an object"
    elif isinstance(node, ast.Attribute) and node.attr == "__get__" and meant(node.value):
        yield node.lineno, "binds it to an object"
    elif isinstance(node, ast.ClassDef) and not any(
        dotted(base).rpartition(".")[2] == owner for base in node.bases
    ):
        for statement in node.body:
            if isinstance(statement, ast.Assign) and meant(statement.value):
                yield statement.lineno, f"makes it a method of {node.name}"
