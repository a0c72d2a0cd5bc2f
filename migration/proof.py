"""Check a cut in memory, from its inputs and its two result files alone.

Nothing here shares code with the rewriting: moved bodies are compared by taking the handles *out*
of the new tree, stubs are found by reading the new worker again.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from migration.errors import MigrationError, Refusal
from migration.facts import self_name
from migration.flakes import flakes
from migration.recipe import Recipe
from migration.source import Source
from migration.structure import FunctionNode, Method, outline


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
        inverse = _Inverse(recipe, there.node, set(handler_methods))
        original = ast.dump(method.node)
        if ast.dump(inverse.restored(lazy.get(method.name, ()))) != original:
            refusals.append(Refusal("MG202", method.name, method.first_line, "the trees are not equal"))
        refusals += [
            Refusal(
                "MG202", method.name, line, f"self.{name} is neither a handle nor a method of the handler"
            )
            for name, line in inverse.unknown
        ]
        renames.update(inverse.renames)
        if _signature(stubs[method.name].node) != _signature(method.node):
            refusals.append(Refusal("MG206", method.name, method.first_line, "the signatures are not equal"))
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
    """Take `self.<handle>` back to `self` in a method of the handler."""

    def __init__(self, recipe: Recipe, node: FunctionNode, methods: set[str]) -> None:
        self._module = recipe.source_module
        self._handles = {f"_{handle.name}" for handle in recipe.handles}
        self._methods = methods
        self._node = node
        self._self = self_name(node)
        self.renames: Counter[str] = Counter()
        self.unknown: list[tuple[str, int]] = []

    def restored(self, lazy: tuple[str, ...]) -> ast.AST:
        body = list(self._node.body)
        if lazy:
            for index, statement in enumerate(body[:2]):
                if isinstance(statement, ast.ImportFrom) and statement.module == self._module:
                    if tuple(alias.name for alias in statement.names) == lazy and statement.level == 0:
                        del body[index]
                        break
        self._node.body = body
        return self.visit(self._node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == self._self:
            if node.attr in self._handles and isinstance(node.ctx, ast.Load):
                self.renames[node.attr[1:]] += 1
                return node.value
            if node.attr not in self._methods:
                self.unknown.append((node.attr, node.lineno))
            return node
        return self.generic_visit(node)

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
