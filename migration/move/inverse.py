"""The two sides of the comparison that the proof makes: the copy with its handles taken out, and the
original with its declared rewrites made. Neither shares code with the rewriting."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping

from migration.code.copies import copy_tree
from migration.code.facts import self_name
from migration.code.structure import FunctionNode
from migration.move.expected import Expressions, held
from migration.move.moving import Moving
from migration.move.proven import Place, Proven
from migration.recipe import Recipe

#: The rewrite by which a warning still names the caller.
STUB_COUNTED = "stacklevel counts the stub"


class Inverse(ast.NodeTransformer):
    """Take `self.<handle>` back to `self` in a method of the handler.

    `stray` lists every other use of self but the call of another method of the handler.
    """

    def __init__(self, recipe: Recipe, node: FunctionNode, methods: Collection[str]) -> None:
        self._module = recipe.source_module
        self._held = held(recipe)
        self._handles = {f"_{handle.name}" for handle in recipe.handles} - self._held
        self._node = node
        self._self = self_name(node)
        self._methods = methods
        self.renames: Counter[str] = Counter()
        self.stray: list[str] = []

    def restored(self, lazy: tuple[str, ...], alias: str | None) -> ast.AST:
        """The method without its imports from the worker module (which must be the declared ones)."""
        declared = [f"from {self._module} import {', '.join(lazy)}"] if lazy else []
        declared += [f"import {self._module} as {alias}"] if alias else []
        start = 1 if ast.get_docstring(self._node, clean=False) is not None else 0
        found = [ast.unparse(s) for s in self._node.body[start : start + len(declared)]]
        if found == declared:
            del self._node.body[start : start + len(declared)]
        else:
            self.stray.append(f"it does not begin with {declared}")
        return self.visit(self._node)

    def _of_self(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and self._is_self(node.value)

    def _is_self(self, node: ast.AST) -> bool:
        return self._self is not None and isinstance(node, ast.Name) and node.id == self._self

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if self._of_self(node) and node.attr in self._handles and isinstance(node.ctx, ast.Load):
            self.renames[node.attr[1:]] += 1
            return node.value
        if self._of_self(node) and node.attr in self._held and isinstance(node.ctx, ast.Load):
            return node
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if (
            isinstance(node.func, ast.Attribute)
            and self._of_self(node.func)
            and node.func.attr in self._methods
        ):
            node.args = [self.visit(part) for part in node.args]
            node.keywords = [self.visit(part) for part in node.keywords]
            return node
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if self._is_self(node):
            self.stray.append(f"{node.id} stands for the handler at its line {node.lineno}")
        return node

    def _scope(self, node: ast.AST) -> ast.AST:
        arguments = getattr(node, "args", None)
        if node is not self._node and isinstance(arguments, ast.arguments):
            if self._self in {child.arg for child in ast.walk(arguments) if isinstance(child, ast.arg)}:
                # Another self: its attributes are its own. Defaults were evaluated outside.
                arguments.defaults = [self.visit(part) for part in arguments.defaults]
                arguments.kw_defaults = [part and self.visit(part) for part in arguments.kw_defaults]
                return node
        return self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _scope


class Declared(ast.NodeTransformer):
    """Make the declared rewrites in a copy of the original tree; `counts` says how many of each kind."""

    def __init__(
        self,
        recipe: Recipe,
        one: Moving,
        late: Collection[str],
        alias: str,
        proven: Mapping[Place, Proven],
    ) -> None:
        is_package = recipe.source_file.endswith("/__init__.py")
        module = recipe.source_module
        self._package = module if is_package else module.rpartition(".")[0]
        self._class = recipe.source_class
        self._one = one
        self._late = frozenset(late)
        self._alias = alias
        self._classes = 0
        self._expressions = Expressions(recipe, self_name(one.node), proven)
        self.counts: Counter[str] = Counter()

    def is_needed(self) -> bool:
        """False for the method that moves word for word: no copy has to be made."""
        one = self._one
        if self._expressions.is_needed:
            return True
        if one.staying or one.bare or one.name != one.label or self._late:
            return True
        return any(
            (isinstance(n, ast.Name) and n.id == "super")
            or (isinstance(n, ast.Attribute) and n.attr.startswith("__") and not n.attr.endswith("__"))
            or (isinstance(n, ast.ImportFrom) and n.level > 0)
            or (isinstance(n, ast.keyword) and n.arg == "stacklevel")
            for n in ast.walk(one.node)
        )

    @property
    def declared(self) -> tuple[tuple[str, str, int], ...]:
        """(from, to, count) of what the recipe declares about expressions."""
        counts = self._expressions.counts
        return tuple((before, after, count) for (before, after), count in sorted(counts.items()))

    def expected(self) -> ast.FunctionDef | ast.AsyncFunctionDef:
        node = copy_tree(self._one.node)
        if self._one.staying:
            node.decorator_list = [
                d for d in node.decorator_list if isinstance(d, ast.Name) and d.id == "staticmethod"
            ]
            self.counts["decorators left to the stub"] += len(self._one.staying)
        if self._one.bare:
            node.args.defaults = []
            node.args.kw_defaults = [None] * len(node.args.kwonlyargs)
            self.counts["defaults left to the stub"] += 1
        if self._one.name != node.name:
            node.name = self._one.name
            self.counts[f"called {node.name} in the handler"] += 1
        if self._expressions.is_needed:
            node.body = [self._expressions.visit(statement) for statement in node.body]  # type: ignore[misc]
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._late and isinstance(node.ctx, ast.Load):
            self.counts["variable read through its module"] += 1
            return ast.Attribute(ast.Name(self._alias, ast.Load()), node.id, ast.Load())
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not self._classes and node.attr.startswith("__") and not node.attr.endswith("__"):
            self.counts["private name spelled out"] += 1
            node.attr = f"_{self._class.lstrip('_')}{node.attr}"
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not self._classes:
            if not node.args and not node.keywords:
                self.counts["super() spelled out"] += 1
                first = [*self._one.node.args.posonlyargs, *self._one.node.args.args][0].arg
                node.args = [ast.Name(self._class, ast.Load()), ast.Name(first, ast.Load())]
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        # Whatever else counts frames is refused, so that each of these is the method's own.
        if node.arg == "stacklevel" and ast.unparse(node.value) == "2":
            self.counts[STUB_COUNTED] += 1
            return ast.keyword("stacklevel", ast.Constant(3))
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.level:
            self.counts["relative import made absolute"] += 1
            base = self._package.split(".")
            parts = [*base[: len(base) - node.level + 1], *([node.module] if node.module else [])]
            return ast.ImportFrom(".".join(parts), node.names, 0)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._classes += 1
        self.generic_visit(node)
        self._classes -= 1
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.target = self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        returns, node.returns = node.returns, None
        self.generic_visit(node)
        node.returns = returns
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _function
