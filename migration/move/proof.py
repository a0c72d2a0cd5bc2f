"""Check a cut in memory, from its inputs and its two result files alone.

Nothing here shares code with the rewriting: moved bodies are compared by taking the handles *out*
of the new tree, stubs are found by reading the new worker again.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from migration.code.facts import is_static, own_scope, self_name
from migration.code.flakes import flakes
from migration.code.source import Source
from migration.code.structure import FunctionNode, Method, outline
from migration.errors import MigrationError, Refusal
from migration.recipe import Recipe


@dataclass(frozen=True)
class Proof:
    """What was verified. `renames` counts, per handle, the places where `self` became `self._handle`."""

    methods: int
    renames: tuple[tuple[str, int], ...]
    lazy_imports: tuple[tuple[str, tuple[str, ...]], ...]
    imports_removed: tuple[str, ...]
    comments: int
    bytes_untouched: int


def prove(
    recipe: Recipe,
    before: Source,
    moved: Sequence[Method],
    worker: bytes,
    handler: bytes,
    lazy: Mapping[str, tuple[str, ...]],
    removed: Collection[str],
) -> Proof | tuple[Refusal, ...]:
    """A Proof, or every check that failed."""
    refusals: list[Refusal] = []
    try:
        for path, data in ((recipe.source_file, worker), (recipe.target_file, handler)):
            compile(data, path, "exec", dont_inherit=True)
        after, new = Source(recipe.source_file, worker), Source(recipe.target_file, handler)
    except (SyntaxError, ValueError, MigrationError) as error:
        return (Refusal("MG201", recipe.target_file, 0, str(error)),)
    worker_shape = outline(after, recipe.source_class)
    handler_methods = {m.name: m for m in outline(new, recipe.handler_class).methods}
    stubs = {m.name: m for m in worker_shape.methods if m.name in {method.name for method in moved}}
    renames: Counter[str] = Counter()
    for method in moved:
        there = handler_methods.get(method.name)
        if there is None or method.name not in stubs:
            refusals.append(Refusal("MG202", method.name, method.first_line, "it is missing after the cut"))
            continue
        inverse = _Inverse(recipe, there.node, handler_methods)
        same = ast.dump(inverse.restored(lazy.get(method.name, ()))) == ast.dump(method.node)
        faults = [("MG202", fault) for fault in inverse.stray] + [("MG202", "the trees differ")] * (not same)
        renames.update(inverse.renames)
        stub = stubs[method.name].node
        if _signature(stub) != _signature(method.node):
            faults.append(("MG206", "the signatures are not equal"))
        if "\n".join(map(ast.unparse, stub.body)) != _stub_body(recipe, method):
            faults.append(("MG206", "the stub does not forward each argument as it came"))
        refusals += [Refusal(code, method.name, method.first_line, fault) for code, fault in faults]
    untouched = _outside(before, moved)
    if untouched != _outside(after, list(stubs.values())):
        refusals.append(Refusal("MG205", recipe.source_file, 0, "lines outside methods and imports differ"))
    refusals += _import_delta(recipe, before, after, removed)
    refusals += _name_delta(recipe, before, worker, handler)
    lost = Counter(c.text for c in before.comments)
    lost.subtract(c.text for source in (after, new) for c in source.comments)
    refusals += [
        Refusal("MG204", recipe.source_file, 0, f"{'lost' if count > 0 else 'duplicated'}: {text}")
        for text, count in sorted(lost.items())
        if count
    ]
    if refusals:
        return tuple(refusals)
    return Proof(
        len(moved),
        tuple(sorted(renames.items())),
        tuple(sorted(lazy.items())),
        tuple(removed),
        len(before.comments),
        sum(map(len, untouched)),
    )


class _Inverse(ast.NodeTransformer):
    """Take `self.<handle>` back to `self` in a method of the handler.

    `stray` lists every other use of self but the call of another method of the handler.
    """

    def __init__(self, recipe: Recipe, node: FunctionNode, methods: Collection[str]) -> None:
        self._module = recipe.source_module
        self._handles = {f"_{handle.name}" for handle in recipe.handles}
        self._node = node
        self._self = self_name(node)
        self._methods = methods
        self.renames: Counter[str] = Counter()
        self.stray: list[str] = []

    def restored(self, lazy: tuple[str, ...]) -> ast.AST:
        """The method without its lazy import (which must be the declared one)."""
        if lazy:
            declared = f"from {self._module} import {', '.join(lazy)}"
            first = next((i for i, s in enumerate(self._node.body[:2]) if ast.unparse(s) == declared), None)
            self._node.body = [s for i, s in enumerate(self._node.body) if i != first]
            if first is None:
                self._node.body.append(ast.Pass())  # a declared import that is not there
        return self.visit(self._node)

    def _of_self(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and self._is_self(node.value)

    def _is_self(self, node: ast.AST) -> bool:
        return self._self is not None and isinstance(node, ast.Name) and node.id == self._self

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if self._of_self(node) and node.attr in self._handles and isinstance(node.ctx, ast.Load):
            self.renames[node.attr[1:]] += 1
            return node.value
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


def _stub_body(recipe: Recipe, method: Method) -> str:
    """The one body that a stub of `method` may have, spelled by `ast.unparse`."""
    node = method.node
    arguments = node.args
    positional = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)]
    owner = recipe.handler_class
    if not is_static(node):
        owner += f".for_worker({positional.pop(0)})"
    passed = positional + [f"*{arg.arg}" for arg in (arguments.vararg,) if arg]
    passed += [f"{arg.arg}={arg.arg}" for arg in arguments.kwonlyargs]
    passed += [f"**{arg.arg}" for arg in (arguments.kwarg,) if arg]
    call = f"{owner}.{node.name}({', '.join(passed)})"
    awaits = isinstance(node, ast.AsyncFunctionDef)
    decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    if decorators & {"contextmanager", "asynccontextmanager"}:
        return f"{'async ' if awaits else ''}with {call} as value:\n    yield value"
    if awaits:
        return f"return await {call}"
    generates = any(isinstance(part, ast.Yield | ast.YieldFrom) for part in own_scope(node))
    return f"return (yield from {call})" if generates else f"return {call}"


def _signature(node: FunctionNode) -> str:
    kept = [
        ast.dump(decorator)
        for decorator in node.decorator_list
        if ast.unparse(decorator).rpartition(".")[2]
        in ("staticmethod", "contextmanager", "asynccontextmanager")
    ]
    returns = ast.dump(node.returns) if node.returns else ""
    return " ".join([type(node).__name__, node.name, ast.dump(node.args), returns, *kept])


def _imports(source: Source) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in source.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]


def _outside(source: Source, methods: Sequence[Method]) -> list[bytes]:
    """Physical lines that belong neither to one of `methods` nor to a module-level import."""
    taken: set[int] = set()
    for method in methods:
        taken.update(range(method.block_start, method.block_end + 1))
    for node in _imports(source):
        taken.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    mark = b"\xef\xbb\xbf"  # it opens the file, whatever the first line is
    return [line.removeprefix(mark) for number, line in enumerate(source.lines, 1) if number not in taken]


def _import_delta(recipe: Recipe, before: Source, after: Source, removed: Collection[str]) -> list[Refusal]:
    """The worker's imports may differ by the handler's import and by the removed names only."""

    def aliases(source: Source) -> Counter[tuple[str, int, str, str]]:
        return Counter(
            (getattr(node, "module", None) or "", getattr(node, "level", -1), alias.name, alias.asname or "")
            for node in _imports(source)
            for alias in node.names
        )

    gone, added = aliases(before) - aliases(after), aliases(after) - aliases(before)
    expected = Counter({(recipe.target_module, 0, recipe.handler_class, ""): 1})
    names = Counter(asname or name for _, _, name, asname in gone.elements())
    if added == expected and names == Counter(removed):
        return []
    return [Refusal("MG205", recipe.source_file, 0, "the module-level imports differ otherwise than planned")]


def _name_delta(recipe: Recipe, before: Source, worker: bytes, handler: bytes) -> list[Refusal]:
    """No undefined or unused name that was not there before, imports that are kept on purpose excepted."""
    old = flakes(before.data, recipe.source_file)
    kept = flakes(worker, recipe.source_file) - old
    new = flakes(handler, recipe.target_file) - (old - flakes(worker, recipe.source_file))
    for flake in list(kept):
        if flake.kind == "UnusedImport":
            del kept[flake]  # a removal was considered and declined: see remove_orphans
    found = [(recipe.source_file, flake) for flake in kept] + [(recipe.target_file, flake) for flake in new]
    return [Refusal("MG203", path, 0, f"{flake.kind}: {flake.name}") for path, flake in sorted(found)]
