"""Check a cut in memory, from its inputs and its two result files alone.

Nothing here shares code with the rewriting: moved bodies are compared by taking the handles *out*
of the new tree, stubs are found by reading the new worker again.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from migration.code.facts import is_static, own_scope
from migration.code.flakes import Flake, flakes
from migration.code.source import Source, read_source
from migration.code.structure import ClassOutline, FunctionNode, Method, outline
from migration.errors import MigrationError, Refusal
from migration.move.capabilities import capability_faults
from migration.move.expected import given_protocols, protocol_faults, wiring_faults
from migration.move.inverse import Declared, Inverse
from migration.move.moving import Moving, is_overload, moved_name
from migration.move.names import annotation_names
from migration.move.planned import body_hash, planned_key
from migration.move.proven import Place, Proven
from migration.move.scopes import scope_faults
from migration.recipe import Recipe


@dataclass(frozen=True)
class Result:
    """What the cut declares: the two files, and for each method (by its name in the handler) the names
    that it imports lazily from the worker module, those that it reads late through `alias`."""

    worker: bytes
    handler: bytes
    lazy: Mapping[str, tuple[str, ...]]
    late: Mapping[str, tuple[str, ...]]
    alias: str
    imports_removed: tuple[str, ...]
    #: Calls that become something else as the prover allows, by their places in the original.
    proven: Mapping[Place, Proven] = field(default_factory=dict)


@dataclass(frozen=True)
class MethodProof:
    """What differs between one method and its copy, and nothing else does.

    `renames` counts, per handle, the places where `self` became `self._handle`; `rewrites` counts the
    declared rewrites by kind; `body` is the SHA-256 of the original's tree.
    """

    name: str
    moved_name: str
    #: What `[planned.bodies]` of a recipe calls it.
    key: str
    body: str
    renames: tuple[tuple[str, int], ...]
    lazy_imports: tuple[str, ...]
    late_reads: tuple[str, ...]
    rewrites: tuple[tuple[str, int], ...]
    #: (from, to, count) of the expressions that the recipe declares.
    declared: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True)
class Proof:
    """What was verified about a cut."""

    details: tuple[MethodProof, ...]
    imports_removed: tuple[str, ...]
    #: Name under which late reads see the worker module.
    alias: str
    comments: int
    bytes_untouched: int

    @property
    def methods(self) -> int:
        return len(self.details)

    @property
    def declared(self) -> tuple[tuple[str, str, int], ...]:
        """(from, to, count) of the recipe's expressions over all methods."""
        total: Counter[tuple[str, str]] = Counter()
        for detail in self.details:
            total.update({(before, after): count for before, after, count in detail.declared})
        return tuple((before, after, count) for (before, after), count in sorted(total.items()))

    @property
    def renames(self) -> tuple[tuple[str, int], ...]:
        total: Counter[str] = Counter()
        for detail in self.details:
            total.update(dict(detail.renames))
        return tuple(sorted(total.items()))


