"""The declared expressions of a recipe made in the original tree, for the proof to compare with.

Written apart from `declared`, which edits bytes: here an expression is told by how `ast.unparse` spells it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping

from migration.literal_protocols import protocol_class
from migration.move.base import base_faults
from migration.move.proven import Place, Proven
from migration.move.request import request_faults
from migration.patterns import expression, links
from migration.recipe import Recipe


class Expressions(ast.NodeTransformer):
    """Put the handles of a recipe into a tree; `counts` says how often, by (from, to).

    A handle that is the worker itself stays `self`, as the other side of the comparison has it.
    """

    def __init__(
        self, recipe: Recipe, owner: str | None, proven: Mapping[Place, Proven] | None = None
    ) -> None:
        self._owner = owner
        self._proven = proven or {}
        handles = {handle.name: handle for handle in recipe.handles}
        self._rules: dict[str, tuple[str, tuple[str, ...], bool]] = {}
        for handle in recipe.handles:
            for text in handle.expressions:
                self._rules[self._spelled(text)] = (f"self._{handle.name}", (f"_{handle.name}",), True)
        for spec in recipe.rewrites:
            own = handles.get(spec.handle)
            path = spec.members if own is None or own.is_worker else (f"_{spec.handle}", *spec.members)
            to = ".".join((f"self._{spec.handle}", *spec.members))
            self._rules[self._spelled(spec.before)] = (to, path, False)
        for field in recipe.snapshot.fields if recipe.snapshot else ():
            assert recipe.snapshot is not None
            kept = (f"_{recipe.snapshot.name}", field.rpartition(".")[2])
            self._rules[self._spelled(f"self.{field}")] = (".".join(("self", *kept)), kept, True)
        self._from = {self._spelled(text): text for text in self._texts(recipe)}
        self._kinds = {type(expression(text)) for text in self._texts(recipe)}
        self.counts: Counter[tuple[str, str]] = Counter()

    @staticmethod
    def _texts(recipe: Recipe) -> list[str]:
        chains = [text for handle in recipe.handles for text in handle.expressions]
        fields = [f"self.{path}" for path in recipe.snapshot.fields] if recipe.snapshot else []
        return [*chains, *fields, *(spec.before for spec in recipe.rewrites)]

    @property
    def is_needed(self) -> bool:
        return bool(self._rules or self._proven) and self._owner is not None

    def _spelled(self, text: str) -> str:
        tree = expression(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id == "self":
                node.id = self._owner or "self"
        return ast.unparse(tree)

    def visit(self, node: ast.AST) -> ast.AST:
        if type(node) in self._kinds and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            spelled = _unparsed(node)
            rule = self._rules.get(spelled)
            if rule is not None and not (rule[2] and _lines(node) > 1):
                to, path, _ = rule
                self.counts[self._from[spelled], to] += 1
                made: ast.expr = ast.Name(self._owner or "", ast.Load())
                for link in path:
                    made = ast.Attribute(made, link, ast.Load())
                return made
        if isinstance(node, ast.Call) and (node.lineno, node.col_offset) in self._proven:
            one = self._proven[node.lineno, node.col_offset]
            if _unparsed(node) == one.before:
                self.counts[one.before, f"{one.after} ({one.how})"] += 1
                return expression(self._spelled(one.after))
        result: ast.AST = super().visit(node)
        return result

    def _scope(self, node: ast.AST) -> ast.AST:
        arguments = getattr(node, "args", None)
        if isinstance(arguments, ast.arguments):
            names = {child.arg for child in ast.walk(arguments) if isinstance(child, ast.arg)}
            if self._owner in names:
                arguments.defaults = [self.visit(part) for part in arguments.defaults]  # type: ignore[misc]
                arguments.kw_defaults = [part and self.visit(part) for part in arguments.kw_defaults]  # type: ignore[misc]
                decorators = getattr(node, "decorator_list", [])
                decorators[:] = [self.visit(part) for part in decorators]
                return node
        return self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _scope

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.target = self.visit(node.target)  # type: ignore[assignment]
        node.value = node.value and self.visit(node.value)  # type: ignore[assignment]
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node


def _unparsed(node: ast.AST) -> str:
    """ "" for what Python cannot spell (an f-string with too many kinds of quotes): no recipe can either."""
    try:
        return ast.unparse(node)
    except ValueError:
        return ""


def _lines(node: ast.AST) -> int:
    return int(getattr(node, "end_lineno", 0)) - int(getattr(node, "lineno", 0)) + 1


def held(recipe: Recipe) -> frozenset[str]:
    """Attributes of the handler that hold another object than the worker."""
    names = {handle.name for handle in recipe.handles if not handle.is_worker}
    names |= {recipe.snapshot.name} if recipe.snapshot else set()
    return frozenset(f"_{name}" for name in names)


def wiring_faults(recipe: Recipe, module: ast.Module) -> list[str]:
    """What the constructor, `for_worker`, the getters and the snapshot of a handler module do otherwise than
    the recipe says."""
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    handler = classes[recipe.handler_class]
    found = {node.name: node for node in handler.body if isinstance(node, ast.FunctionDef)}
    start, factory = found.get("__init__"), found.get("for_worker")
    specs = {handle.name: handle for handle in recipe.handles}
    if factory is None:
        return ["it has no for_worker"]
    taken = [arg.arg for arg in start.args.kwonlyargs] if start is not None else []
    own = recipe.snapshot.name if recipe.snapshot else ""
    unknown = [name for name in taken if name != own and (name not in specs or specs[name].request)]
    if unknown:
        return [f"the constructor takes {', '.join(unknown)}, which the recipe does not have"]
    faults = []
    fields: tuple[str, ...] = ()
    if recipe.snapshot and own in taken:
        fields = _snapshot_fields(classes.get(recipe.snapshot.class_name))
        known = [path.rpartition(".")[2] for path in recipe.snapshot.fields]
        if not fields or not set(fields) <= set(known):
            faults.append("the snapshot is not the frozen dataclass that the recipe says")
            fields = ()
    read = [name for name in taken if name != own and specs[name].expressions and not specs[name].adapter]
    made = [f"{n}={_snapshot_made(recipe, fields) if n == own else _made(recipe, n)}" for n in taken]
    adapters = {specs[name].adapter.partition(":") for name in taken if name != own and specs[name].adapter}
    wanted = sorted({(module, name.partition(".")[0]) for module, _, name in adapters})
    bound = ".on(worker)" if recipe.request is not None else ""
    imports = [part for part in factory.body if isinstance(part, ast.ImportFrom)]
    imported = sorted(
        (
            "." * part.level + (part.module or ""),
            one.name if not one.asname else f"{one.name} as {one.asname}",
        )
        for part in imports
        for one in part.names
    )
    if imported != wanted or _body(factory)[len(imports) :] != [f"return cls({', '.join(made)}){bound}"]:
        faults.append("for_worker does not make the handles as the recipe says")
    if [ast.unparse(d) for d in factory.decorator_list] != ["classmethod"]:
        faults.append("for_worker is no class method")
    stores = [f"self._read_{n} = {n}" if n in read else f"self._{n} = {n}" for n in taken]
    if start is not None and [ast.unparse(statement) for statement in start.body] != stores:
        faults.append("the constructor does not keep its handles as they came")
    for name in read:
        getter = found.get(f"_{name}")
        decorators = [ast.unparse(d) for d in getter.decorator_list] if getter is not None else []
        if decorators != ["property"] or getter is None or _body(getter) != [f"return self._read_{name}()"]:
            faults.append(f"self._{name} is not read at each use")
    return [*faults, *base_faults(recipe, module, handler), *request_faults(recipe, handler)]


def _body(node: ast.FunctionDef) -> list[str]:
    """The statements of a function without its docstring."""
    return [ast.unparse(part) for part in node.body[1 if ast.get_docstring(node) is not None else 0 :]]


def _snapshot_fields(node: ast.ClassDef | None) -> tuple[str, ...]:
    """Names of the fields of a frozen dataclass that has nothing else, () for any other class."""
    if (
        node is None
        or node.bases
        or [ast.unparse(d) for d in node.decorator_list] != ["dataclass(frozen=True)"]
    ):
        return ()
    body = node.body[1 if ast.get_docstring(node) is not None else 0 :]
    plain = [
        part.target.id
        for part in body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is None
    ]
    return tuple(plain) if len(plain) == len(body) else ()


def _snapshot_made(recipe: Recipe, fields: tuple[str, ...]) -> str:
    assert recipe.snapshot is not None
    paths = {path.rpartition(".")[2]: path for path in recipe.snapshot.fields}
    given = ", ".join(f"{name}=worker.{paths[name]}" for name in fields)
    return f"{recipe.snapshot.class_name}({given})"


def given_protocols(recipe: Recipe, handler: ast.Module) -> list[ast.ClassDef]:
    """The classes of a handler module that the recipe gives word for word."""
    names = {handle.protocol for handle in recipe.handles if handle.protocol_text}
    return [node for node in handler.body if isinstance(node, ast.ClassDef) and node.name in names]


def protocol_faults(recipe: Recipe, given: list[ast.ClassDef]) -> list[str]:
    """Given Protocols that are not what the recipe says."""
    texts = {handle.protocol: handle.protocol_text for handle in recipe.handles}
    return [
        f"the Protocol {node.name} is not the one that the recipe gives"
        for node in given
        if ast.dump(node) != ast.dump(protocol_class(texts[node.name], node.name))
    ]


def _made(recipe: Recipe, name: str) -> str:
    spec = next(handle for handle in recipe.handles if handle.name == name)
    prefix = f"_{recipe.source_class.lstrip('_')}"
    place = "worker"
    for link in links(spec.expressions[0]) if spec.expressions else ():
        private = link.startswith("__") and not link.endswith("__") and recipe.source_class.strip("_")
        place += f".{prefix}{link}" if private else f".{link}"
    if spec.adapter:
        return f"{spec.adapter.partition(':')[2]}(lambda: {place})"
    return f"lambda: {place}" if spec.expressions else place
