"""How one definition moves: its name in the handler, and which parts of its head stay on the stub.

A decorator that may be evaluated in the handler module moves with the body. Any other (`property`,
`classmethod`, a registry) stays on the stub, which is a method of the same class with the same
signature: what the decorator does to it, it did to the original. Defaults stay likewise when the
handler module could not evaluate them to the very same objects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from migration.code.facts import MethodFacts, accessor_of, dotted, own_scope
from migration.code.structure import FunctionNode, Method
from migration.code.tree import Tree
from migration.move.names import ModuleNames
from migration.recipe import Recipe

CONTEXT_MANAGERS = frozenset(("contextmanager", "contextlib.contextmanager"))
ASYNC_CONTEXT_MANAGERS = frozenset(("asynccontextmanager", "contextlib.asynccontextmanager"))
GRAD_MODES = frozenset(("torch.no_grad", "torch.inference_mode"))
_MOVABLE_DECORATORS = CONTEXT_MANAGERS | ASYNC_CONTEXT_MANAGERS | GRAD_MODES


@dataclass(frozen=True)
class Moving:
    """One definition and the declared differences between it and its copy in the handler."""

    method: Method
    facts: MethodFacts
    #: Name in the handler: the original's, but for special methods, private ones and accessors.
    name: str
    #: Decorators that stay on the stub; `staticmethod` stays and moves.
    staying: tuple[ast.expr, ...]
    #: The handler's copy has no defaults: the stub passes every argument.
    bare: bool
    #: The stub keeps a copy of the docstring, for the decorators that stay and for `help()`.
    documented: bool

    @property
    def node(self) -> FunctionNode:
        return self.method.node

    @property
    def label(self) -> str:
        return self.method.name

    @property
    def is_direct(self) -> bool:
        """Calling the copy on the handler means the same as calling the method on the worker."""
        return not self.staying and not self.bare and self.name == self.label

    @property
    def is_managed(self) -> bool:
        """A context manager by a decorator that moves with it."""
        return bool((CONTEXT_MANAGERS | ASYNC_CONTEXT_MANAGERS) & set(self.moving_decorators))

    @property
    def is_async_generator(self) -> bool:
        return isinstance(self.node, ast.AsyncFunctionDef) and yields(self.node) and not self.is_managed

    @property
    def name_column(self) -> int:
        """Byte column of the name in its `def` line."""
        words = "async def " if isinstance(self.node, ast.AsyncFunctionDef) else "def "
        return self.node.col_offset + len(words)

    @property
    def moving_decorators(self) -> tuple[str, ...]:
        return tuple(decorator_name(d) for d in self.node.decorator_list if d not in self.staying)


def decorator_name(decorator: ast.expr) -> str:
    """Dotted name of a decorator, of a called one too; "" for any other expression."""
    return dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)


def yields(node: FunctionNode) -> bool:
    return any(isinstance(part, ast.Yield | ast.YieldFrom) for part in own_scope(node))


def is_overload(node: FunctionNode) -> bool:
    return any(dotted(d).rpartition(".")[2] == "overload" for d in node.decorator_list)


def mangled(name: str, class_name: str) -> str:
    """What Python makes of a private name in the body of `class_name`."""
    if not name.startswith("__") or name.endswith("__") or not class_name.strip("_"):
        return name
    return f"_{class_name.lstrip('_')}{name}"


def moved_name(method: Method, class_name: str) -> str:
    """`__len__` -> `dunder_len`, `@x.setter def x` -> `x_setter`, `__private` -> `_Worker__private`."""
    name = method.name
    if name.startswith("__") and name.endswith("__") and len(name) > 4:
        return f"dunder_{name.strip('_')}"
    if accessor := accessor_of(method):
        return f"{name}_{accessor}"
    return mangled(name, class_name)


def decide(
    method: Method,
    facts: MethodFacts,
    recipe: Recipe,
    names: ModuleNames,
    class_names: frozenset[str],
    tree: Tree,
) -> Moving:
    """The way in which a definition moves."""
    node = method.node
    movable = _MOVABLE_DECORATORS | set(recipe.decorators)

    def at_hand(part: ast.AST) -> bool:
        used = {n.id for n in ast.walk(part) if isinstance(n, ast.Name)}
        return not used & class_names and all(
            name not in names.bindings or names.runtime_import(name, tree) is not None for name in used
        )

    free = [d for d in node.decorator_list if not (isinstance(d, ast.Name) and d.id == "staticmethod")]
    stay = any(decorator_name(d) not in movable or not at_hand(d) for d in free)
    staying = tuple(free) if stay else ()
    defaults = [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
    bare = not all(_is_value(default) and at_hand(default) for default in defaults)
    documented = bool(staying) or recipe.docstrings
    return Moving(method, facts, moved_name(method, recipe.source_class), staying, bare, documented)


def _is_value(default: ast.expr) -> bool:
    """A default that is the same wherever it is evaluated: constants, names, and tuples of them."""
    if isinstance(default, ast.Tuple | ast.UnaryOp | ast.BinOp):
        return all(_is_value(part) for part in ast.iter_child_nodes(default) if isinstance(part, ast.expr))
    return isinstance(default, ast.Constant) or bool(dotted(default))


def default_of(node: FunctionNode) -> Iterator[tuple[ast.arg, ast.expr]]:
    """Every parameter that has a default, with it."""
    positional = [*node.args.posonlyargs, *node.args.args]
    yield from zip(positional[len(positional) - len(node.args.defaults) :], node.args.defaults, strict=True)
    for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if default is not None:
            yield arg, default