def prove(
    recipe: Recipe, before: Source, moved: Sequence[Moving], result: Result
) -> Proof | tuple[Refusal, ...]:
    """A Proof, or every check that failed."""
    try:
        for path, data in ((recipe.source_file, result.worker), (recipe.target_file, result.handler)):
            compile(data, path, "exec", dont_inherit=True)
        after = read_source(recipe.source_file, result.worker)
        new = Source(recipe.target_file, result.handler)  # its own tree: the comparison edits it
    except (SyntaxError, ValueError, MigrationError) as error:
        return (Refusal("MG201", recipe.target_file, 0, str(error)),)
    refusals: list[Refusal] = []
    details: list[MethodProof] = []
    worker_shape = outline(after, recipe.source_class)
    handler_methods = {m.name: m for m in outline(new, recipe.handler_class).methods}
    stubs = _stubs(recipe, worker_shape, moved)
    for one in moved:
        there, stub = handler_methods.get(one.name), stubs.get(one.name)
        if there is None or stub is None:
            refusals.append(Refusal("MG202", one.label, one.method.first_line, "it is missing after the cut"))
            continue
        inverse = Inverse(recipe, there.node, handler_methods)
        lazy, late = result.lazy.get(one.name, ()), result.late.get(one.name, ())
        restored = inverse.restored(lazy, result.alias if late else None)
        declared = Declared(recipe, one, late, result.alias, result.proven)
        body = ast.dump(one.node)
        faults = [("MG202", fault) for fault in inverse.stray]
        expected = declared.expected() if declared.is_needed() else one.node
        if ast.dump(restored) != (body if expected is one.node else ast.dump(expected)):
            faults.append(("MG202", "the trees differ"))
        ignored = {*lazy, *late, result.alias}
        meant = expected if declared.declared else None
        faults += [("MG202", fault) for fault in scope_faults(before, one, new, there, ignored, meant)]
        faults += [("MG206", fault) for fault in stub_faults(recipe, stub.node, one)]
        refusals += [Refusal(code, one.label, one.method.first_line, fault) for code, fault in faults]
        details.append(
            MethodProof(
                one.label,
                one.name,
                planned_key(one.method),
                body_hash(one.node),
                tuple(sorted(inverse.renames.items())),
                lazy,
                late,
                tuple(sorted(declared.counts.items())),
                declared.declared,
            )
        )
    given = given_protocols(recipe, new.tree)
    faults_of_class = [*wiring_faults(recipe, new.tree), *protocol_faults(recipe, given)]
    faults_of_class += capability_faults(new.tree, result.proven)
    refusals += [Refusal("MG202", recipe.handler_class, 0, fault) for fault in faults_of_class]
    untouched = _outside(before, [one.method for one in moved])
    if untouched != _outside(after, list(stubs.values())):
        refusals.append(Refusal("MG205", recipe.source_file, 0, "lines outside methods and imports differ"))
    refusals += _import_delta(recipe, before, after, result.imports_removed)
    refusals += _name_delta(recipe, before, moved, result.worker, result.handler)
    lost = Counter(c.text for c in before.comments)
    own = {line for node in given for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lost.subtract(c.text for c in (*after.comments, *(c for c in new.comments if c.line not in own)))
    refusals += [
        Refusal("MG204", recipe.source_file, 0, f"{'lost' if count > 0 else 'duplicated'}: {text}")
        for text, count in sorted(lost.items())
        if count
    ]
    if refusals:
        return tuple(refusals)
    return Proof(
        tuple(details),
        result.imports_removed,
        result.alias,
        len(before.comments),
        sum(map(len, untouched)),
    )


def _stubs(recipe: Recipe, shape: ClassOutline, moved: Sequence[Moving]) -> dict[str, Method]:
    """The definitions that now stand where the moved ones stood, by their names in the handler."""
    wanted = {one.name: one for one in moved}
    found: dict[str, Method] = {}
    for method in shape.methods:
        name = moved_name(method, recipe.source_class)
        if name in wanted and wanted[name].label == method.name and not is_overload(method.node):
            found[name] = method
    return found


def stub_faults(recipe: Recipe, stub: FunctionNode, one: Moving) -> list[str]:
    """What is wrong with the stub of a method."""
    found = []
    if _signature(stub, one) != _signature(one.node, one):
        found.append("the signatures are not equal")
    if _forwarding(stub, one) != _stub_body(recipe, one):
        found.append("the stub does not forward each argument as it came")
    return found


def _forwarding(stub: FunctionNode, one: Moving) -> str:
    """The body of the stub without the copy of the docstring that it may have."""
    body = list(stub.body)
    if one.documented and ast.get_docstring(one.node, clean=False) is not None:
        if ast.get_docstring(stub, clean=False) == ast.get_docstring(one.node, clean=False):
            body = body[1:]
    return "\n".join(map(ast.unparse, body))


def _stub_body(recipe: Recipe, one: Moving) -> str:
    """The one body that a stub of a method may have, spelled by `ast.unparse`."""
    node = one.node
    arguments = node.args
    positional = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)]
    _, owner = recipe.served
    if not is_static(node):
        owner += f".for_worker({positional.pop(0)})"
    passed = positional + [f"*{arg.arg}" for arg in (arguments.vararg,) if arg]
    passed += [f"{arg.arg}={arg.arg}" for arg in arguments.kwonlyargs]
    passed += [f"**{arg.arg}" for arg in (arguments.kwarg,) if arg]
    call = f"{owner}.{one.name}({', '.join(passed)})"
    awaits = isinstance(node, ast.AsyncFunctionDef)
    generates = any(isinstance(part, ast.Yield | ast.YieldFrom) for part in own_scope(node))
    decorators = {name.rpartition(".")[2] for name in one.moving_decorators}
    if decorators & {"contextmanager", "asynccontextmanager"}:
        return f"{'async ' if awaits else ''}with {call} as value:\n    yield value"
    if awaits and not generates:
        return f"return await {call}"
    return f"return (yield from {call})" if generates and not awaits else f"return {call}"


def _signature(node: FunctionNode, one: Moving) -> str:
    """Everything that a caller or a decorator sees of a definition."""
    managing = ("staticmethod", "contextmanager", "asynccontextmanager")
    kept = [
        ast.dump(decorator)
        for decorator in node.decorator_list
        if one.staying or ast.unparse(decorator).rpartition(".")[2] in managing
    ]
    kind = "FunctionDef" if one.is_async_generator else type(node).__name__
    returns = ast.dump(node.returns) if node.returns else ""
    return " ".join([kind, node.name, ast.dump(node.args), returns, *kept])


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
    module, name = recipe.served
    expected = Counter({(module, 0, name, ""): 1})
    names = Counter(asname or name for _, _, name, asname in gone.elements())
    if added == expected and names == Counter(removed):
        return []
    return [Refusal("MG205", recipe.source_file, 0, "the module-level imports differ otherwise than planned")]


def _name_delta(
    recipe: Recipe, before: Source, moved: Sequence[Moving], worker: bytes, handler: bytes
) -> list[Refusal]:
    """No undefined or unused name that was not there before, imports that are kept on purpose excepted."""
    # A removal of an import was considered and declined: see remove_orphans.
    declined = ("UnusedImport", "RedefinedWhileUnused")
    kept = Counter({f: n for f, n in flakes(worker, recipe.source_file).items() if f.kind not in declined})
    new = flakes(handler, recipe.target_file)
    # Two clean files need no comparison with what was there before, and the check is the longest of all.
    old = flakes(before.data, recipe.source_file) if kept or new else Counter[Flake]()
    kept = kept - old
    new = new - (old - flakes(worker, recipe.source_file))
    refusals = [Refusal("MG203", recipe.source_file, 0, f"{f.kind}: {f.name}") for f in sorted(kept)]
    for flake in sorted(new):
        if flake.kind == "UndefinedName" and flake in old:
            continue  # in a signature, which both the stub and the handler carry
        guilty = [one for one in moved if _mentions(one, flake.name)]
        message = f"{flake.kind}: {flake.name}"
        refusals += [Refusal("MG203", one.label, one.node.lineno, message) for one in guilty]
        if not guilty:
            refusals.append(Refusal("MG203", recipe.target_file, 0, message))
    return refusals


def _mentions(one: Moving, name: str) -> bool:
    names = {n.id for n in ast.walk(one.node) if isinstance(n, ast.Name)} | set(annotation_names(one.node))
    return name in names
