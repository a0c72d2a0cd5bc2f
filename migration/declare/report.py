"""What a declaration did or would do, as JSON and for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from migration.declare.plan import DeclareClean, DeclareOutcome, DeclarePlan, DeclareRefused
from migration.errors import CATALOGUE
from migration.ledger.patch import patch


def as_dict(
    outcome: DeclareOutcome, path: str, reasons: Mapping[str, str], *, written: bool
) -> dict[str, Any]:
    """The outcome as plain values; `outcome` is planned, written, refused or clean.

    `reasons` are what a recipe says of the obstacles that it accepts.
    """
    found: dict[str, Any] = {"schema": 1, "path": path, "class": outcome.class_name}
    if isinstance(outcome, DeclareRefused):
        refusals = [asdict(refusal) | {"way_out": refusal.way_out} for refusal in outcome.refusals]
        return found | {"outcome": "refused", "refusals": refusals}
    found["already"] = outcome.already
    if isinstance(outcome, DeclareClean):
        return found | {"outcome": "clean"}
    declarations = [
        asdict(one) | {"accepted": {name: reasons.get(name, "") for name in one.accepted}}
        for one in outcome.declarations
    ]
    return found | {
        "outcome": "written" if written else "planned",
        "declarations": declarations,
        "proof": asdict(outcome.proof),
        "diff": patch([outcome.change]).decode("utf-8", "replace"),
    }


def show(outcome: DeclareOutcome, path: str, reasons: Mapping[str, str], *, written: bool) -> None:
    """What the outcome is, on stdout."""
    if isinstance(outcome, DeclareRefused):
        _show_refusals(outcome, path)
    elif isinstance(outcome, DeclareClean):
        said = f"already declared: {', '.join(outcome.already)}" if outcome.already else "nothing to declare"
        print(f"{outcome.class_name} in {path}: {said}")
    else:
        _show_plan(outcome, path, reasons, written=written)


def _show_refusals(outcome: DeclareRefused, path: str) -> None:
    print(f"{outcome.class_name} in {path}: not declared, nothing written")
    explained: set[str] = set()
    for one in outcome.refusals:
        print(f"  {one.code} {path}:{one.line}: {one.where} {CATALOGUE[one.code].title}: {one.message}")
        if one.code not in explained:
            print(f"    way out: {one.way_out}")
        explained.add(one.code)


def _show_plan(outcome: DeclarePlan, path: str, reasons: Mapping[str, str], *, written: bool) -> None:
    count = len(outcome.declarations)
    verb = "declared" if written else "would be declared"
    print(f"{outcome.class_name} in {path}: {count} attribute{'s' * (count > 1)} {verb}")
    vouched: dict[str, None] = {}
    for one in outcome.declarations:
        value = f"= {one.value}" if one.value is not None else "made by __init__ as before"
        lines = ", ".join(map(str, one.tests))
        print(f"  {one.attribute} {value}; tests rewritten in line{'s' * (len(one.tests) > 1)} {lines}")
        vouched |= dict.fromkeys(one.accepted)
    for name in vouched:
        print(f"  accepted: {name}" + (f" ({reasons[name]})" if name in reasons else ""))
    if outcome.already:
        print(f"  already declared: {', '.join(outcome.already)}")
    proof = outcome.proof
    print(
        f"verified: the file compiles; but for {proof.tests} tests and {proof.declarations} declarations the "
        f"tree is the old one; {proof.comments} comments conserved; {proof.bytes_untouched} bytes identical; no new "
        "undefined or unused name; a second run changes nothing"
    )
