"""What a split did or would do, as JSON and for the terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from migration.errors import CATALOGUE
from migration.ledger.patch import patch
from migration.split.plan import SplitClean, SplitOutcome, SplitPlan, SplitRefused


def as_dict(outcome: SplitOutcome, *, written: bool) -> dict[str, Any]:
    """The outcome as plain values; `outcome` is planned, written, refused or clean."""
    found: dict[str, Any] = {"schema": 1, "class": outcome.class_name, "method": outcome.method}
    if isinstance(outcome, SplitClean):
        return found | {"outcome": "clean", "lines": outcome.lines}
    found["lines_before"] = outcome.lines_before
    if isinstance(outcome, SplitRefused):
        refusals = [asdict(refusal) | {"way_out": refusal.way_out} for refusal in outcome.refusals]
        return found | {"outcome": "refused", "reachable": outcome.reachable, "refusals": refusals}
    return found | {
        "outcome": "written" if written else "planned",
        "lines_after": outcome.lines_after,
        "helpers": [asdict(helper) for helper in outcome.helpers],
        "proof": asdict(outcome.proof),
        "path": outcome.change.path,
        "diff": patch([outcome.change]).decode("utf-8", "replace"),
    }


def show(outcome: SplitOutcome, path: str, *, written: bool) -> None:
    """What the outcome is, on stdout."""
    name = f"{outcome.class_name}.{outcome.method}"
    if isinstance(outcome, SplitClean):
        print(f"{name} in {path}: nothing to do, {outcome.lines} lines are within the budget")
    elif isinstance(outcome, SplitRefused):
        _show_refusals(name, path, outcome)
    else:
        _show_plan(name, path, outcome, written=written)


def _show_refusals(name: str, path: str, outcome: SplitRefused) -> None:
    print(f"{name} in {path}: {outcome.lines_before} lines, not split, nothing written")
    explained: set[str] = set()
    for refusal in outcome.refusals:
        print(f"  {refusal.code} {path}:{refusal.line}: {CATALOGUE[refusal.code].title}: {refusal.message}")
        if refusal.code not in explained:
            print(f"    way out: {refusal.way_out}")
        explained.add(refusal.code)


def _show_plan(name: str, path: str, outcome: SplitPlan, *, written: bool) -> None:
    count, proof = len(outcome.helpers), outcome.proof
    verb = "split" if written else "would be split"
    helpers = "1 helper" if count == 1 else f"{count} helpers"
    print(f"{name} in {path} {verb}: {outcome.lines_before} lines become {outcome.lines_after} and {helpers}")
    for helper in outcome.helpers:
        gives = ("the method's result",) if helper.returns else helper.results
        print(
            f"  {helper.name}: {helper.lines} lines, from {helper.first_line}-{helper.last_line}\n"
            f"    takes {', '.join(helper.parameters) or 'nothing'}; gives {', '.join(gives) or 'nothing'}"
        )
    print(
        f"verified: the file compiles; with {helpers} put back the method is the original "
        f"({proof.statements} statements); {proof.comments} comments conserved; {proof.bytes_untouched} bytes "
        "outside the method identical; locals stay local; no new undefined or unused name; "
        "a second run changes nothing"
    )
