"""The golden declarations: <case>/before.py, after.py and either slice.toml or arguments.txt (what follows the
file on the command line).

`python -m tests.migration.declare_golden CASE ...` writes after.py anew, to be read and committed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from migration.cli import _parser
from migration.code.source import Source
from migration.commands.declare import _asked
from migration.declare.plan import DeclareOutcome, DeclarePlan, plan_declare
from migration.recipe import parse_recipe

from .support import DictTree

GOLDEN = Path(__file__).with_name("golden_declare")


def declare(case: str, data: bytes | None = None) -> DeclareOutcome:
    """The outcome for before.py, or for other bytes in its place."""
    folder = GOLDEN / case
    source = Source("before.py", (folder / "before.py").read_bytes() if data is None else data)
    words, recipe = ["before.py"], None
    if (folder / "slice.toml").exists():
        recipe = parse_recipe((folder / "slice.toml").read_text(encoding="utf-8"), case)
    else:
        words += (folder / "arguments.txt").read_text(encoding="utf-8").split()
    given = _parser().parse_args(["declare", *words])
    wanted, accepted = _asked(given, recipe)
    name = recipe.source_class if recipe is not None else given.class_name
    tree = DictTree({"before.py": source.data})
    return plan_declare(source, name, tree, wanted, (*accepted, *given.accept))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        outcome = declare(name)
        assert isinstance(outcome, DeclarePlan), outcome
        (GOLDEN / name / "after.py").write_bytes(outcome.change.after or b"")
