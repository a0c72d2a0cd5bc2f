"""`hasattr(self, "x")` and `getattr(self, "x", d)` that the prover shows to be always, or never, the same.

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
from migration.presence.findings import HasattrFinding
from migration.presence.prover import prove_hasattr
from migration.recipe import Recipe
from migration.recipe_check import near

Place = tuple[int, int]


@dataclass(frozen=True)
class Proven:
    """One call that becomes `after`: a constant, or, where `attribute` is set, that attribute of self."""

    before: str
    after: str
    attribute: str


def proven_calls(
    recipe: Recipe, source: Source, shape: ClassOutline, tree: Tree, labels: Collection[str]
) -> tuple[dict[Place, Proven], list[Refusal], list[str]]:
    """(what to rewrite by (line, column), MG022 for what is not proved, attributes that nothing asks for)."""
    spec = recipe.hasattr
    if spec is None:
        return {}, [], []

    asked = [f for f in prove_hasattr(source, shape, tree) if f.method in labels and f.attribute is not None]
    found: dict[Place, Proven] = {}
    refusals: list[Refusal] = []
    for finding in asked:
        wanted = finding.attribute in spec.constant
        if not wanted and finding.verdict not in spec.apply:
            continue
        made, why = _made(finding)
        if made is not None:
            found[finding.line, finding.column] = made
        elif wanted:
            message = f"{finding.spelled} is not proved to be constant: {why}"
            refusals.append(Refusal("MG022", finding.method, finding.line, message))
    known = {finding.attribute or "" for finding in asked}
    missing = [name + near(name, known) for name in spec.constant if name not in known]
    return found, refusals, missing


def _made(finding: HasattrFinding) -> tuple[Proven | None, str]:
    """The rewrite of one call, or why there is none."""
    change = finding.rewrite
    if finding.verdict == "depends" or change.text is None:
        return None, change.why if change.kind == "refused" else finding.reason
    if finding.line != finding.end_line:
        return None, "the call is spread over several lines"
    if change.kind == "attribute" and finding.attribute is not None:
        return Proven(finding.spelled, f"self.{finding.attribute}", finding.attribute), ""
    if change.kind in ("constant", "default"):
        if isinstance(ast.parse(change.text, mode="eval").body, ast.Constant):
            return Proven(finding.spelled, change.text, ""), ""
        return None, "the default is no constant"
    return None, change.why


def in_method(proven: Mapping[Place, Proven], node: ast.AST) -> Iterator[tuple[Place, Proven]]:
    """Those of one definition."""
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return ((place, one) for place, one in sorted(proven.items()) if first <= place[0] <= last)
