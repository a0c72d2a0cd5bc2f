"""What `migrate split` does with the long methods of the corpus: divided with a proof, or refused with a code."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from migration.code.source import Source, read_source
from migration.code.structure import outline
from migration.code.tree import DiskTree, Tree
from migration.errors import MigrationError
from migration.split.plan import DEFAULT_BUDGET, SplitClean, SplitPlan, SplitRefused, plan_split
from wild.corpus import OUT
from wild.fetch import fetch

ROWS = OUT / "splits"


@dataclass(frozen=True)
class Tried:
    """One method: "split", "fits" (its docstring apart), "refused" or "broken"."""

    name: str
    lines: int
    outcome: str
    pieces: int = 0
    codes: tuple[str, ...] = ()
    why: str = ""


def try_class(package: str, file: str, class_name: str) -> list[Tried]:
    """Every method of the class that is longer than the budget of `migrate split`."""
    tree = DiskTree(fetch(package))
    data = tree.read(file)
    assert data is not None, file
    source = read_source(file, data)
    long = {
        method.name: method.last_line - method.first_line + 1
        for method in outline(source, class_name).methods
        if method.last_line - method.first_line + 1 > DEFAULT_BUDGET
    }
    return [_try(source, class_name, name, lines, tree) for name, lines in long.items()]


def _try(source: Source, class_name: str, name: str, lines: int, tree: Tree) -> Tried:
    outcome = plan_split(source, name, class_name, tree=tree)
    if isinstance(outcome, SplitClean):
        return Tried(name, lines, "fits")
    if isinstance(outcome, SplitRefused):
        codes = tuple(sorted({refusal.code for refusal in outcome.refusals}))
        return Tried(name, lines, "refused", codes=codes)
    return Tried(
        name,
        lines,
        "broken" if (why := _fault(outcome, tree)) else "split",
        len(outcome.helpers) + 1,
        (),
        why,
    )


def _fault(plan: SplitPlan, tree: Tree) -> str:
    """What is wrong with the result: it must compile, and a second run must find nothing to do."""
    assert plan.change.after is not None
    try:
        compile(plan.change.after, plan.change.path, "exec", dont_inherit=True)
        source = read_source(plan.change.path, plan.change.after)
        again = plan_split(source, plan.method, plan.class_name, tree=tree)
    except (SyntaxError, MigrationError) as error:
        return str(error)
    if not isinstance(again, SplitClean):
        return "a second run finds something to do"
    names = {method.name for method in outline(source, plan.class_name).methods}
    missing = [helper.name for helper in plan.helpers if helper.name not in names]
    return f"no helper {', '.join(missing)}" if missing else ""


def note(class_name: str, tried: Sequence[Tried]) -> None:
    """The row of one class for the table of the job."""
    ROWS.mkdir(parents=True, exist_ok=True)
    row = {"class": class_name, "tried": [asdict(one) for one in tried]}
    (ROWS / f"{class_name}.json").write_text(json.dumps(row), encoding="utf-8")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown; classes without a long method have no row."""
    lines = [
        f"| class | over {DEFAULT_BUDGET} lines | split (pieces) | fit without their docstring | refused | broken |",
        "|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for row in rows:
        tried = row["tried"]
        found = Counter(one["outcome"] for one in tried)
        found["pieces"] = sum(one["pieces"] for one in tried if one["outcome"] == "split")
        found["methods"] = len(tried)
        codes = Counter(code for one in tried for code in one["codes"])
        total.update(found)
        if tried:
            lines.append(_row(row["class"], found, codes))
    return "\n".join([*lines, _row("all", total, Counter())]) + "\n"


def _row(name: str, found: Counter[str], codes: Counter[str]) -> str:
    split = f"{found['split']} ({found['pieces']})" if found["split"] else "0"
    named = ", ".join(f"{code} x{count}" for code, count in sorted(codes.items()))
    refused = f"{found['refused']}{': ' + named if named else ''}"
    return f"| {name} | {found['methods']} | {split} | {found['fits']} | {refused} | {found['broken']} |"


def main() -> int:
    """Write and print the table; 1 when nothing was tried or something is broken."""
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(ROWS.glob("*.json"))]
    text = table(rows)
    (OUT / "splits.md").write_text(text, encoding="utf-8")
    print(text)
    return int(not rows or any(one["outcome"] == "broken" for row in rows for one in row["tried"]))


if __name__ == "__main__":
    sys.exit(main())
