"""What a handler inherits is written by hand: the checklist holds for it as well, at its own place."""

from __future__ import annotations

import pytest

from .support import HANDLER, RECIPE, edited, report, tree

PLANNED = "app/planned.py"
HONEST = """
from app.pools import DualKVCacheCoordinator


class Planned:
    def plan_eviction(self, used, manager):
        host_kv_eviction_watermark = self._config.total_pages * 9 // 10
        dual = isinstance(manager, DualKVCacheCoordinator)
        return used > host_kv_eviction_watermark and self._over_watermark(used) and dual
"""


def files(text: str = HONEST, phase: str = "port") -> dict[str, bytes]:
    there = edited(
        tree(phase), HANDLER, f"class {RECIPE.handler_class}:", f"class {RECIPE.handler_class}(Planned):"
    )
    there = edited(
        there,
        HANDLER,
        "from app.pools import DualKVCacheCoordinator\n",
        "from app.planned import Planned\nfrom app.pools import DualKVCacheCoordinator\n",
    )
    return {**there, PLANNED: text.encode()}


def test_an_honest_base_is_clean():
    found = report(files(), "port")
    assert not found.findings, [finding.message for finding in found.findings]
    assert found.looked > report(tree("port"), "port").looked


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("MG610", "and dual", "and self._state.core_engine.host_paged_kv_worker_view"),
        ("MG610", "and dual", "and self._state.model"),
        ("MG611", "self._config.total_pages", "self._state.model_config.layers"),
        ("MG612", "self._config.total_pages", "self._state.world_size"),
        ("MG613", "and dual", "and self._state._pending_kv_append_tensors"),
        ("MG614", "        dual =", "        self._dual ="),
        ("MG614", "class Planned:", "class Planned:\n    seen = {}\n"),
        ("MG615", "from app.pools import DualKVCacheCoordinator\n", ""),
        ("MG616", "and dual", "and duel"),
        ("MG617", "and dual", 'and hasattr(self._state, "parallel_manager")'),
        ("MG618", "and dual", "and self._parallel is None"),
        ("MG619", "and dual", "and self._state._put_sequences_on_hold([])"),
        ("MG622", "and dual", "and self._state.gpu_manager.primary.drop()"),
        ("MG623", "and dual", "and self._state.gpu_manager.free([])"),
        ("MG624", "        dual =", "        manager.assigned_rank = dual ="),
        ("MG628", "and dual", "and -(-used // 3)"),
        (
            "MG638",
            "        dual =",
            "        if self._state.rank:\n            self._agree(1)\n        dual =",
        ),
        ("MG639", "and dual", "and self._state.gpu_manager._sequences"),
        ("MG645", "and dual", "and self._state.sequencez"),
    ],
)
def test_a_base_that_breaks_a_rule_is_found_in_its_own_file(code: str, old: str, new: str):
    there = edited(files(), PLANNED, old, new)
    found = [finding for finding in report(there, "port").findings if finding.code == code]
    assert found
    assert {finding.place.path for finding in found} == {PLANNED}
    for finding in found:
        if finding.fix is not None:
            assert finding.fix.path == PLANNED


def test_a_planner_that_nobody_calls_is_dead():
    dead = [one for one in report(files(phase="cleanup"), "cleanup").findings if one.code == "MG635"]
    assert [one.symbol for one in dead] == ["plan_eviction"] and dead[0].place.path == PLANNED
