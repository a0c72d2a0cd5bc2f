"""`port --cut`: plan the move of a section into its handler module. Pure: bytes in, a plan or reasons out."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from migration.code.facts import MethodFacts, SelfUse, method_facts
from migration.code.import_graph import chain_to
from migration.code.source import Edit, Source, apply_edits
from migration.code.structure import ClassOutline, Method, Section, outline
from migration.code.tree import OverlayTree, Tree
from migration.errors import MigrationError, Refusal
from migration.ledger.change import FileChange
from migration.move.handler_module import handler_text, import_lines
from migration.move.names import ImportName, ImportPlan, ModuleNames, needed_names, plan_imports
from migration.move.orphans import remove_orphans
from migration.move.proof import Proof, prove
from migration.move.protocols import Handle, MemberTypes, handles
from migration.move.rewrite import moved_text, stub_text
from migration.move.rules import method_refusals
from migration.move.usage import overrides
from migration.recipe import Recipe


@dataclass(frozen=True)
class CutPlan:
    """A verified cut, ready to be written."""

    recipe: Recipe
    methods: tuple[str, ...]
    handles: tuple[Handle, ...]
    changes: tuple[FileChange, ...]
    proof: Proof
    notes: tuple[str, ...]


@dataclass(frozen=True)
class CutRefused:
    """Nothing may be written, and every reason why."""

    recipe: Recipe
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class CutClean:
    """The section already consists of stubs: there is nothing to do."""

    recipe: Recipe
    methods: tuple[str, ...]


CutOutcome = CutPlan | CutRefused | CutClean


def plan_cut(recipe: Recipe, tree: Tree) -> CutOutcome:
    """Plan and verify the cut; raises MigrationError where the recipe does not fit the tree."""
    outcome = _plan(recipe, tree)
    if isinstance(outcome, CutPlan):
        again = _plan(recipe, OverlayTree(tree, {change.path: change.after for change in outcome.changes}))
        if not isinstance(again, CutClean):
            return _refused(recipe, "MG207", recipe.source_file, 0, "the stubs are not recognised as stubs")
    return outcome


def _plan(recipe: Recipe, tree: Tree) -> CutOutcome:
    data = tree.read(recipe.source_file)
    if data is None:
        raise MigrationError("MG303", f"{recipe.source_file} does not exist")
    source = Source(recipe.source_file, data)
    shape = outline(source, recipe.source_class)
    section = find_section(shape, recipe)
    moving = tuple(method for method in section.methods if method.name not in recipe.stays)
    _check_names(recipe, section)
    ported = [method.name for method in moving if is_stub(method, recipe)]
    target = tree.read(recipe.target_file)
    if moving and len(ported) == len(moving) and target is not None:
        return CutClean(recipe, tuple(ported))
    if ported:
        message = f"already stubs: {', '.join(ported)}" + (
            "" if target else f"; {recipe.target_file} is missing"
        )
        return _refused(recipe, "MG108", recipe.source_class, section.first_line, message)
    facts = {id(method.node): method_facts(method.node) for method in shape.methods}
    refusals = [*_target_refusals(recipe, tree)]
    for method in moving:
        refusals += method_refusals(source, shape, method, facts[id(method.node)], recipe)
    refused = {refusal.where for refusal in refusals}
    movable = tuple(method for method in moving if method.name not in refused)
    run = _Cut(recipe, tree, source, shape, movable, facts)
    if refusals:
        return CutRefused(recipe, (*refusals, *run.imports(run.names()).refusals))
    return run.plan()


def find_section(shape: ClassOutline, recipe: Recipe) -> Section:
    """The section with the recipe's banner; MG101 when there is none or more than one."""
    wanted = " ".join(recipe.section.split())
    titles = [section.title for section in shape.sections if section.title]
    found = [
        section for section in shape.sections if section.title and " ".join(section.title.split()) == wanted
    ]
    if len(found) != 1:
        near = difflib.get_close_matches(wanted, titles, 3) or titles
        message = (
            f"{len(found)} banners {wanted!r} in {recipe.source_file}; it has {', '.join(near) or 'none'}"
        )
        raise MigrationError("MG101", message)
    return found[0]


def _check_names(recipe: Recipe, section: Section) -> None:
    names = {method.name for method in section.methods}
    unknown = [name for name in (*recipe.stays, *recipe.late_bound) if name not in names]
    if unknown:
        message = f"slice {recipe.name}: {', '.join(unknown)} in stays/late_bound but not in the section"
        raise MigrationError("MG401", message)


