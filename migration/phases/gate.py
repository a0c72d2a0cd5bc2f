"""`migrate gate`: rename the legacy bodies and put a gate before each; pure, with its own check."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches

from migration.code.flakes import flakes
from migration.code.source import Source, apply_edits, read_source
from migration.code.structure import outline
from migration.code.tree import Tree
from migration.errors import MigrationError, Refusal
from migration.ledger.change import FileChange
from migration.move.by_hand import missing_by_hand
from migration.move.cut import CutPlan, CutRefused, module_names, movings, select
from migration.move.moving import Moving
from migration.move.names import ModuleNames
from migration.move.others import LEGACY
from migration.move.rewrite import indent_unit
from migration.move.route import route_refusals
from migration.move.worker_imports import handler_import_line
from migration.phases.effects import effect_of
from migration.phases.gate_module import Effects, module_edits, runtime_names
from migration.phases.gate_text import gate_edits, gated
from migration.phases.state import cut_anew, drift, read_worker, ungated
from migration.recipe import Recipe


@dataclass(frozen=True)
class GatePlan:
    """`effects` are what the gate is told of each method; `cut` is what the handler was checked against."""

    recipe: Recipe
    methods: tuple[str, ...]
    effects: tuple[tuple[str, str], ...]
    changes: tuple[FileChange, ...]
    cut: CutPlan


@dataclass(frozen=True)
class GateRefused:
    recipe: Recipe
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class GateClean:
    recipe: Recipe
    methods: tuple[str, ...]


def plan_gate(recipe: Recipe, tree: Tree, *, wired: bool = True) -> GatePlan | GateRefused | GateClean:
    """Plan and verify the gates of a ported slice; `wired` asks whether what they call is there."""
    source = read_worker(recipe, tree)
    shape = outline(source, recipe.source_class)
    if pairs := gated(shape, recipe):
        return GateClean(recipe, tuple(gate.name for gate, _ in pairs.values()))
    cut = cut_anew(recipe, tree, source.data)
    if isinstance(cut, CutRefused):
        return GateRefused(recipe, cut.refusals)
    if not isinstance(cut, CutPlan):
        return _refused(recipe, "MG114", "the methods are stubs already: the slice was cut in one step")
    if found := drift(recipe, tree, cut):
        return GateRefused(recipe, found)
    moved = [d.moved_name for d in cut.proof.details]
    if wired and (found := (*missing_by_hand(recipe, tree), *route_refusals(recipe, tree, moved))):
        return GateRefused(recipe, found)
    names = module_names(recipe, source)
    moving, _ = movings(recipe, tree, source, shape, select(shape, recipe), names)
    bound = [one for one in moving if one.label in ("__new__", "__init_subclass__", "__class_getitem__")]
    if bound:
        why = "Python binds it without a decorator, and its legacy body would have another name"
        return GateRefused(recipe, tuple(Refusal("MG116", m.label, m.node.lineno, why) for m in bound))
    named = {one.label: one.name for one in moving}
    if unknown := _unknown(recipe, named):
        raise MigrationError("MG401", f"slice {recipe.name}: {'; '.join(unknown)}")
    effects = {one.name: effect_of(one, recipe) for one in moving}
    parts = {part: tuple(named[name] for name in names if name in named) for part, names in recipe.parts}
    if taken := _taken(recipe, names, effects):
        return _refused(recipe, "MG106", ", ".join(taken))
    if legacy := [m.name for m in shape.methods if m.name in {LEGACY + one.name for one in moving}]:
        return _refused(recipe, "MG106", f"{', '.join(legacy)} in class {shape.name}")
    unit = indent_unit(source, moving[0].node, source.indent_of(moving[0].method.first_line).decode())
    line = handler_import_line(source, tree, recipe)
    around = module_edits(source, shape, recipe, line, effects, parts, unit)
    after = apply_edits(source.data, [*gate_edits(source, recipe, moving), *around])
    if faults := _faults(recipe, source, moving, after):
        return GateRefused(recipe, tuple(Refusal("MG202", recipe.source_file, 0, fault) for fault in faults))
    changes = (FileChange(recipe.source_file, source.data, after),)
    kinds = tuple((name, kind) for name, (kind, _) in effects.items())
    return GatePlan(recipe, tuple(one.label for one in moving), kinds, changes, cut)


def _taken(recipe: Recipe, names: ModuleNames, effects: Effects) -> list[str]:
    """Names that the gate needs and that mean something else in the module; the same import is none of them."""
    wanted = runtime_names(effects)
    own = {name for name in (recipe.gate_name, recipe.served[1]) if name in names.bindings}
    for name in wanted.keys() & names.bindings.keys():
        found = names.bindings[name]
        if any(b.imported != wanted[name] or b.context != "plain" for b in found):
            own.add(name)
    return sorted(own)


def _unknown(recipe: Recipe, moved: Collection[str]) -> list[str]:
    """Entries of `[gate]` about methods that have no gate."""
    if recipe.partial:
        return []
    said = [(f"gate.effects.{name}", name) for name, _ in recipe.effects]
    said += [(f"gate.parts.{part}", name) for part, names in recipe.parts for name in names]
    found = []
    for where, name in said:
        if name not in moved:
            near = get_close_matches(name, moved, 1)
            hint = f", did you mean {near[0]}?" if near else ""
            found.append(f"{where}: {name} is no method that moves{hint}")
    return found


def _refused(recipe: Recipe, code: str, message: str) -> GateRefused:
    return GateRefused(recipe, (Refusal(code, recipe.source_file, 0, message),))


def _faults(recipe: Recipe, before: Source, moving: list[Moving], after: bytes) -> list[str]:
    """What is wrong with the gated file: checked on its bytes alone."""
    try:
        compile(after, recipe.source_file, "exec", dont_inherit=True)
        source = read_source(recipe.source_file, after)
    except (SyntaxError, ValueError, MigrationError) as error:
        return [f"the gated file does not compile: {error}"]
    pairs = gated(outline(source, recipe.source_class), recipe)
    found = [f"{one.label} has no gate" for one in moving if one.name not in pairs]
    if ungated(recipe, source) != before.data:
        found.append("taking the gates out does not give the original bytes")
    for one in moving:
        if one.name in pairs:
            gate, legacy = (method.node for method in pairs[one.name])
            bodies = [ast.dump(statement) for statement in legacy.body]
            if bodies != [ast.dump(statement) for statement in one.node.body]:
                found.append(f"the legacy body of {one.label} differs from the original")
            if ast.dump(gate.args) != ast.dump(one.node.args):
                found.append(f"the gate of {one.label} has another signature")
    new = flakes(after, recipe.source_file) - flakes(before.data, recipe.source_file)
    found += [f"{flake.kind}: {flake.name}" for flake in sorted(new)]
    return found
