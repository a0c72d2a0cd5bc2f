"""Names that the handler's module takes from elsewhere."""

from __future__ import annotations

import ast
import builtins
import posixpath

from pyflakes import checker, messages

from migration.check.model import Finding, Fix, Place, Seen, fix, many
from migration.check.rules.base import Rule
from migration.check.subject import Subject
from migration.code.import_graph import ImportGraph
from migration.code.module_file import module_file
from migration.code.module_names import import_origins, module_level, module_names
from migration.code.source import Edit, Source, read_source
from migration.code.structure import top_imports
from migration.recipe_checklist import Item


def imported(subject: Subject, item: Item) -> Seen:
    """Each name is bound by an import that holds at run time and leads to where it is defined."""
    found: list[Finding] = []
    evidence: list[Place] = []
    looked = 0
    for source in dict.fromkeys(part.source for part in subject.parts):
        for name in item.texts("names"):
            uses = [
                node
                for node in ast.walk(source.tree)
                if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
            ]
            looked += len(uses)
            if not uses:
                continue
            statement, guarded = _import_of(source, name)
            origin = import_origins(statement).get(name, "") if statement is not None else ""
            if statement is None:
                fault = "is used and not imported"
            elif guarded and _at_run_time(source, uses):
                fault = "is used at run time and imported for type checkers only"
            elif not _defines(subject, origin):
                fault = f"is imported as {origin}, which is not there"
            else:
                evidence.append(Place(source.path, statement.lineno))
                continue
            mended = _import_fix(subject, source, name) if statement is None else None
            place = Place(source.path, (statement or uses[0]).lineno)
            found.append(Finding("MG615", f"{name} {fault}", place, name, mended))
    note = f"{many(looked, 'use')} of {', '.join(item.texts('names'))}"
    return Seen(tuple(found), looked, tuple(evidence), note)


def _import_of(source: Source, name: str) -> tuple[ast.Import | ast.ImportFrom | None, bool]:
    """(the import that binds a name anywhere in the module, whether it stands under TYPE_CHECKING)."""
    guarded = {
        id(inner)
        for node in module_level(source.tree.body)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in node.body
    }
    best: tuple[ast.Import | ast.ImportFrom | None, bool] = (None, False)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and name in import_origins(node):
            if id(node) not in guarded:
                return node, False
            best = (node, True)
    return best


def _at_run_time(source: Source, uses: list[ast.Name]) -> bool:
    notes = [
        node
        for part in ast.walk(source.tree)
        for node in (getattr(part, "annotation", None), getattr(part, "returns", None))
        if isinstance(node, ast.expr)
    ]
    inside = {id(node) for note in notes for node in ast.walk(note)}
    return any(id(use) not in inside for use in uses)


def _defines(subject: Subject, origin: str) -> bool:
    """Whether a dotted name leads to something; a module that the repository does not have is trusted."""
    root = subject.recipe.import_root
    if module_file(subject.tree, origin, root) is not None:
        return True
    module, _, name = origin.rpartition(".")
    file = module_file(subject.tree, module, root)
    if file is None:
        top = origin.partition(".")[0]
        return not subject.tree.is_dir(posixpath.join(root, top))
    names = module_names(read_source(*file).tree, file[1])
    return name in names.own or name in names.origins


def _import_fix(subject: Subject, source: Source, name: str) -> Fix | None:
    """The worker's own import of the name."""
    origin = subject.worker_names.origins.get(name, "")
    module, _, attribute = origin.rpartition(".")
    if not module or module.startswith("."):
        return None
    imports = [node for node in top_imports(source) if isinstance(node, ast.Import | ast.ImportFrom)]
    line = (max(node.end_lineno or node.lineno for node in imports) if imports else source.head_lines) + 1
    text = f"from {module} import {attribute}" + (f" as {name}" if name != attribute else "")
    at = source.offset(line)
    return fix(f"import {name} as the worker does", source, [Edit(at, at, text.encode() + source.eol)])


def undefined_name(subject: Subject, item: Item) -> Seen:
    """Every name of the module, and of those that it inherits from, is bound somewhere."""
    found: list[Finding] = []
    looked = 0
    for source in dict.fromkeys(part.source for part in subject.parts):
        for message in checker.Checker(source.tree, filename=source.path).messages:
            if isinstance(message, messages.UndefinedName | messages.UndefinedLocal):
                said = f"{message.message_args[0]} is not defined"
                place = Place(source.path, message.lineno)
                symbol = subject.method_at(message.lineno) if source is subject.handler else ""
                found.append(Finding("MG616", said, place, symbol))
        looked += len({n.id for n in ast.walk(source.tree) if isinstance(n, ast.Name)} - set(dir(builtins)))
    return Seen(tuple(found), looked, (Place(subject.handler.path, 1),), f"{many(looked, 'name')}, all bound")


def import_cycle(subject: Subject, item: Item) -> Seen:
    """Importing the handler does not import the worker's module."""
    recipe = subject.recipe
    graph = ImportGraph(subject.tree, recipe.source_module, recipe.import_root)
    chain = graph.chain(recipe.target_module)
    lines = [node for node in subject.handler.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    looked = len(lines)
    if chain is None:
        return Seen(
            (),
            looked,
            (Place(subject.handler.path, 1),),
            f"{many(looked, 'import')}, none leads to the worker",
        )
    second = chain[1] if len(chain) > 1 else chain[0]
    close = [n for n in lines if any(o.startswith(second) for o in import_origins(n).values())]
    place = subject.at(close[0] if close else subject.handler.tree)
    return Seen((Finding("MG640", " -> ".join(chain), place, recipe.target_module),), looked)


def shadowed_module(subject: Subject, item: Item) -> Seen:
    """Neither a package nor a module of the same name stands beside a module of the slice."""
    found = []
    paths = (subject.recipe.target_file, *subject.recipe.generated)
    for path in paths:
        stem = path.removesuffix(".py")
        if subject.tree.is_dir(stem) and subject.tree.read(f"{stem}/__init__.py") is not None:
            found.append(Finding("MG641", f"{stem}/ is imported instead of {path}", Place(path), path))
        folder = posixpath.dirname(path)
        if folder and subject.tree.read(f"{folder}.py") is not None:
            found.append(
                Finding("MG641", f"{folder}.py has the name of the package {folder}/", Place(path), path)
            )
    return Seen(tuple(found), len(paths), (Place(subject.handler.path, 1),), f"{many(len(paths), 'module')}")


RULES = (
    Rule("MG615", "imported", "Imports are resolved", imported),
    Rule(
        "MG616", "undefined-name", "Every name in the handler's module is bound", undefined_name, always=True
    ),
    Rule(
        "MG640", "import-cycle", "The handler does not import the worker's module", import_cycle, always=True
    ),
    Rule("MG641", "shadowed-module", "No package hides a module of the slice", shadowed_module, always=True),
)
