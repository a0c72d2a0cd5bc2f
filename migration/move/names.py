"""Which names moved code needs, and how the handler module may get each without importing the worker.

Five answers: a *runtime* import copied from the worker; a *type-only* import; a *lazy* import from
the worker module at the start of the method (the name keeps the value that the worker has when the
method is called, and no cycle arises); a *late* read through the worker module, for a variable that
functions rebind or that may not be bound; the worker's logger, made again under the same log name.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from migration.code.facts import dotted, statements
from migration.code.module_file import module_file
from migration.code.source import Source
from migration.code.structure import FunctionNode
from migration.code.syntax import expression_or_none
from migration.code.tree import Tree
from migration.errors import Refusal

_FUTURE = "from __future__ import annotations\n"


@dataclass(frozen=True, order=True)
class ImportName:
    """`from module import name as alias`, or `import module as alias` when `name` is None."""

    module: str
    name: str | None = None
    alias: str | None = None

    @property
    def bound(self) -> str:
        return self.alias or self.name or self.module.partition(".")[0]


@dataclass(frozen=True)
class Binding:
    kind: Literal["import", "definition", "assignment", "deletion"]
    context: Literal["plain", "typing", "guarded"]
    node: ast.stmt
    imported: ImportName | None = None


@dataclass(frozen=True)
class NeededNames:
    """Free names of one method: evaluated when it is called, when it is defined, only in annotations; of
    these the ones that parameters and result have."""

    at_call: frozenset[str]
    at_definition: frozenset[str]
    in_annotations: frozenset[str]
    in_signature: frozenset[str]


@dataclass
class ImportPlan:
    runtime: set[ImportName] = field(default_factory=set)
    typing: set[ImportName] = field(default_factory=set)
    lazy: dict[str, tuple[str, ...]] = field(default_factory=dict)
    late: dict[str, tuple[str, ...]] = field(default_factory=dict)
    logger_lines: dict[str, str] = field(default_factory=dict)
    #: Names of the class body that annotations use: `Info = Worker.Info` for the type checker.
    typing_aliases: set[str] = field(default_factory=set)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def lazy_names(self) -> frozenset[str]:
        return frozenset(name for names in self.lazy.values() for name in names)


class ModuleNames:
    """Module-level bindings of the worker file and what becomes of them; imports start at the folder `root`."""

    def __init__(self, source: Source, module: str, is_package: bool, root: str = "") -> None:
        self.module = module
        self.root = root
        self.package = module if is_package else module.rpartition(".")[0]
        self.bindings: dict[str, list[Binding]] = {}
        self.has_star = False
        self._collect(source.tree.body, "plain")
        self._body = source.tree.body
        self.rebound = frozenset(
            name for node in statements(source.tree) if isinstance(node, ast.Global) for name in node.names
        )

    def _add(self, name: str, binding: Binding) -> None:
        self.bindings.setdefault(name, []).append(binding)

    def _collect(self, body: list[ast.stmt], context: Literal["plain", "typing", "guarded"]) -> None:
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    if alias.name == "*":
                        self.has_star = True
                        continue
                    imported = self._imported(node, alias)
                    self._add(imported.bound, Binding("import", context, node, imported))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._add(node.name, Binding("definition", context, node))
            else:
                for name, deleted in _stored_names(node):
                    self._add(name, Binding("deletion" if deleted else "assignment", context, node))
                test = dotted(node.test) if isinstance(node, ast.If) else ""
                typing = test.rpartition(".")[2] == "TYPE_CHECKING"
                self._collect(getattr(node, "body", []), "typing" if typing else "guarded")
                branches = [*getattr(node, "handlers", []), *getattr(node, "cases", [])]
                for part in (getattr(node, "orelse", []), getattr(node, "finalbody", [])):
                    self._collect(part, "guarded")
                for branch in branches:
                    self._collect(branch.body, "guarded")

    def _imported(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> ImportName:
        if isinstance(node, ast.Import):
            return ImportName(alias.name, None, alias.asname)
        module = node.module or ""
        if node.level:
            base = self.package.split(".")
            module = ".".join([*base[: len(base) - node.level + 1], *([module] if module else [])])
        return ImportName(module, alias.name, alias.asname if alias.asname != alias.name else None)

    def may_be_unbound(self, name: str) -> bool:
        """True unless importing the module binds `name` on every path and never deletes it."""
        deleted = any(binding.kind == "deletion" for binding in self.bindings[name])
        return deleted or not _always_binds(self._body, name)

    def type_import(self, name: str) -> tuple[ImportName, ...] | None:
        """How an annotation gets `name`: () for a builtin, None when it cannot."""
        found = self.bindings.get(name)
        if not found:
            return () if hasattr(builtins, name) else None
        imports = [binding.imported for binding in found if binding.imported]
        if len(imports) == len(found) and (len(found) == 1 or all(i.name is None for i in imports)):
            return tuple(imports)
        return (
            ImportName(self.module, name),
        )  # a class, an alias such as `Ids = list[int]`, a type variable

    def logger_line(self, name: str) -> str | None:
        """The line that makes the worker's logger again, under the worker's log name."""
        found = self.bindings.get(name, [])
        node = found[0].node if len(found) == 1 and name not in self.rebound else None
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or found[0].context != "plain":
            return None
        call = node.value
        if not (
            isinstance(call, ast.Call) and dotted(call.func) == "logging.getLogger" and len(call.args) == 1
        ):
            return None
        logging_import = [binding.imported for binding in self.bindings.get("logging", [])]
        if logging_import != [ImportName("logging")]:
            return None
        argument = call.args[0]
        if isinstance(argument, ast.Name) and argument.id == "__name__":
            return f'{name} = logging.getLogger("{self.module}")'
        text = argument.value if isinstance(argument, ast.Constant) else None
        if isinstance(text, str) and re.fullmatch(r"[\w.]+", text):
            return f'{name} = logging.getLogger("{text}")'
        return None

    def runtime_import(self, name: str, tree: Tree) -> tuple[ImportName, ...] | None:
        """Imports that give `name` the value it has in the worker, None when only the worker knows it."""
        found = self.bindings[name]
        imports = [binding.imported for binding in found if binding.imported and binding.context == "plain"]
        if len(imports) != len(found) or name in self.rebound:
            return None
        if len(imports) > 1 and not all(i.name is None and i.alias is None for i in imports):
            return None
        if any(i.name is not None and _rebinds(tree, self.root, i.module, i.name) for i in imports):
            return None  # the worker froze the value at its own import; only its copy is the same
        return tuple(imports)


def _stored_names(node: ast.stmt) -> Iterator[tuple[str, bool]]:
    """(name, deleted?) for what a module-level statement binds, not counting those in its body."""
    stack: list[ast.AST] = [node]
    while stack:
        current = stack.pop()
        for child in ast.iter_child_nodes(current):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store | ast.Del):
                yield child.id, isinstance(child.ctx, ast.Del)
            if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.Lambda):
                stack.append(child)


def _always_binds(body: list[ast.stmt], name: str) -> bool:
    """True when every run through `body` that ends normally has bound `name`."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound = name in {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound = node.name == name
        elif isinstance(node, ast.If):
            bound = _always_binds(node.body, name) and _always_binds(node.orelse, name)
        elif isinstance(node, ast.Try):
            handled = all(_always_binds(handler.body, name) for handler in node.handlers)
            tried = _always_binds([*node.body, *node.orelse], name)
            bound = (tried and handled) or _always_binds(node.finalbody, name)
        elif isinstance(node, ast.With):
            bound = _always_binds(node.body, name)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            valued = node.value is not None
            bound = valued and any(stored == name for stored, _ in _stored_names(node))
        else:
            bound = isinstance(node, ast.Raise)
        if bound:
            return True
    return False


