"""The extractability score: every definition of a class is tried, and what counts is a proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from migration.code.facts import dotted, method_facts
from migration.code.import_roots import import_root
from migration.code.source import Source, read_source
from migration.code.structure import ClassOutline, Method, outline
from migration.code.tree import Tree
from migration.errors import MigrationError, Refusal
from migration.move.delegates import is_delegate
from migration.move.moving import is_overload, mangled, moved_name
from migration.recipe import HandleSpec, Recipe
from migration.survey.attempts import Attempts
from migration.survey.free_names import free_module, free_name, names_in
from migration.survey.remembered import RememberedTree

Outcome = Literal["named", "host", "refused", "stub"]
_KINDS = {
    "staticmethod": "static method",
    "classmethod": "class method",
    "property": "property",
    "cached_property": "property",
    "setter": "accessor",
    "deleter": "accessor",
    "getter": "accessor",
}


@dataclass(frozen=True)
class Definition:
    """One definition in the class body.

    `outcome`: "named" moves, and a recipe could give every use of self in it to a handle by name; "host"
    moves through the handle that stands for the object itself; "refused" for the reasons in `refusals`;
    "stub" has moved already. `rewrites` counts the declared rewrites of the move by kind.
    """

    name: str
    kind: str
    conditional: bool
    line: int
    lines: int
    outcome: Outcome
    rewrites: tuple[tuple[str, int], ...]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class Score:
    path: str
    class_name: str
    definitions: tuple[Definition, ...]

    def count(self, outcome: Outcome) -> int:
        return sum(one.outcome == outcome for one in self.definitions)

    @property
    def tried(self) -> int:
        return len(self.definitions) - self.count("stub")

    @property
    def movable(self) -> int:
        return self.count("named") + self.count("host")

    @property
    def percent(self) -> int:
        """Movable of those tried, rounded down, so that 100 means all of them."""
        return self.movable * 100 // self.tried if self.tried else 100

    @property
    def refusals(self) -> tuple[tuple[str, int], ...]:
        """(code, how many definitions it refuses), the most frequent first."""
        return _ranked(Counter(code for one in self.definitions for code in {r.code for r in one.refusals}))

    @property
    def rewrites(self) -> tuple[tuple[str, int], ...]:
        """(kind of declared rewrite, how many definitions move with it), the most frequent first."""
        kinds = ({_general(kind) for kind, _ in one.rewrites} for one in self.definitions)
        return _ranked(Counter(kind for found in kinds for kind in found))

    @property
    def line(self) -> str:
        """The score in one line."""
        parts = [f"{self.movable} movable ({self.percent} %)"]
        if host := self.count("host"):
            parts.append(f"{host} of them through the host handle")
        codes = ", ".join(code if count == 1 else f"{code} x{count}" for code, count in self.refusals)
        parts.append(f"{self.count('refused')} refused" + (f": {codes}" if codes else ""))
        moved = f"; {stubs} moved already" if (stubs := self.count("stub")) else ""
        return f"{self.tried} definition{'' if self.tried == 1 else 's'}: {', '.join(parts)}{moved}"


def _ranked(found: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _general(kind: str) -> str:
    """A kind of rewrite without the one method that it names."""
    return "called by another name in the handler" if kind.startswith("called ") else kind


def score_class(
    tree: Tree,
    path: str,
    class_name: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Score:
    """Score of the named class of a file, or of its longest one; raises MG102, MG3xx.

    All definitions without a refusal of their own are cut together, in memory; where that is refused
    for a reason that names none of them, halves are tried. `progress` is told what is tried next.
    """
    data = tree.read(path)
    if data is None:
        raise MigrationError("MG303", f"{path} does not exist")
    source = read_source(path, data)
    shape = outline(source, class_name)
    counted = [method for method in shape.methods if not is_overload(method.node)]
    tried = [method for method in counted if not is_delegate(method)]
    recipe = _recipe(tree, source, shape)
    attempts = Attempts(RememberedTree(tree), recipe, progress)
    attempts.settle(tuple(dict.fromkeys(method.name for method in tried)))
    return Score(path, shape.name, tuple(_definition(method, recipe, attempts) for method in counted))


def _definition(method: Method, recipe: Recipe, attempts: Attempts) -> Definition:
    outcome: Outcome = "refused"
    rewrites: tuple[tuple[str, int], ...] = ()
    refusals: tuple[Refusal, ...] = ()
    if is_delegate(method):
        outcome = "stub"
    elif method.name in attempts.refused:
        found = attempts.refused[method.name]
        own = tuple(r for r in found if method.first_line <= r.line <= method.last_line)
        refusals = own or found  # an accessor cannot move without the others of its property
    else:
        proof = attempts.proved[method.name, moved_name(method, recipe.source_class)]
        outcome = "host" if dict(proof.renames).get(recipe.host.name) else "named"
        rewrites = proof.rewrites
    lines = method.last_line - method.first_line + 1
    return Definition(
        method.name, _kind(method), method.conditional, method.first_line, lines, outcome, rewrites, refusals
    )


def _kind(method: Method) -> str:
    for decorator in method.node.decorator_list:
        if (kind := _KINDS.get(dotted(decorator).rpartition(".")[2])) is not None:
            return kind
    dunder = method.name.startswith("__") and method.name.endswith("__") and len(method.name) > 4
    return "special method" if dunder else "method"


def _recipe(tree: Tree, source: Source, shape: ClassOutline) -> Recipe:
    """A recipe in which one handle lists every attribute that the class ever names, and the host the rest."""
    uses = (use for method in shape.methods for use in method_facts(method.node).uses)
    attributes = tuple(sorted({mangled(use.attribute, shape.name) for use in uses if use.attribute}))
    taken = names_in(source)
    stem = shape.name.lstrip("_")
    handler = free_name((f"{stem}Methods",), taken)
    handles = []
    for name, rest in (("named", False), ("host", True)):
        free = free_name((name,), {other.lstrip("_") for other in taken})
        protocol = free_name((f"{stem}{name.capitalize()}",), taken | {handler})
        handles.append(HandleSpec(free, protocol, "What the methods use.", () if rest else attributes, rest))
    path = PurePosixPath(source.path)
    folder = "" if str(path.parent) == "." else str(path.parent)
    return Recipe(
        name="score",
        source_file=source.path,
        source_class=shape.name,
        section="",
        target_file=free_module(tree, folder, f"{path.stem}_methods"),
        handler_class=handler,
        handles=tuple(handles),
        import_root=import_root(tree, source),
    )
