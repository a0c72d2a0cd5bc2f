"""`port --cut`: plan the move of a section into its handler module. Pure: bytes in, a plan or reasons out."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import posixpath
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from migration.code.depth import deep_trees
from migration.code.facts import MethodFacts, SelfUse, method_facts
from migration.code.import_graph import ImportGraph
from migration.code.import_roots import import_root
from migration.code.source import Edit, Source, apply_edits, read_source
from migration.code.structure import ClassOutline, Method, Section, outline
from migration.code.tree import OverlayTree, Tree
from migration.errors import MigrationError, Refusal
from migration.ledger.change import FileChange
from migration.move.base import base_import, base_refusals
from migration.move.beside import beside
from migration.move.body import body_edits, super_calls
from migration.move.by_hand import hashes_by_hand, missing_by_hand
from migration.move.capabilities import CHECKABLE, capabilities, capability_texts, hidden
from migration.move.declared import Declared, declare, mark, unmatched, unused
from migration.move.handler_module import TYPING_CALLABLE, handler_text, import_lines, is_read
from migration.move.literal import Literal, literal_of, misfits
from migration.move.moving import Moving, decide, is_overload, mangled, moved_name
from migration.move.names import (
    ImportName,
    ImportPlan,
    ModuleNames,
    annotation_names,
    needed_names,
    plan_imports,
)
from migration.move.orphans import remove_orphans
from migration.move.others import own_methods, switches
from migration.move.planned import changed_since
from migration.move.proof import Proof, Result, prove
from migration.move.protocols import Handle, MemberTypes, handles
from migration.move.proven import Place, Proven, proven_calls
from migration.move.request import REQUEST_IMPORTS
from migration.move.rewrite import moved_text, stub_text
from migration.move.route import route_refusals
from migration.move.rules import method_refusals
from migration.move.snapshot import snapshot_refusals, used_fields
from migration.move.traced import traced_types
from migration.move.usage import Mentions, overrides
from migration.move.worker_imports import handler_import_line
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
    #: (path, SHA-256) of the files written by hand.
    human: tuple[tuple[str, str], ...] = ()


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


def plan_cut(recipe: Recipe, tree: Tree, *, wired: bool = True) -> CutOutcome:
    """Plan and verify the cut; raises MigrationError where the recipe does not fit the tree.

    `wired` says that the stubs are to be written: what they call must be there.
    """
    with deep_trees(recipe.source_file, tree.read(recipe.source_file) or b""):
        outcome = _verified(recipe, tree)
        if wired and isinstance(outcome, CutPlan):
            after = OverlayTree(tree, {change.path: change.after for change in outcome.changes})
            names = [detail.moved_name for detail in outcome.proof.details]
            if found := (*missing_by_hand(recipe, tree), *route_refusals(recipe, after, names)):
                return CutRefused(recipe, found)
        return outcome


def _verified(recipe: Recipe, tree: Tree) -> CutOutcome:
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
    source = read_source(recipe.source_file, data)
    shape = outline(source, recipe.source_class)
    chosen = select(shape, recipe)
    ported = [method.name for method in chosen if is_stub(method, recipe)]
    target = tree.read(recipe.target_file)
    if chosen and len(ported) == len(chosen) and target is not None:
        return CutClean(recipe, tuple(ported))
    if ported:
        message = f"already stubs: {', '.join(ported)}" + (
            "" if target else f"; {recipe.target_file} is missing"
        )
        return _refused(recipe, "MG108", recipe.source_class, chosen[0].first_line, message)
    gates = switches(shape)
    if gated := {m.name: gates[name] for m in chosen if (name := moved_name(m, shape.name)) in gates}:
        message = "; ".join(f"{name} is behind {gate} already" for name, gate in gated.items())
        return _refused(recipe, "MG108", recipe.source_class, chosen[0].first_line, message)
    names = module_names(recipe, source)
    moving, facts = movings(recipe, tree, source, shape, chosen, names)
    proven, unproven, unasked = proven_calls(recipe, source, shape, tree, {one.label for one in moving})
    declared = {one.name: declare(source, one, recipe, proven) for one in moving}
    missing = unmatched(recipe, declared.values())
    if not recipe.partial:
        missing += [f"hasattr: {what}" for what in unasked]
    if missing:
        raise MigrationError("MG401", f"slice {recipe.name}: {'; '.join(missing)}")
    refusals = [
        *unproven,
        *_target_refusals(recipe, tree),
        *_same_names(moving),
        *changed_since(recipe, chosen),
    ]
    for one in moving:
        refusals += (*method_refusals(source, shape, one, recipe), *declared[one.name].refusals)
    refused = {refusal.where for refusal in refusals}
    safe = tuple(one for one in moving if one.label not in refused)
    run = _Cut(recipe, tree, source, shape, names, safe, facts, declared, proven)
    if refusals:
        return CutRefused(recipe, (*refusals, *run.imports.refusals))
    return run.plan()


def module_names(recipe: Recipe, source: Source) -> ModuleNames:
    is_package = recipe.source_file.endswith("/__init__.py")
    return ModuleNames(source, recipe.source_module, is_package, recipe.import_root)


def movings(
    recipe: Recipe,
    tree: Tree,
    source: Source,
    shape: ClassOutline,
    chosen: Sequence[Method],
    names: ModuleNames,
) -> tuple[list[Moving], dict[int, MethodFacts]]:
    """How each chosen method moves, and the facts of every method of the class by id of its node."""
    facts = {id(method.node): method_facts(method.node) for method in shape.methods}
    class_names = _class_names(shape)
    moving = [decide(m, facts[id(m.node)], recipe, names, class_names, tree) for m in chosen]
    return moving, facts


def _class_names(shape: ClassOutline) -> frozenset[str]:
    """Names that the class body binds: code of the body sees them, code of a method does not."""
    found = {m.name for m in shape.methods}
    for statement in shape.node.body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found |= {
                n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
        elif isinstance(statement, ast.ClassDef):
            found.add(statement.name)
    return frozenset(found)


def _same_names(moving: Sequence[Moving]) -> list[Refusal]:
    labels: dict[str, set[str]] = {}
    for one in moving:
        labels.setdefault(one.name, set()).add(one.label)
    return [
        Refusal("MG019", one.label, one.node.lineno, f"two moved methods would be called {one.name}")
        for one in moving
        if len(labels[one.name]) > 1
    ]


def select(shape: ClassOutline, recipe: Recipe) -> tuple[Method, ...]:
    """The methods that the recipe moves, in their order in the file; MG101, MG401 where it does not fit."""
    if not recipe.methods:
        section = find_section(shape, recipe)
        _check_names(recipe, section)
        own = own_methods(shape, section.methods, recipe)
        wanted = {method.name for method in own} - set(recipe.stays)
        return _definitions(shape, wanted, own)
    known = {method.name for method in shape.methods}
    unknown = [name for name in recipe.methods if name not in known]
    if unknown:
        near = {name: difflib.get_close_matches(name, known, 1) for name in unknown}
        shown = ", ".join(
            f"{name} (did you mean {near[name][0]}?)" if near[name] else name for name in unknown
        )
        raise MigrationError("MG401", f"slice {recipe.name}: no such method in {shape.name}: {shown}")
    wanted = set(recipe.methods) - set(recipe.stays)
    return _definitions(shape, wanted, shape.methods)


def _definitions(shape: ClassOutline, wanted: Collection[str], among: Sequence[Method]) -> tuple[Method, ...]:
    """The definitions of the wanted names; of overloads only the implementation, which is the last."""
    overloaded = {m.name for m in shape.methods if is_overload(m.node)}
    return tuple(
        m
        for m in among
        if m.name in wanted and not (m.name in overloaded and m is not shape.definitions(m.name)[-1])
    )


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
    if len(body) not in (1, 2) or (len(body) == 2 and not isinstance(body[0], ast.Expr)):
        return False
    wanted = moved_name(method, recipe.source_class)
    for node in ast.walk(body[-1]):
        if isinstance(node, ast.Attribute) and node.attr == wanted:
            owner = node.value
            if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute):
                owner = owner.func.value if owner.func.attr == "for_worker" else owner
            if isinstance(owner, ast.Name) and owner.id == recipe.served[1]:
                return True
    return False


def _with_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


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
    names: ModuleNames
    moving: tuple[Moving, ...]
    facts: dict[int, MethodFacts]
    #: By the method's name in the handler.
    declared: dict[str, Declared]
    proven: dict[Place, Proven]

    def plan(self) -> CutOutcome:
        recipe, source, imports = self.recipe, self.source, self.imports
        types = MemberTypes(self.shape, self.facts, self.names, traced_types(recipe, self.tree))
        always = any(super_calls(one) for one in self.moving)
        found = handles(recipe, self._uses, types, literals=self._literals, always=always)
        handler = self._handler(found, types)
        others, misfit = beside(recipe, self.tree, handler, source.eol, self._is_first_party)
        refusals = [
            *misfit,
            *imports.refusals,
            *self._name_clashes(found, types),
            *hidden(self.moving, self._capabilities),
            *self._cycle(handler),
            *base_refusals(recipe, self.tree, handler),
            *self._replaced(),
            *self._misfits(),
            *self._snapshot_refusals(),
        ]
        if refusals:
            return CutRefused(recipe, tuple(refusals))
        stubs = [self._stub(one) for one in self.moving]
        cut = apply_edits(source.data, [*stubs, self._import_edit()])
        worker, removed, notes = remove_orphans(
            lambda: self._mentions,
            recipe,
            source,
            cut,
            imports.runtime,
            imports.lazy_names,
            self._moved_words,
        )
        changes = [FileChange(recipe.target_file, None, handler), *self._packages(), *others]
        changes.append(FileChange(recipe.source_file, source.raw, source.restore(worker)))
        gone = tuple(removed)
        after = Result(worker, handler, imports.lazy, imports.late, self.alias, gone, self.proven)
        outcome = prove(recipe, source, self.moving, after)
        if not isinstance(outcome, Proof):
            return CutRefused(recipe, outcome)
        if imports.lazy and b'"__main__"' in source.data:
            message = (
                f"run as a script, {recipe.source_file} would exist twice: the handler imports it by name"
            )
            notes = (*notes, message)
        notes = (*notes, *self._recipe_notes(found), *self._stub_notes())
        human = hashes_by_hand(recipe, self.tree)
        labels = tuple(m.label for m in self.moving)
        return CutPlan(recipe, labels, found, tuple(changes), outcome, notes, human)

    # Which self goes where.

    @cached_property
    def _siblings(self) -> frozenset[str]:
        """Moved methods that moved code calls on the handler itself; one that is assigned is looked up."""
        if self.recipe.siblings == "worker":
            return frozenset()
        assigned = {
            u.attribute for f in self.facts.values() for u in f.uses if u.kind in ("write", "setattr")
        }
        direct = {one.label for one in self.moving if one.is_direct}
        return frozenset(direct - set(self.recipe.late_bound) - assigned)

    def _through_handles(self, one: Moving) -> list[SelfUse]:
        """Uses of self that become a handle, private names as Python mangles them."""
        return [
            self._mangled(use)
            for use in self.declared[one.name].moving.facts.uses
            if not (use.kind == "call" and use.attribute in self._siblings)
        ]

    @cached_property
    def _uses(self) -> list[tuple[str, str, SelfUse]]:
        """(handle, method, use of it) over all that moves."""
        through = [
            (self.recipe.handle_for(use.attribute).name, one.label, use)
            for one in self.moving
            for use in self._through_handles(one)
        ]
        declared = [
            (handle, one.label, self._mangled(use))
            for one in self.moving
            for handle, use in self.declared[one.name].uses
        ]
        return through + declared

    @cached_property
    def _literals(self) -> dict[str, Literal]:
        """The Protocols that the recipe gives, by handle."""
        found = {s.name: literal_of(s, self.recipe, self.tree, self.names) for s in self.recipe.handles}
        return {name: literal for name, literal in found.items() if literal is not None}

    @cached_property
    def _capabilities(self) -> dict[str, str]:
        """Protocols of methods that only some subclasses have, with the method."""
        return capabilities(self.proven)

    @cached_property
    def _fields(self) -> tuple[str, ...]:
        """Fields of the snapshot that moved code reads."""
        if self.recipe.snapshot is None:
            return ()
        return used_fields(self.recipe.snapshot, [self.declared[one.name] for one in self.moving])

    def _snapshot_refusals(self) -> list[Refusal]:
        declared = [self.declared[one.name] for one in self.moving]
        return snapshot_refusals(self.recipe, self.tree, self.shape, self.facts, self.moving, declared)

    def _misfits(self) -> list[Refusal]:
        """What moved code does with a handle and its given Protocol does not allow."""
        found: list[Refusal] = []
        for name, literal in self._literals.items():
            uses = [(method, use) for handle, method, use in self._uses if handle == name]
            calls = [(one.label, call) for one in self.moving for call in self._calls(one, name)]
            adapted = any(spec.name == name and spec.adapter for spec in self.recipe.handles)
            found += misfits(literal, uses, calls, adapted=adapted)
        return found

    def _calls(self, one: Moving, handle: str) -> Iterator[ast.Call]:
        """Calls of a member of one handle."""
        own = {
            (use.line, use.column)
            for use in self._through_handles(one)
            if self.recipe.handle_for(use.attribute).name == handle
        }
        for node in ast.walk(self.declared[one.name].moving.node):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                receiver = node.func.value
                if isinstance(receiver, ast.Name) and (
                    receiver.id == mark(handle) or (receiver.lineno, receiver.col_offset) in own
                ):
                    yield node

    def _mangled(self, use: SelfUse) -> SelfUse:
        return dataclasses.replace(use, attribute=use.attribute and mangled(use.attribute, self.shape.name))

    def _moved(self, one: Moving, prologue: Sequence[str], late: Collection[str]) -> bytes:
        through = {(use.line, use.column): use.attribute for use in self._through_handles(one)}

        def receiver(line: int, column: int) -> str | None:
            if (line, column) not in through:
                return None
            return self.recipe.handle_for(through[line, column]).name

        declared = self.declared[one.name]
        edits = body_edits(
            self.source,
            self.shape.name,
            self.names.package,
            declared.moving,
            self.recipe.host.name,
            frozenset(late),
            self.alias,
        )
        return moved_text(self.source, declared.moving, receiver, [*declared.edits, *edits], prologue)

    def _final(self, one: Moving) -> str:
        lazy, late = self.imports.lazy.get(one.name, ()), self.imports.late.get(one.name, ())
        module = self.recipe.source_module
        prologue = [f"from {module} import {', '.join(lazy)}"] if lazy else []
        prologue += [f"import {module} as {self.alias}"] if late else []
        return self._moved(one, prologue, late).decode()

    @cached_property
    def alias(self) -> str:
        """Local name under which moved code sees the worker module."""
        taken = {
            name
            for one in self.moving
            for node in ast.walk(one.node)
            for name in (getattr(node, "id", None), getattr(node, "arg", None), getattr(node, "asname", None))
        }
        alias = f"{self.recipe.source_module.rpartition('.')[2]}_module"
        while alias in taken:
            alias += "_"
        return alias

    # The two files.

    @cached_property
    def imports(self) -> ImportPlan:
        needs = []
        for one in self.moving:
            text = self._moved(one, (), ()).decode()
            code = f"if 1:\n{text}"
            needed = needed_names(one.node, one.name, code)
            needed = dataclasses.replace(needed, at_call=needed.at_call - self._capabilities.keys())
            needs.append((one.name, one.node, needed))
        return plan_imports(
            needs, self.names, self.tree, self._leads_back, self._replaced_names, _class_names(self.shape)
        )

    def _leads_back(self, module: str) -> bool:
        return self._graph.chain(module) is not None

    @cached_property
    def _replaced_names(self) -> Collection[str]:
        """Imported names that other files, tests say, replace in the worker module."""
        imported = {name for name, found in self.names.bindings.items() if any(b.imported for b in found)}
        return self._mentions.replaced(imported).keys()

    @cached_property
    def _moved_words(self) -> frozenset[str]:
        """Names that the moved definitions mention."""
        named = {n.id for one in self.moving for n in ast.walk(one.node) if isinstance(n, ast.Name)}
        return frozenset(named | {name for one in self.moving for name in annotation_names(one.node)})

    @cached_property
    def _mentions(self) -> Mentions:
        return Mentions.of(self.tree, self.recipe)

    @cached_property
    def _graph(self) -> ImportGraph:
        return ImportGraph(self.tree, self.recipe.source_module, self.recipe.import_root)

    def _is_first_party(self, top: str) -> bool:
        path = posixpath.join(self.recipe.import_root, top)
        return self.tree.is_dir(path) or self.tree.read(f"{path}.py") is not None

    def _handler(self, found: tuple[Handle, ...], types: MemberTypes) -> bytes:
        newline = self.source.eol.decode()
        normalised = [_with_newlines(self._final(one)) for one in self.moving]
        fields = [(path, types.of(path)[0] if "." not in path else "Any") for path in self._fields]
        text = handler_text(
            self.recipe,
            found,
            self.imports,
            types.imports,
            normalised,
            self._is_first_party,
            fields,
            capability_texts(self.recipe, self._capabilities),
        )
        return text.replace("\n", newline).encode()

    def _stub(self, one: Moving) -> Edit:
        source = self.source
        start = source.offset(one.method.block_start)
        end = source.offset(one.method.block_end + 1)
        text = stub_text(source, one, self.recipe)
        if not source.data[start:end].endswith((b"\n", b"\r")):
            text = text.removesuffix(source.eol)
        return Edit(start, end, text)

    def _import_edit(self) -> Edit:
        """`from <target> import <handler>` among the imports of handlers at the top of the worker module."""
        position = self.source.offset(handler_import_line(self.source, self.tree, self.recipe))
        line = import_lines([ImportName(*self.recipe.served)], lambda _: True)
        return Edit(position, position, line.replace("\n", self.source.eol.decode()).encode())

    def _packages(self) -> list[FileChange]:
        """`__init__.py` for the folders that the target adds to a regular package."""
        found: list[FileChange] = []
        files = (self.recipe.target_file, *self.recipe.generated)
        folders = [str(p) for file in files for p in reversed(PurePosixPath(file).parents) if p.name]
        for folder in dict.fromkeys(folders):
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

    def _name_clashes(self, found: tuple[Handle, ...], types: MemberTypes) -> list[Refusal]:
        recipe, names, imports = self.recipe, self.names, self.imports
        refusals: list[Refusal] = []
        _, served = recipe.served
        if served in names.bindings:
            line = names.bindings[served][0].node.lineno
            refusals.append(Refusal("MG106", recipe.source_file, line, served))
        written = {handle.spec.protocol for handle in found if not handle.spec.protocol_from}
        own = {recipe.handler_class, *written, *imports.logger_lines}
        own |= {recipe.snapshot.class_name} if recipe.snapshot else set()
        own |= self._capabilities.keys()
        bound: dict[str, ImportName] = {
            n: ImportName("typing", n) for n in ("Any", "Protocol", "TYPE_CHECKING")
        }
        if self._capabilities:
            bound[CHECKABLE.bound] = CHECKABLE
        for title in self._capabilities.keys() & names.bindings.keys():
            line = names.bindings[title][0].node.lineno
            refusals.append(Refusal("MG019", recipe.source_file, line, f"{title} means two things"))
        given = {item for literal in self._literals.values() for item in literal.imports}
        items = {*imports.runtime, *imports.typing, *types.imports, *given}
        items |= {base_import(recipe)} if recipe.base else set()
        if any(is_read(handle.spec) for handle in found) and TYPING_CALLABLE not in items:
            bound["Callable"] = ImportName("collections.abc", "Callable")
        if recipe.snapshot:
            bound["dataclass"] = ImportName("dataclasses", "dataclass")
        if recipe.request is not None:
            bound |= {item.bound: item for item in REQUEST_IMPORTS}
        for item in sorted(items, key=str):
            other = bound.setdefault(item.bound, item)
            dotted = item.name is None and other.name is None and not (item.alias or other.alias)
            if item.bound in own or (other != item and not dotted):
                refusals.append(Refusal("MG019", recipe.target_file, 0, f"{item.bound} means two things"))
        return refusals

    def _replaced(self) -> list[Refusal]:
        """Moved methods that moved code calls and that some other file replaces on a worker."""
        called = {u.attribute for m in self.moving for u in m.facts.uses if u.kind == "call"}
        names = self._siblings & called
        if not names:
            return []
        found = overrides(self.tree, self.recipe, names)
        return [Refusal("MG107", o.method, o.line, f"by {o.path}") for o in found]

    def _cycle(self, handler: bytes) -> list[Refusal]:
        overlay = OverlayTree(self.tree, {self.recipe.target_file: handler})
        graph = ImportGraph(overlay, self.recipe.source_module, self.recipe.import_root)
        chain = graph.chain(self.recipe.target_module)
        if chain is None:
            return []
        return [Refusal("MG105", self.recipe.target_file, 0, " imports ".join(chain))]

    def _recipe_notes(self, found: tuple[Handle, ...]) -> list[str]:
        used = {member.name for handle in found for member in handle.members}
        used |= {u.attribute for m in self.moving for u in m.facts.uses if u.attribute}
        return (
            self._root_notes()
            + [
                f"recipe: {handle.name} lists {attribute}, which no moved method uses"
                for handle in self.recipe.handles
                for attribute in handle.attributes
                if attribute not in used
            ]
            + unused(self.recipe, [self.declared[one.name] for one in self.moving])
        )

    def _root_notes(self) -> list[str]:
        """A root that nobody gave is no fault: the folder may be on no path, and its parent on it."""
        root = import_root(self.tree, self.source)
        if self.recipe.import_root or not root:
            return []
        path, module = self.recipe.source_file, self.recipe.source_module
        hint = f'give `import_root = "{root}"` under [source] if it is not imported as {module}'
        return [f"recipe: the imports of {path} seem to start at {root}: {hint}"]

    def _stub_notes(self) -> list[str]:
        return [
            f"{one.label}: the stub is a plain method that returns the asynchronous generator, so "
            "inspect.isasyncgenfunction() is False for it"
            for one in self.moving
            if one.is_async_generator
        ]