def _rebinds(tree: Tree, root: str, module: str, name: str) -> bool:
    """True when `module` is in the tree and one of its functions rebinds its global `name`."""
    file = module_file(tree, module, root)
    rebinding = rb"^[ \t]+global[ \t][^\n]*\b%b\b" % re.escape(name).encode()
    return file is not None and re.search(rebinding, file[1], re.MULTILINE) is not None


def needed_names(node: FunctionNode, moved_name: str, code: str) -> NeededNames:
    """Free names of a method; `code` is its moved text at module level (decorators included, dedented).

    `symtable` under `from __future__ import annotations` sees exactly what runs.
    """
    table = symtable.symtable(_FUTURE + code, "<moved>", "exec")
    function = next(child for child in table.get_children() if child.get_name() == moved_name)
    at_call: set[str] = set()
    stack = [function]
    while stack:
        scope = stack.pop()
        stack += scope.get_children()
        at_call |= {s.get_name() for s in scope.get_symbols() if s.is_global() and s.is_referenced()}
    at_definition = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    local = {s.get_name() for s in function.get_symbols() if s.is_local()}
    outside = set(_signature_names(node))
    in_annotations = outside | (set(annotation_names(node)) - local)
    return NeededNames(*map(frozenset, (at_call, at_definition, in_annotations, outside)))


