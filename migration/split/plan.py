"""`split`: plan the division of one method. Pure: a parsed file in, a plan or reasons out."""

from __future__ import annotations

from dataclasses import dataclass

from migration.code.facts import self_name
from migration.code.source import Source
from migration.code.structure import ClassOutline, Method, classes, outline
from migration.code.tree import Tree
from migration.errors import MigrationError, Refusal
from migration.ledger.change import FileChange
from migration.split.assemble import Helper, assemble
from migration.split.bound import Bound, BoundNames
from migration.split.choose import Chooser
from migration.split.effects import Effects
from migration.split.layout import Layout, layout
from migration.split.live import LiveNames
from migration.split.managers import Managers
from migration.split.proof import SplitProof, prove
from migration.split.reasons import blocking
from migration.split.rules import method_refusals
from migration.split.runs import Cutter
from migration.split.scope import method_scope, module_names
from migration.split.text import Style
from migration.split.traits import TraitReader

DEFAULT_BUDGET, DEFAULT_CAP = 120, 8
#: How often a plan is made again because a name ended up on the wrong side of a cut.
_ATTEMPTS = 6


@dataclass(frozen=True)
class SplitOptions:
    """`budget`: most lines of a piece, docstring apart. `cap`: most parameters plus results of a helper.
    `prefix`: how helpers are called, before their number. `propagates`: context managers that are known
    to let every exception out.
    """

    budget: int = DEFAULT_BUDGET
    cap: int = DEFAULT_CAP
    prefix: str | None = None
    propagates: tuple[str, ...] = ()


@dataclass(frozen=True)
class SplitPlan:
    """A verified split, ready to be written."""

    class_name: str
    method: str
    lines_before: int
    lines_after: int
    helpers: tuple[Helper, ...]
    change: FileChange
    proof: SplitProof


@dataclass(frozen=True)
class SplitRefused:
    """Nothing may be written, and every reason why. `reachable` is the smallest budget that would do."""

    class_name: str
    method: str
    lines_before: int
    reachable: int | None
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class SplitClean:
    """The method is within the budget."""

    class_name: str
    method: str
    lines: int


SplitOutcome = SplitPlan | SplitRefused | SplitClean


def plan_split(
    source: Source,
    method_name: str,
    class_name: str | None = None,
    options: SplitOptions | None = None,
    tree: Tree | None = None,
) -> SplitOutcome:
    """Plan and verify the split; MG102 or MG501 where class or method is not there.

    `tree` lets other files answer what the one file does not: context managers, calls on foreign objects.
    """
    chosen = options or SplitOptions()
    shape = outline(source, class_name)
    found = shape.definitions(method_name)
    if not found:
        raise MigrationError("MG501", _not_found(source, shape, method_name))
    sized = [(method, layout(source, method)) for method in found]
    over = [(method, parts) for method, parts in sized if parts is not None and parts.size > chosen.budget]
    if not over:
        sizes = [parts.size if parts else 1 for _, parts in sized]
        return SplitClean(shape.name, method_name, max(sizes))
    method, parts = over[0]
    refusals = method_refusals(source, shape, method, len(over), tree)
    if refusals:
        return SplitRefused(shape.name, method_name, parts.size, None, refusals)
    return _Split(source, shape, method, parts, chosen, tree).plan()


def _not_found(source: Source, shape: ClassOutline, name: str) -> str:
    others = [
        node.name
        for node in classes(source)
        if node is not shape.node and any(m.name == name for m in outline(source, node.name).methods)
    ]
    hint = f"; it is in {', '.join(others)}: pass --class" if others else ""
    return f"{source.path}: {shape.name} has no method {name}{hint}"


