"""`declare`: plan the declaration of attributes that are made on first use. Pure: bytes in, a plan or reasons out.

What may be declared is the prover's to say; all tests of an attribute are rewritten together, or none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from migration.code.source import Edit, Source, apply_edits
from migration.code.structure import ClassOutline, FunctionNode, outline
from migration.code.tree import OverlayTree, Tree
from migration.declare.place import NoPlace, slot_of
from migration.declare.proof import DeclareProof, prove
from migration.declare.spans import Tests
from migration.errors import MigrationError, Refusal
from migration.ledger.change import FileChange
from migration.presence.accepting import accept, obstacle_name
from migration.presence.findings import HasattrFinding
from migration.presence.prover import findings_of, world_of
from migration.recipe_check import near


@dataclass(frozen=True)
class Wanted:
    """An attribute to be declared, `after` the assignment of another one; "": where it is soonest."""

    attribute: str
    after: str = ""


@dataclass(frozen=True)
class Declaration:
    """What is done about one attribute. `value` is None where `__init__` makes it already."""

    attribute: str
    value: str | None
    tests: tuple[int, ...]
    #: Obstacles to the proof that somebody vouched for.
    accepted: tuple[str, ...]


@dataclass(frozen=True)
class DeclarePlan:
    """A verified edit, ready to be written."""

    class_name: str
    declarations: tuple[Declaration, ...]
    already: tuple[str, ...]
    change: FileChange
    proof: DeclareProof


@dataclass(frozen=True)
class DeclareRefused:
    """Nothing may be written, and every reason why; `where` of a refusal is the attribute."""

    class_name: str
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class DeclareClean:
    """All that was asked for is declared; nothing asks whether it is there."""

    class_name: str
    already: tuple[str, ...]


DeclareOutcome = DeclarePlan | DeclareRefused | DeclareClean


def plan_declare(
    source: Source,
    class_name: str | None,
    tree: Tree,
    wanted: Sequence[Wanted] | None,
    accepted: Collection[str] = (),
) -> DeclareOutcome:
    """Plan and verify. Without `wanted`: every attribute that may be declared.

    MG102 for a class that is not there, MG541 for an attribute or an obstacle that is not.
    """
    run = _Run(source, outline(source, class_name), tree, accepted)
    outcome = run.plan(wanted)
    if isinstance(outcome, DeclarePlan):
        after = outcome.change.after or b""
        names = [Wanted(one.attribute) for one in outcome.declarations]
        new = Source(source.path, after)
        overlay = OverlayTree(tree, {source.path: after})
        again = _Run(new, outline(new, run.shape.name), overlay, ()).plan(names)
        if not isinstance(again, DeclareClean):
            return run.refused(Refusal("MG207", run.shape.name, 0, "the declarations are not recognised"))
    return outcome


class _Run:
    def __init__(self, source: Source, shape: ClassOutline, tree: Tree, accepted: Collection[str]) -> None:
        self.source = source
        self.shape = shape
        self.world = world_of(source, shape, tree)
        self.raw = findings_of(self.world, source, shape)
        self.accepted = frozenset(map(obstacle_name, accepted))
        self.findings = accept(self.raw, self.accepted)
        self.by_attribute: dict[str, list[HasattrFinding]] = {}
        for finding in self.findings:
            if finding.attribute is not None:
                self.by_attribute.setdefault(finding.attribute, []).append(finding)

    def refused(self, *refusals: Refusal) -> DeclareRefused:
        return DeclareRefused(self.shape.name, refusals)

    def plan(self, wanted: Sequence[Wanted] | None) -> DeclareOutcome:
        chosen = self._possible() if wanted is None else list(wanted)
        already = tuple(one.attribute for one in chosen if one.attribute not in self.by_attribute)
        unknown = [name for name in already if not self._is_made(name)]
        if unknown:
            known = {**self.by_attribute, **dict.fromkeys(self.world.presence.after_init)}
            said = "; ".join(name + near(name, known) for name in unknown)
            raise MigrationError(
                "MG541",
                f"{self.source.path}: {self.shape.name} neither asks for it nor makes it in __init__: {said}",
            )
        todo = [one for one in chosen if one.attribute in self.by_attribute]
        if not todo:
            return DeclareClean(self.shape.name, already)
        self._check_accepted()
        refusals = [refusal for one in todo for refusal in self._against(one.attribute)]
        if refusals:
            return self.refused(*refusals)
        return self._edited(todo, already)

    def _possible(self) -> list[Wanted]:
        found = (name for name in self.by_attribute if not self._against(name))
        return [Wanted(name) for name in found if self._value(name) is not None]

    def _is_made(self, name: str) -> bool:
        return name in self.world.presence.after_init or self.world.in_class_body(name) is not None

    def _check_accepted(self) -> None:
        """An obstacle that stands against nothing is misspelled, or gone."""
        known = {
            obstacle_name(text)
            for finding in self.raw
            if finding.assumed
            for text in finding.assumed.obstacles
        }
        unknown = [name + near(name, known) for name in sorted(self.accepted - known)]
        if unknown:
            raise MigrationError(
                "MG541", f"{self.source.path}: nothing in {self.shape.name} has it: {'; '.join(unknown)}"
            )

    def _against(self, name: str) -> list[Refusal]:
        """Why the tests of an attribute cannot be rewritten."""
        found = [refusal for one in self.by_attribute[name] if (refusal := _stuck(name, one)) is not None]
        if not found and self._value(name) is None and name not in self.world.presence.after_init:
            line = self.by_attribute[name][0].line
            found.append(Refusal("MG538", name, line, "no test of it needs a declaration: it is a constant"))
        return found

    def _value(self, name: str) -> str | None:
        """What `__init__` is to assign; None where no test needs it."""
        said = (finding.rewrite.declares for finding in self.by_attribute[name])
        found = next((text for text in said if text is not None), None)
        return None if found is None else found.partition(" = ")[2]

    def _edited(self, todo: Sequence[Wanted], already: tuple[str, ...]) -> DeclareOutcome:
        tests = Tests(self.source, self.shape)
        edits: list[Edit] = []
        made: list[Declaration] = []
        refusals: list[Refusal] = []
        names = [one.attribute for one in todo]
        for one in todo:
            value = self._value(one.attribute)
            found = self.by_attribute[one.attribute]
            edits += tests.edits(found, declared=value is not None)
            if value is not None:
                try:
                    slot = slot_of(self.world, self.source, self._init, names, one.after)
                except NoPlace as error:
                    refusals.append(Refusal("MG540", one.attribute, error.line, str(error)))
                    continue
                edits.append(slot.edit(f"{self._owner}.{one.attribute} = {value}"))
            lines = tuple(finding.line for finding in found)
            made.append(Declaration(one.attribute, value, lines, self._vouched(one.attribute)))
        if refusals:
            return self.refused(*refusals)
        after = apply_edits(self.source.data, edits)
        values = {one.attribute: one.value for one in made}
        proof = prove(self.source, self.shape.node, values, sorted(edits, key=_order), after)
        if not isinstance(proof, DeclareProof):
            return self.refused(*proof)
        change = FileChange(self.source.path, self.source.data, after)
        return DeclarePlan(self.shape.name, tuple(made), already, change, proof)

    @cached_property
    def _init(self) -> FunctionNode:
        found = self.world.presence.initialiser
        assert found is not None, "the prover declares nothing without an __init__"
        return found[1]

    @property
    def _owner(self) -> str:
        return [*self._init.args.posonlyargs, *self._init.args.args][0].arg

    def _vouched(self, name: str) -> tuple[str, ...]:
        """The obstacles against an attribute that were accepted."""
        found = (f.assumed.obstacles for f in self.raw if f.attribute == name and f.assumed is not None)
        return tuple(dict.fromkeys(obstacle_name(text) for texts in found for text in texts))


def _stuck(name: str, finding: HasattrFinding) -> Refusal | None:
    change = finding.rewrite
    # A getattr without a default is the attribute itself, whatever cannot be seen.
    if finding.assumed is not None and change.kind != "attribute":
        return Refusal("MG539", name, finding.line, "; ".join(finding.assumed.obstacles))
    if change.text is None:
        return Refusal("MG538", name, finding.line, change.why)
    if finding.verdict == "never" or change.kind == "capability":
        kind = "constant" if finding.verdict == "never" else "capability"
        return Refusal("MG538", name, finding.line, f"{change.why}: it is a {kind}")
    return None


def _order(edit: Edit) -> tuple[int, int]:
    return edit.start, edit.end