def _signature_names(node: FunctionNode) -> Iterator[str]:
    """Names in the annotations of parameters and result: a local variable of the same name is another."""
    arguments = node.args
    named = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    for annotation in (*(arg.annotation for arg in named if arg is not None), node.returns):
        if annotation is not None:
            yield from type_names(annotation)


def annotation_names(node: ast.AST) -> Iterator[str]:
    """Names in every annotation below `node`, those inside string annotations too."""
    for child in ast.walk(node):
        annotation = getattr(child, "annotation", None)
        for part in (annotation, getattr(child, "returns", None)):
            if isinstance(part, ast.expr):
                yield from type_names(part)


def type_names(annotation: ast.expr) -> Iterator[str]:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        if (parsed := expression_or_none(annotation.value)) is not None:
            yield from type_names(parsed)
    elif isinstance(annotation, ast.Subscript) and dotted(annotation.value).rpartition(".")[2] == "Literal":
        yield from type_names(annotation.value)
    elif isinstance(annotation, ast.Name):
        yield annotation.id
    else:
        for child in ast.iter_child_nodes(annotation):
            if isinstance(child, ast.expr):
                yield from type_names(child)


def plan_imports(
    needs: Iterable[tuple[str, FunctionNode, NeededNames]],
    names: ModuleNames,
    tree: Tree,
    leads_back: Callable[[str], bool],
    replaced: Collection[str],
    class_names: Collection[str],
) -> ImportPlan:
    """Decide for every needed name of every method (given with its name in the handler).

    `leads_back(module)` is True where importing the module runs the worker module, `replaced` are names
    that somebody replaces in the worker module: both are taken from the worker when the method runs. What
    cannot be had soundly is refused (MG013, MG014, MG021).
    """
    plan = ImportPlan()
    type_only: set[str] = set()
    for moved_name, node, needed in needs:
        lazy: list[str] = []
        late: list[str] = []
        for name in sorted(needed.at_definition):
            imports = names.runtime_import(name, tree) if name in names.bindings else ()
            if imports is None or any(leads_back(item.module) for item in imports):
                message = f"{name} is read when the method is defined"
                plan.refusals.append(Refusal("MG013", node.name, node.lineno, message))
            plan.runtime.update(imports or ())
        for name in sorted(needed.at_call):
            if name not in names.bindings:
                if names.has_star and not hasattr(builtins, name):
                    late.append(name)
            elif name in names.rebound or names.may_be_unbound(name):
                late.append(name)
            elif (line := names.logger_line(name)) is not None:
                plan.logger_lines[name] = line
                plan.runtime.add(ImportName("logging"))
            elif (imports := names.runtime_import(name, tree)) is None or any(
                item.bound in replaced or leads_back(item.module) for item in imports
            ):
                lazy.append(name)
            else:
                plan.runtime.update(imports)
        plan.refusals += [
            Refusal(code, node.name, node.lineno, f"{name}: {reason}")
            for name in late
            for code, reason in _late_hazards(node, name, names)
        ]
        if lazy:
            plan.lazy[moved_name] = tuple(lazy)
        if late:
            plan.late[moved_name] = tuple(late)
        # In the body the import at its start has the name already, and would hide another one.
        type_only |= needed.in_signature | (needed.in_annotations - set(lazy))
    for name in sorted(type_only):
        if name in class_names:
            plan.typing_aliases.add(name)
        else:
            plan.typing.update(names.type_import(name) or ())
    plan.typing -= plan.runtime
    return plan


def _late_hazards(node: FunctionNode, name: str, names: ModuleNames) -> Iterator[tuple[str, str]]:
    """Why a module variable cannot be read through its module."""
    code = "MG014" if name in names.rebound else "MG021"
    for part in ast.walk(node):
        if (
            isinstance(part, ast.ExceptHandler)
            and part.type is not None
            and "NameError" in ast.unparse(part.type)
        ):
            yield code, "the method catches NameError, which a read through the module does not raise"
        bound = {getattr(part, field, None) for field in ("arg", "name", "asname", "rest")}
        if isinstance(part, ast.alias) and not part.asname:
            bound = {part.name.partition(".")[0]}
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            bound = {part.id}
        if name in bound and not isinstance(part, ast.keyword):
            yield code, "the method also has a variable of that name"