def is_stub(method: Method, recipe: Recipe) -> bool:
    """True for the delegating body that this tool writes."""
    body = method.node.body
    if len(body) != 1:
        return False
    for node in ast.walk(body[0]):
        if isinstance(node, ast.Attribute) and node.attr == method.name:
            owner = node.value
            if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute):
                owner = owner.func.value if owner.func.attr == "for_worker" else owner
            if isinstance(owner, ast.Name) and owner.id == recipe.handler_class:
                return True
    return False


def _refused(recipe: Recipe, code: str, where: str, line: int, message: str) -> CutRefused:
    return CutRefused(recipe, (Refusal(code, where, line, message),))


def _target_refusals(recipe: Recipe, tree: Tree) -> list[Refusal]:
    path = PurePosixPath(recipe.target_file)
    found: list[Refusal] = []
    if tree.read(recipe.target_file) is not None:
        found.append(Refusal("MG103", recipe.target_file, 0, "the file exists"))
    if tree.is_dir(path.with_suffix("").as_posix()):
        found.append(
            Refusal("MG104", recipe.target_file, 0, f"{path.with_suffix('')}/ would be imported instead")
        )
    for parent in path.parents:
        if parent.name and tree.read(f"{parent}.py") is not None:
            found.append(Refusal("MG104", recipe.target_file, 0, f"{parent}.py is a module, not a package"))
    return found


