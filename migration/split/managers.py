"""Which `with` items let every exception out.

One that may swallow an exception makes what follows run with half of the body done; only where this
is known not to happen may a cut inside the body give names to what comes after it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from migration.code.facts import dotted, own_scope
from migration.code.import_roots import import_root
from migration.code.module_file import module_file
from migration.code.source import Source
from migration.code.structure import FunctionNode
from migration.code.syntax import parse_or_none
from migration.code.tree import Tree
from migration.split.effects import inner_statements

#: Of the standard library and torch: each returns None or False from `__exit__`, always.
_KNOWN = frozenset(
    (
        "contextlib.closing",
        "contextlib.nullcontext",
        "contextlib.redirect_stderr",
        "contextlib.redirect_stdout",
        "io.open",
        "open",
        "tempfile.NamedTemporaryFile",
        "tempfile.TemporaryDirectory",
        "tempfile.TemporaryFile",
        "threading.Condition",
        "threading.Lock",
        "threading.RLock",
        "warnings.catch_warnings",
        "torch.autocast",
        "torch.autograd.profiler.record_function",
        "torch.cuda.device",
        "torch.cuda.graph",
        "torch.cuda.stream",
        "torch.device",
        "torch.enable_grad",
        "torch.inference_mode",
        "torch.no_grad",
        "torch.profiler.record_function",
        "torch.set_grad_enabled",
    )
)
_DECORATORS = frozenset(("contextmanager", "asynccontextmanager"))


@dataclass
class Managers:
    """Answers for one file; `vouched` are callables that the user knows to let exceptions out."""

    source: Source
    class_node: ast.ClassDef
    method: FunctionNode
    tree: Tree | None = None
    vouched: Collection[str] = ()
    asked: dict[str, bool] = field(default_factory=dict)

    def propagates(self, item: ast.withitem) -> bool:
        """True when an exception in the body of this `with` is sure to come out of it."""
        expression = item.context_expr
        name = dotted(expression.func if isinstance(expression, ast.Call) else expression)
        if not name:
            return False
        if name not in self.asked:
            self.asked[name] = self._lets_out(name, called=isinstance(expression, ast.Call))
        return self.asked[name]

    def doubtful(self) -> tuple[str, ...]:
        """Those asked about so far of which it is not known that they let every exception out."""
        return tuple(sorted(name for name, sure in self.asked.items() if not sure))

    def _lets_out(self, name: str, *, called: bool) -> bool:
        last = name.rpartition(".")[2]
        if name in self.vouched or last in self.vouched:
            return True
        if not called:
            return last.lower().endswith("lock")
        if name in _KNOWN or self._imported_name(name) in _KNOWN:
            return True
        owner = name.rpartition(".")[0]
        if owner == "self":
            return _is_safe(_definitions(self.class_node.body, last))
        if not owner:
            here = _definitions(self.source.tree.body, last)
            return _is_safe(here or self._elsewhere(name))
        return False

    @cached_property
    def _imports(self) -> dict[str, str]:
        """name -> dotted name, of what the module or the method takes by `from ... import`."""
        found: dict[str, str] = {}
        stack: list[ast.stmt] = [*self.method.body, *self.source.tree.body]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif not isinstance(node, FunctionNode | ast.ClassDef):
                stack += inner_statements(node)
        return found

    def _imported_name(self, name: str) -> str:
        """`nullcontext` -> `contextlib.nullcontext`, where an import says so."""
        head, dot, rest = name.partition(".")
        return self._imports.get(head, "") + dot + rest if head in self._imports else ""

    def _elsewhere(self, name: str) -> list[ast.stmt]:
        """The definitions of `name` in the module of the tree that the file imports it from."""
        full = self._imported_name(name)
        module, _, attribute = full.rpartition(".")
        if self.tree is None or not module:
            return []
        file = module_file(self.tree, module, import_root(self.tree, self.source))
        parsed = parse_or_none(file[1]) if file is not None else None
        return _definitions(parsed.body, attribute) if parsed is not None else []


def _definitions(body: list[ast.stmt], name: str) -> list[ast.stmt]:
    """Every statement of `body`, conditional ones included, that defines or binds `name`."""
    found: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found += [node] if node.name == name else []
        elif any(isinstance(part, ast.Name) and part.id == name for part in _targets(node)):
            found.append(node)
        else:
            for field_name in ("body", "orelse", "finalbody"):
                found += _definitions(getattr(node, field_name, []), name)
            for handler in getattr(node, "handlers", ()):
                found += _definitions(handler.body, name)
    return found


def _targets(node: ast.stmt) -> Iterator[ast.AST]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from ast.walk(target)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        yield node.target


def _is_safe(definitions: list[ast.stmt]) -> bool:
    return bool(definitions) and all(map(_never_swallows, definitions))


def _never_swallows(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        exits = [*_definitions(node.body, "__exit__"), *_definitions(node.body, "__aexit__")]
        return bool(exits) and all(
            isinstance(part, FunctionNode) and all(map(_returns_nothing, own_scope(part))) for part in exits
        )
    if not isinstance(node, FunctionNode):
        return False
    names = [dotted(decorator).rpartition(".")[2] for decorator in node.decorator_list]
    return len(names) == 1 and names[0] in _DECORATORS and all(map(_lets_yield_raise, node.body))


def _returns_nothing(node: ast.AST) -> bool:
    if not isinstance(node, ast.Return) or node.value is None:
        return True
    return isinstance(node.value, ast.Constant) and not node.value.value


def _lets_yield_raise(node: ast.stmt) -> bool:
    """False where a `yield` in `node` stands under something that may catch what is thrown into it."""
    guarded = isinstance(node, ast.With | ast.AsyncWith) or (
        isinstance(node, ast.Try | ast.TryStar)
        and (
            bool(node.handlers)
            or any(isinstance(part, ast.Return) for s in node.finalbody for part in ast.walk(s))
        )
    )
    if guarded:
        return not any(isinstance(part, ast.Yield) for part in ast.walk(node))
    return all(_lets_yield_raise(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt))
