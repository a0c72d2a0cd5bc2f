"""`hasattr(self, "x")` and `getattr(self, "x", d)` that become something else in the handler, as the prover allows.

    hasattr(self, "pool")          True                                      always, by proof
    getattr(self, "pool", None)    self._host.pool                           always there
    hasattr(self, "drain")         isinstance(self._host, HasDrain)          a method that only some subclasses have

Positions are those of the class's own file. The prover looks at the whole repository, so it must see it as
it was before the cut.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from migration.code.source import Source
from migration.code.structure import ClassOutline
from migration.code.tree import Tree
from migration.errors import Refusal
from migration.presence.accepting import accept
from migration.presence.capability import no_capability
from migration.presence.findings import HasattrFinding
from migration.presence.prover import findings_of, world_of
from migration.presence.world import World
from migration.recipe import HasattrSpec, Recipe
from migration.recipe_check import near

Place = tuple[int, int]


@dataclass(frozen=True)
class Proven:
    """One call that becomes `after`: a constant; where `attribute` is set, that attribute of self; where
    `capability` is set, an isinstance test with the Protocol of that name. `how` is "proved" or "accepted".
    """

    before: str
    after: str
    attribute: str
    how: str = "proved"
    capability: str = ""


def proven_calls(
    recipe: Recipe, source: Source, shape: ClassOutline, tree: Tree, labels: Collection[str]
) -> tuple[dict[Place, Proven], list[Refusal], list[str]]:
    """(what to rewrite by (line, column), what is refused, attributes that the recipe should not name)."""
    spec = recipe.hasattr
    if spec is None:
        return {}, [], []
    world = world_of(source, shape, tree)
    raw = findings_of(world, source, shape)
    found: dict[Place, Proven] = {}
    refusals: list[Refusal] = []
    for one, finding in zip(raw, accept(raw, spec.accepted), strict=True):
        name = finding.attribute
        if finding.method not in labels or name is None:
            continue
        if name in spec.optional:
            message = f"{finding.spelled} stands until `migrate declare {recipe.name}` has declared {name}"
            refusals.append(Refusal("MG122", finding.method, finding.line, message))
            continue
        wanted = name in spec.constant or name in spec.capability
        if not wanted and finding.verdict not in spec.apply:
            continue
        how = "proved" if finding == one else "accepted"
        made, why = _capability(world, finding, how) if name in spec.capability else _made(finding, how)
        if made is not None:
            found[finding.line, finding.column] = made
        elif wanted:
            refusals.append(_refusal(finding, why, "MG123" if name in spec.capability else "MG022"))
    return found, refusals, _unasked(spec, raw, labels, world)


def _refusal(finding: HasattrFinding, why: str, code: str) -> Refusal:
    what = "a capability" if code == "MG123" else "constant"
    return Refusal(code, finding.method, finding.line, f"{finding.spelled} is not proved to be {what}: {why}")


def _unasked(
    spec: HasattrSpec, findings: Collection[HasattrFinding], labels: Collection[str], world: World
) -> list[str]:
    """Attributes of the recipe that no moved method asks for, and optional ones that are not even declared."""
    known = {finding.attribute or "" for finding in findings if finding.method in labels}
    said = [
        f"no moved method asks for {name}{near(name, known)}"
        for name in (*spec.constant, *spec.capability)
        if name not in known
    ]
    anywhere = {finding.attribute or "" for finding in findings} | world.presence.after_init
    return said + [
        f"nothing asks for {name} or declares it{near(name, anywhere)}"
        for name in spec.optional
        if name not in anywhere and world.in_class_body(name) is None
    ]


def _made(finding: HasattrFinding, how: str) -> tuple[Proven | None, str]:
    """The rewrite of one call, or why there is none."""
    change = finding.rewrite
    if finding.assumed is not None and finding.assumed.verdict != "depends":
        return None, "; ".join(finding.assumed.obstacles)
    if finding.verdict == "depends" or change.text is None:
        return None, change.why if change.kind == "refused" else finding.reason
    if finding.line != finding.end_line:
        return None, "the call is spread over several lines"
    if change.kind == "attribute" and finding.attribute is not None:
        return Proven(finding.spelled, f"self.{finding.attribute}", finding.attribute, how), ""
    if change.kind in ("constant", "default"):
        if isinstance(ast.parse(change.text, mode="eval").body, ast.Constant):
            return Proven(finding.spelled, change.text, "", how), ""
        return None, "the default is no constant"
    return None, change.why


def _capability(world: World, finding: HasattrFinding, how: str) -> tuple[Proven | None, str]:
    change, name = finding.rewrite, finding.attribute
    if change.kind != "capability" or change.text is None or name is None:
        assumed = finding.assumed
        if assumed is not None and assumed.rewrite.kind == "capability":
            return None, "; ".join(assumed.obstacles)
        return None, no_capability(world, finding)
    if finding.line != finding.end_line:
        return None, "the call is spread over several lines"
    title = change.text.rpartition(", ")[2].removesuffix(")")
    return Proven(finding.spelled, f"isinstance(self, {title})", name, how, title), ""


def in_method(proven: Mapping[Place, Proven], node: ast.AST) -> Iterator[tuple[Place, Proven]]:
    """Those of one definition."""
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return ((place, one) for place, one in sorted(proven.items()) if first <= place[0] <= last)
