"""Two paths in one process, and the caller always gets the legacy one's result. Imports neither torch nor numpy.

    _KV_GATE = Gate("BATCHGEN_WORKER_KV", KVCacheManager, {"_get_free": Pure(), "_release": Isolated()})

    def _get_free(self, n: int) -> int:
        if _KV_GATE.on:
            return _KV_GATE.run(self, "_get_free", n)
        return self._legacy__get_free(n)

`docs/experiment.md` has the rules.
"""

from shadow.experiment.agreement import Disagreement, Gather, agree, configure_all
from shadow.experiment.closing import Closing, close_all
from shadow.experiment.differ import Nature
from shadow.experiment.effects import Effect, Foreseen, Isolated, Planned, Pure, Skip
from shadow.experiment.flags import FlagError, Flags, Route
from shadow.experiment.gate import Gate, verdict
from shadow.experiment.ledger import Divergence, Kind, MethodCount, Summary, Verdict
from shadow.experiment.sampling import about
from shadow.experiment.watching import watching

__all__ = [
    "Closing",
    "Disagreement",
    "Divergence",
    "Effect",
    "FlagError",
    "Flags",
    "Foreseen",
    "Gate",
    "Gather",
    "Isolated",
    "Kind",
    "MethodCount",
    "Nature",
    "Planned",
    "Pure",
    "Route",
    "Skip",
    "Summary",
    "Verdict",
    "about",
    "agree",
    "close_all",
    "configure_all",
    "verdict",
    "watching",
]