@dataclass(frozen=True)
class _Cut:
    """One planning run: all that is known once no method was refused."""

    recipe: Recipe
    tree: Tree
    source: Source
    shape: ClassOutline
    moving: tuple[Method, ...]
    facts: dict[int, MethodFacts]

    def plan(self) -> CutOutcome:
        recipe, source = self.recipe, self.source
        names = self.names()
        imports = self.imports(names)
        types = MemberTypes(self.shape, self.facts, names)
        uses = [(method.name, use) for method in self.moving for use in self._through_handles(method)]
        found = handles(recipe, uses, types)
        handler = self._handler(found, imports, types)
        refusals = [
            *imports.refusals,
            *self._name_clashes(names, found, imports, types),
            *self._cycle(handler),
            *self._replaced(),
        ]
        if refusals:
            return CutRefused(recipe, tuple(refusals))
        stubs = [self._stub(method) for method in self.moving]
        cut = apply_edits(source.data, [*stubs, self._import_edit()])
        worker, removed, notes = remove_orphans(
            self.tree, recipe, source, cut, imports.runtime, imports.lazy_names
        )
        changes = [FileChange(recipe.target_file, None, handler), *self._packages()]
        changes.append(FileChange(recipe.source_file, source.data, worker))
        outcome = prove(recipe, source, self.moving, worker, handler, imports.lazy, removed)
        if not isinstance(outcome, Proof):
            return CutRefused(recipe, outcome)
        if imports.lazy and b'"__main__"' in source.data:
            message = (
                f"run as a script, {recipe.source_file} would exist twice: the handler imports it by name"
            )
            notes = (*notes, message)
        notes = (*notes, *self._recipe_notes(found))
        return CutPlan(recipe, tuple(m.name for m in self.moving), found, tuple(changes), outcome, notes)

    # Which self goes where.

    @cached_property
    def _siblings(self) -> frozenset[str]:
        """Moved methods that moved code calls on the handler itself; one that is assigned is looked up."""
        assigned = {
            u.attribute for f in self.facts.values() for u in f.uses if u.kind in ("write", "setattr")
        }
        return frozenset(m.name for m in self.moving) - set(self.recipe.late_bound) - assigned

    def _through_handles(self, method: Method) -> list[SelfUse]:
        siblings = self._siblings
        uses = self.facts[id(method.node)].uses
        return [use for use in uses if not (use.kind == "call" and use.attribute in siblings)]

    def _moved(self, method: Method, lazy: tuple[str, ...] | None) -> bytes:
        through = {(use.line, use.column): use.attribute or "" for use in self._through_handles(method)}

        def receiver(line: int, column: int) -> str | None:
            attribute = through.get((line, column))
            return None if attribute is None else self.recipe.handle_for(attribute).name

        statement = f"from {self.recipe.source_module} import {', '.join(lazy)}" if lazy else None
        return moved_text(self.source, method, self.facts[id(method.node)], receiver, statement)

    # The two files.

    def names(self) -> ModuleNames:
        is_package = self.recipe.source_file.endswith("/__init__.py")
        return ModuleNames(self.source, self.recipe.source_module, is_package)

    def imports(self, names: ModuleNames) -> ImportPlan:
        class_names = {m.name for m in self.shape.methods}
        for statement in self.shape.node.body:
            stored = (
                n for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            )
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                class_names.update(n.id for n in stored)
        needs = []
        for method in self.moving:
            text = self._moved(method, None).decode()
            code = f"if 1:\n{text}" if self.source.eol == b"\n" else f"if 1:\r\n{text}"
            needs.append((method.node, needed_names(method.node, code)))
        return plan_imports(needs, names, frozenset(class_names), self.recipe, self.tree)

    def _is_first_party(self, top: str) -> bool:
        return self.tree.is_dir(top) or self.tree.read(f"{top}.py") is not None

    def _handler(self, found: tuple[Handle, ...], imports: ImportPlan, types: MemberTypes) -> bytes:
        texts = [self._moved(m, imports.lazy.get(m.name)).decode() for m in self.moving]
        newline = self.source.eol.decode()
        normalised = [text.replace(newline, "\n") for text in texts]
        text = handler_text(self.recipe, found, imports, types.imports, normalised, self._is_first_party)
        return text.replace("\n", newline).encode()

    def _stub(self, method: Method) -> Edit:
        source = self.source
        start = source.offset(method.block_start)
        end = source.offset(method.block_end + 1)
        text = stub_text(source, method, self.facts[id(method.node)], self.recipe)
        if not source.data[start:end].endswith(source.eol):
            text = text.removesuffix(source.eol)
        return Edit(start, end, text)

    def _import_edit(self) -> Edit:
        """`from <target> import <handler>` after the imports at the top of the worker module."""
        body = self.source.tree.body
        last = 0
        for node in body:
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if isinstance(node, ast.Import | ast.ImportFrom) or (docstring and node is body[0]):
                last = node.end_lineno or node.lineno
            else:
                break
        line = import_lines(
            [ImportName(self.recipe.target_module, self.recipe.handler_class)], lambda _: True
        )
        position = self.source.offset(last + 1)
        return Edit(position, position, line.replace("\n", self.source.eol.decode()).encode())

    def _packages(self) -> list[FileChange]:
        """`__init__.py` for the folders that the target adds to a regular package."""
        found: list[FileChange] = []
        folders = [str(p) for p in PurePosixPath(self.recipe.target_file).parents if p.name]
        for folder in reversed(folders):
            parent = str(PurePosixPath(folder).parent)
            regular = parent != "." and (
                self.tree.read(f"{parent}/__init__.py") is not None
                or any(change.path == f"{parent}/__init__.py" for change in found)
            )
            if regular and not self.tree.is_dir(folder):
                doc = f'"""Handlers cut out of {self.recipe.source_class}."""\n'
                found.append(FileChange(f"{folder}/__init__.py", None, doc.encode()))
        return found

    # What else could go wrong, and what the reader should know.

    def _name_clashes(
        self, names: ModuleNames, found: tuple[Handle, ...], imports: ImportPlan, types: MemberTypes
    ) -> list[Refusal]:
        recipe = self.recipe
        refusals: list[Refusal] = []
        if recipe.handler_class in names.bindings:
            line = names.bindings[recipe.handler_class][0].node.lineno
            refusals.append(Refusal("MG106", recipe.source_file, line, recipe.handler_class))
        own = {recipe.handler_class, *(handle.spec.protocol for handle in found), *imports.logger_lines}
        bound: dict[str, ImportName] = {
            n: ImportName("typing", n) for n in ("Any", "Protocol", "TYPE_CHECKING")
        }
        for item in sorted({*imports.runtime, *imports.typing, *types.imports}):
            other = bound.setdefault(item.bound, item)
            dotted = item.name is None and other.name is None and not (item.alias or other.alias)
            if item.bound in own or (other != item and not dotted):
                refusals.append(Refusal("MG019", recipe.target_file, 0, f"{item.bound} means two things"))
        return refusals

    def _replaced(self) -> list[Refusal]:
        """Moved methods that moved code calls and that some other file replaces on a worker."""
        called = {u.attribute for m in self.moving for u in self.facts[id(m.node)].uses if u.kind == "call"}
        names = self._siblings & called
        if not names:
            return []
        found = overrides(self.tree, self.recipe, names)
        return [Refusal("MG107", o.method, o.line, f"by {o.path}") for o in found]

    def _cycle(self, handler: bytes) -> list[Refusal]:
        overlay = OverlayTree(self.tree, {self.recipe.target_file: handler})
        chain = chain_to(overlay, self.recipe.target_module, self.recipe.source_module)
        if chain is None:
            return []
        return [Refusal("MG105", self.recipe.target_file, 0, " imports ".join(chain))]

    def _recipe_notes(self, found: tuple[Handle, ...]) -> list[str]:
        used = {member.name for handle in found for member in handle.members}
        used |= {u.attribute for m in self.moving for u in self.facts[id(m.node)].uses if u.attribute}
        return [
            f"recipe: {handle.name} lists {attribute}, which no moved method uses"
            for handle in self.recipe.handles
            for attribute in handle.attributes
            if attribute not in used
        ]
