"""Quirk g: what a row loses on its way through the spill store of the engine studied, and keeps in a requeue."""

from __future__ import annotations

import dataclasses

from batchgen.scheduler.sequences import ActiveSeq, Adaptive, ToolCalls

_KEPT_OF_TOOLS = ("required", "requested", "tools_present", "suppressed", "opened")


def forget_in_spill(a: ActiveSeq, now: float) -> None:
    """Tool body, content counters, guards, adaptive state, penalty window and LZ penalty begin anew."""
    a.guard_stop = None
    a.error = None
    a.adaptive = Adaptive()
    a.tools = ToolCalls(**{name: getattr(a.tools, name) for name in _KEPT_OF_TOOLS})
    a.sampling = dataclasses.replace(a.sampling, penalty_window=256, lz_penalty=0.0)
    a.last_token_time = now
