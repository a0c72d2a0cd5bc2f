"""What the body of a class binds, and what can be known of each binding."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from migration.code.facts import dotted, own_scope
from migration.code.module_names import ModuleNames, bound_names, module_level
from migration.code.structure import FunctionNode

#: Decorators after which a call runs the body as it stands.
_TRANSPARENT = frozenset(
    (
        "abc.abstractmethod",
        "torch.inference_mode",
        "torch.jit.ignore",
        "torch.jit.unused",
        "torch.no_grad",
        "torch.enable_grad",
        "torch.compiler.disable",
        "typing.final",
        "typing.no_type_check",
        "typing.override",
        "typing_extensions.final",
        "typing_extensions.override",
    )
)
#: Decorators that leave a plain callable, whatever a call of it does.
_CALLABLE = _TRANSPARENT | {
    "contextlib.asynccontextmanager",
    "contextlib.contextmanager",
    "functools.cache",
    "functools.lru_cache",
    "classmethod",
    "staticmethod",
}
_PROPERTIES = frozenset(("property", "functools.cached_property", "abc.abstractproperty"))
_CONSTANTS = (
    ast.Constant
    | ast.List
    | ast.Tuple
    | ast.Dict
    | ast.Set
    | ast.JoinedStr
    | ast.Lambda
    | ast.ListComp
    | ast.SetComp
    | ast.DictComp
)


@dataclass(frozen=True)
class Binding:
    """One binding of a name in a class body. `node` is the statement."""

    name: str
    node: ast.stmt
    conditional: bool

    @property
    def line(self) -> int:
        return self.node.lineno

    @property
    def value(self) -> ast.expr | None:
        return getattr(self.node, "value", None)


class ClassBody:
    """Bindings of one class body by name, in order."""

    def __init__(self, node: ast.ClassDef, module: ModuleNames) -> None:
        self.node = node
        self.module = module

    @cached_property
    def bindings(self) -> dict[str, tuple[Binding, ...]]:
        found: dict[str, list[Binding]] = {}
        for statement in module_level(self.node.body):
            conditional = statement not in self._top_level
            for name in _bound(statement):
                found.setdefault(name, []).append(Binding(name, statement, conditional))
        return {name: tuple(items) for name, items in found.items()}

    @cached_property
    def _top_level(self) -> frozenset[ast.stmt]:
        return frozenset(self.node.body)

    @cached_property
    def functions(self) -> tuple[FunctionNode, ...]:
        """Every function that the body defines, conditional and shadowed ones too."""
        return tuple(
            binding.node
            for items in self.bindings.values()
            for binding in items
            if isinstance(binding.node, ast.FunctionDef | ast.AsyncFunctionDef)
        )

    def origin(self, node: ast.expr) -> str:
        """What a decorator or base means, dotted; a builtin by its own name."""
        path = dotted(node.func if isinstance(node, ast.Call) else node)
        root, _, rest = path.partition(".")
        if root in self.module.own or root in self.module.repeated:
            return f"<module>.{path}"
        start = self.module.origins.get(root, root)
        return f"{start}.{rest}" if rest else start

    def kind(self, name: str) -> Literal["attribute", "computed", "unknown"] | None:
        """What looking the name up on an instance does, as far as this body decides it.

        `attribute`: it is there, and a lookup runs no code; `computed`: a property or another
        descriptor answers; `unknown`: it cannot be seen; None: the body does not bind the name.
        """
        items = self.bindings.get(name, ())
        if not items:
            return None
        last = items[-1]
        if last.conditional or isinstance(last.node, ast.Delete):
            return "unknown"
        if isinstance(last.node, ast.FunctionDef | ast.AsyncFunctionDef):
            origins = [self.origin(decorator) for decorator in last.node.decorator_list]
            if all(origin in _CALLABLE for origin in origins):
                return "attribute"
            accessor = any(origin.rpartition(".")[2] in ("setter", "deleter", "getter") for origin in origins)
            return "computed" if accessor or origins[0] in _PROPERTIES else "unknown"
        if isinstance(last.node, ast.ClassDef):
            return "unknown" if last.node.decorator_list or last.node.keywords else "attribute"
        if isinstance(last.node, ast.Assign | ast.AnnAssign) and isinstance(last.value, _CONSTANTS):
            single = isinstance(last.node, ast.AnnAssign) or all(
                isinstance(target, ast.Name) for target in last.node.targets
            )
            return "attribute" if single else "unknown"
        return "unknown"

    def plain_method(self, name: str) -> FunctionNode | None:
        """The function that `self.name(...)` runs, body and all; None where that is not certain."""
        items = self.bindings.get(name, ())
        if not items or any(item.conditional for item in items):
            return None
        node = items[-1].node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_generator(node):
            return None
        transparent = all(self.origin(decorator) in _TRANSPARENT for decorator in node.decorator_list)
        return node if transparent else None


def is_generator(node: FunctionNode) -> bool:
    return any(isinstance(part, ast.Yield | ast.YieldFrom) for part in own_scope(node))


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.Delete):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    else:
        yield from bound_names(statement)
