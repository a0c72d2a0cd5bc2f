"""The golden splits: <case>/before.py, after.py and arguments.txt (what follows the file on the command line).

`python -m tests.migration.split_golden CASE ...` writes after.py anew, to be read and committed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from migration.cli import _parser
from migration.code.source import Source
from migration.split.plan import SplitOptions, SplitOutcome, SplitPlan, plan_split

GOLDEN = Path(__file__).with_name("golden_split")


def arguments(case: str) -> argparse.Namespace:
    words = (GOLDEN / case / "arguments.txt").read_text(encoding="utf-8").split()
    return _parser().parse_args(["split", "before.py", *words])


def split(case: str, data: bytes | None = None, budget: int | None = None) -> SplitOutcome:
    """The outcome for before.py, or for other bytes, under the same arguments or with another budget."""
    given = arguments(case)
    source = Source("before.py", (GOLDEN / case / "before.py").read_bytes() if data is None else data)
    options = SplitOptions(budget or given.budget, given.cap, given.name_prefix, tuple(given.propagates))
    return plan_split(source, given.method, given.class_name, options)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        outcome = split(name)
        assert isinstance(outcome, SplitPlan), outcome
        (GOLDEN / name / "after.py").write_bytes(outcome.change.after or b"")
