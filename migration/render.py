"""Terminal tables, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from migration.errors import CATALOGUE, Refusal
from migration.move.cut import CutClean, CutOutcome, CutPlan

if TYPE_CHECKING:
    from migration.inverse.inline import InlinePlan
    from migration.inverse.replay import Replay, State


def as_json(value: Any) -> None:
    """`value` on stdout, indented, with a final newline."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def line(*parts: str | tuple[str, str]) -> None:
    """One line of texts and (text, style); never folded, and brackets in it are no markup."""
    Console().print(Text.assemble(*parts), soft_wrap=True, highlight=False)


def outcome(found: CutOutcome, *, written: bool) -> None:
    if isinstance(found, CutClean):
        line(f"{found.recipe.name}: nothing to do, {len(found.methods)} methods are stubs already")
    elif isinstance(found, CutPlan):
        _plan(found, written=written)
    else:
        refusals(found.recipe.name, found.refusals)


def refusals(name: str, found: Sequence[Refusal]) -> None:
    """Why nothing was written, with the way out of each."""
    table = Table(
        "code", "where", "line", "why", "way out", title=escape(f"{name}: refused, nothing written")
    )
    for refusal in found:
        why = f"{CATALOGUE[refusal.code].title}: {refusal.message}"
        number = str(refusal.line or "")
        table.add_row(refusal.code, escape(refusal.where), number, escape(why), escape(refusal.way_out))
    Console().print(table)


def inlined(name: str, found: InlinePlan, *, written: bool) -> None:
    verb = "folded" if written else "would fold"
    exact = "the class's file has its original bytes" if found.exact else "edits made since the cut are kept"
    line((name, "bold"), f": {verb} {len(found.methods)} methods back; {exact}")
    for change in found.changes:
        line(f"  {'deleted' if change.after is None else 'changed'} {change.path}")


def replayed(found: Replay) -> None:
    """A row for each method, and the counts."""
    table = Table(
        "method", "line", "state", "", title=escape(f"{found.recipe.name} on {found.recipe.source_file}")
    )
    colours = {"unchanged": "green", "re-derived": "yellow", "conflict": "red"}
    for method in found.methods:
        state = f"[{colours[method.state]}]{method.state}[/]"
        table.add_row(escape(method.name), str(method.line or ""), state, escape(method.why))
    Console().print(table)
    states: tuple[State, ...] = ("unchanged", "re-derived", "conflict")
    line(", ".join(f"{found.count(state)} {state}" for state in states))


def verdicts(rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        state = ("holds", "green") if row["holds"] else ("broken", "red")
        rest = f": {row['methods']} methods, {row['file']} -> {row['handler']}"
        line((row["slice"], "bold"), ": ", state, rest)
        if row["holds"]:
            renames = ", ".join(f"self became self._{name} {count}x" for name, count in row["renames"])
            line(f"  {renames or 'no use of self'}")
            for before, after, count in row["declared"]:
                line(f"  declared: {before} became {after} {count}x")
            line(f"  the original was restored: {row['original']}")
            for remark in row["remarks"]:
                line(f"  beside the proof: {remark}")
        if row["share"] is not None:
            line(f"  {_share(row['share'])}")
        for reason in row["reasons"]:
            line(f"  MG208 {reason}")


def _share(found: Mapping[str, Any]) -> str:
    added = f", {found['added']} added since" if found["added"] else ""
    text = f"{found['percent']} % of {PurePosixPath(found['file']).name} from the codemod"
    text += f" (moved {found['moved']}, generated {found['generated']}{added})"
    by_hand = ", ".join(f"{PurePosixPath(path).name} {count} lines" for path, count in found["by_hand"])
    return text + (f", written by hand: {by_hand}" if by_hand else "")


def _plan(found: CutPlan, *, written: bool) -> None:
    recipe, proof = found.recipe, found.proof
    verb = "moved" if written else "would move"
    where = f"{recipe.handler_class} in {recipe.target_file}"
    line((recipe.name, "bold"), f": {verb} {proof.methods} methods of {recipe.source_class} to {where}")
    renames = dict(proof.renames)
    table = Table(
        "handle", "protocol", "members", "written", "uses", title="self became", title_justify="left"
    )
    for handle in found.handles:
        table.add_row(
            f"self._{handle.spec.name}",
            handle.spec.protocol,
            str(len(handle.members)),
            ", ".join(member.name for member in handle.members if member.written),
            str(renames.get(handle.spec.name, 0)),
        )
    Console().print(table)
    line(
        f"verified: both files compile; {proof.methods} moved bodies equal the originals with the handles "
        f"taken out; {proof.methods} signatures kept; {proof.comments} comments conserved; "
        f"{proof.bytes_untouched} bytes outside the cut identical; no new undefined or unused name; "
        "a second run changes nothing"
    )
    for detail in proof.details:
        if detail.lazy_imports:
            line(f"  {detail.name} takes from the worker at each call: {', '.join(detail.lazy_imports)}")
        rewrites = [kind if count == 1 else f"{kind} ({count})" for kind, count in detail.rewrites]
        if rewrites:
            line(f"  {detail.name}: {'; '.join(rewrites)}")
    if proof.declared:
        declared = Table("from", "to", "places", title="declared rewrites", title_justify="left")
        for before, after, count in proof.declared:
            declared.add_row(escape(before), escape(after), str(count))
        Console().print(declared)
    if proof.imports_removed:
        line(f"  imports only they used, removed: {', '.join(proof.imports_removed)}")
    for note in found.notes:
        line(f"  note: {note}")
    for change in found.changes:
        size = (change.after or b"").count(b"\n") - (change.before or b"").count(b"\n")
        verb = "new" if change.before is None else "deleted" if change.after is None else "changed"
        line(f"  {verb} {change.path} ({size:+} lines)")