@dataclass
class _Split:
    source: Source
    shape: ClassOutline
    method: Method
    parts: Layout
    options: SplitOptions
    tree: Tree | None

    def plan(self) -> SplitOutcome:
        cutter = cutter_of(self.source, self.shape, self.method, self.options, self.tree)
        outcome = self._attempt(cutter)
        for _ in range(_ATTEMPTS):
            apart = _names_apart(outcome) - cutter.together
            if not apart:
                break
            cutter.together |= apart
            outcome = self._attempt(cutter)
        return outcome

    def _attempt(self, cutter: Cutter) -> SplitOutcome:
        style = style_of(self.source, self.method, self.parts, self.options)
        chooser = Chooser(cutter, style, self.options.budget)
        front = chooser.front(self.parts.body)
        room = self.options.budget - self.parts.header_lines
        fitting = [choice for choice in front if choice.lines <= room]
        if not fitting:
            left = front[0].lines + self.parts.header_lines
            refusals = blocking(self.method, self.options.budget, left, front[0], chooser, self.parts.body)
            return self._refused(refusals, left)
        text, helpers = assemble(self.method, fitting[-1].pieces, style)
        start = self.source.offset(self.method.first_line)
        end = start + sum(map(len, self.source.lines[self.method.first_line - 1 : self.method.block_end]))
        after = self.source.data[:start] + text + self.source.data[end:]
        proof = prove(self.source, self.shape.node, self.method.node, (start, end), after)
        if not isinstance(proof, SplitProof):
            return self._refused(proof, None)
        change = FileChange(self.source.path, self.source.data, after)
        lines, faults = self._second_run(text)
        if faults:
            return self._refused(faults, None)
        return SplitPlan(self.shape.name, self.method.name, self.parts.size, lines, helpers, change, proof)

    def _refused(self, refusals: tuple[Refusal, ...], reachable: int | None) -> SplitRefused:
        return SplitRefused(self.shape.name, self.method.name, self.parts.size, reachable, refusals)

    def _second_run(self, text: bytes) -> tuple[int, tuple[Refusal, ...]]:
        """(lines of the method as it is left, faults): no piece may be over the budget."""
        again = Source(self.source.path, b"class _:\n" + text)
        sizes = [
            (method.name, parts.size if (parts := layout(again, method)) else 1)
            for method in outline(again, "_").methods
        ]
        faults = tuple(
            Refusal("MG207", self.method.name, self.method.first_line, f"{name} would have {size} lines")
            for name, size in sizes
            if size > self.options.budget
        )
        return sizes[0][1], faults


def cutter_of(
    source: Source, shape: ClassOutline, method: Method, options: SplitOptions, tree: Tree | None = None
) -> Cutter:
    """The judge of every possible cut in one method."""
    node = method.node
    scope = method_scope(node, self_name(node), module_names(source))
    managers = Managers(source, shape.node, node, tree, options.propagates)
    effects = Effects(scope, managers.propagates)
    bound, live = BoundNames(effects), LiveNames(effects)
    bound.run(node.body, Bound(scope.arguments, scope.arguments))
    live.run(node.body, 0)
    return Cutter(node, scope, effects, bound, live, TraitReader(scope), options.cap, managers.doubtful())


def style_of(source: Source, method: Method, parts: Layout, options: SplitOptions) -> Style:
    """How the new lines are written: as wide as the method already is, within reason."""
    node = method.node
    lines = source.lines[method.first_line - 1 : method.last_line]
    width = max(len(line.rstrip().expandtabs(4).decode()) for line in lines)
    return Style(
        source,
        node,
        self_name(node) or "self",
        options.prefix or f"_{node.name.strip('_')}",
        source.indent_of(node.lineno),
        parts.body.indent,
        min(110, max(79, width)),
    )


def _names_apart(outcome: SplitOutcome) -> frozenset[str]:
    """Names that the verification saw become unused or undefined in one of the pieces."""
    if not isinstance(outcome, SplitRefused):
        return frozenset()
    found = (r.message.partition(": ")[2] for r in outcome.refusals if r.code == "MG203")
    return frozenset(found)
