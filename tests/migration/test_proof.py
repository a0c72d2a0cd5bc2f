"""The proof must fail when the result is wrong: every check is shown a result with one planted fault."""

from __future__ import annotations

import pytest

from migration.code.source import Source
from migration.code.structure import outline
from migration.errors import Refusal
from migration.move.cut import module_names, movings, select
from migration.move.proof import Proof, Result, prove

from .support import RECIPE, planned, result, tree_of, worker_source

WORKER = worker_source(
    """
# counts what it is given
def count(self, items, *, start: int = 0) -> int:
    try:
        self.total = start + len(items)  # the whole of it
        return self.shown(self.total)
    finally:
        dumps(items)

def shown(self, value=1):
    return [value for _ in range(self.width)] if hasattr(self, "width") else helper(value)
""",
    head="from json import dumps\n\n\ndef helper(value):\n    return value\n\n",
    tail="\n    # ============ Rest ============\n\n    def rest(self):\n        return 1\n",
)
PLAN = planned(WORKER)
HANDLER = result(PLAN, RECIPE.target_file)
AFTER = result(PLAN, RECIPE.source_file)


def verdict(worker: str, handler: str) -> Proof | tuple[Refusal, ...]:
    source = Source(RECIPE.source_file, WORKER)
    shape = outline(source, "Worker")
    moved, _ = movings(
        RECIPE, tree_of(WORKER), source, shape, select(shape, RECIPE), module_names(RECIPE, source)
    )
    after = Result(worker.encode(), handler.encode(), {"shown": ("helper",)}, {}, "worker_module", ("dumps",))
    return prove(RECIPE, source, moved, after)


def test_the_untouched_result_is_proved():
    proof = verdict(AFTER, HANDLER)
    assert isinstance(proof, Proof)
    assert proof == PLAN.proof
    assert dict(proof.renames) == {"worker": 4} and proof.methods == 2 and proof.comments == 4


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        ("start + len", "start - len", {"MG202"}),
        ("self._worker.total = start", "self.total = start", {"MG202"}),
        ("return self.shown(", "return self._worker.shown(self._worker.", {"MG202"}),
        ("hasattr(self._worker, ", "hasattr(self, ", {"MG202"}),
        ('"width"', '"height"', {"MG202"}),
        (
            "    finally:\n            dumps(items)",
            "    except ValueError:\n            dumps(items)",
            {"MG202"},
        ),
        ("def shown(self, value=1)", "def shown(self, value=2)", {"MG202"}),
        ("    def shown", "    def showed", {"MG202"}),
        ("        from app.worker import helper\n", "", {"MG202", "MG203"}),
        ("import helper\n", "import helper, rest\n", {"MG202", "MG203"}),
        ("from json import dumps\n", "", {"MG203"}),
        ("from json import dumps\n", "from json import dumps, loads\n", {"MG203"}),
        ("  # the whole of it", "", {"MG204"}),
        ("# the whole of it", "# the whole", {"MG204"}),
        ("range(self", "range((self", {"MG201"}),
        ("        return [", "\t\treturn [", {"MG201"}),
    ],
)
def test_a_fault_in_the_handler_is_found(old: str, new: str, codes: set[str]):
    assert HANDLER.count(old) == 1
    found = verdict(AFTER, HANDLER.replace(old, new))
    assert isinstance(found, tuple) and codes <= {refusal.code for refusal in found}


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("start: int = 0", "start: int = 1", "MG206"),
        ("start: int = 0", "start=0", "MG206"),
        ("*, start", "start", "MG206"),
        ("def count(", "async def count(", "MG206"),
        (") -> int:", "):", "MG206"),
        ("shown(value)", "shown(1)", "MG206"),
        ("start=start", "start=items", "MG206"),
        ("count(items, start=start)", "count(items)", "MG206"),
        ("for_worker(self).shown", "for_worker(self.name).shown", "MG206"),
        ("return CacheManager.for_worker(self).shown", "CacheManager.for_worker(self).shown", "MG206"),
        ("\t\treturn 1\n", "\t\treturn 2\n", "MG205"),
        ("\t\treturn 1\n", "\t\treturn 1  \n", "MG205"),
        ("# ============ Rest", "# =========== Rest", "MG205"),
        ("\n\n\t# ============ Rest", "\n\t# ============ Rest", "MG205"),
        ("from app.parts.cache import CacheManager\n", "", "MG203"),
        ("import CacheManager\n", "import CacheManager\nimport os\n", "MG205"),
        ("import CacheManager\n", "import CacheManager\nfrom json import dumps\n", "MG205"),
    ],
)
def test_a_fault_in_the_worker_is_found(old: str, new: str, code: str):
    assert AFTER.count(old) == 1
    found = verdict(AFTER.replace(old, new), HANDLER)
    assert isinstance(found, tuple) and code in {refusal.code for refusal in found}
