"""Under which conditions a side runs, known before it is started; imports no torch."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version

from shadow.messages import Setup
from shadow.noise.store import Conditions


def conditions_of(control: Setup) -> Conditions:
    """What the bounds of runs with this control side are valid for; options not given count as the engine's."""
    from batchgen.engine import EngineOptions

    options = asdict(EngineOptions()) | dict(control.options)
    return Conditions(
        model=str(options["model"]),
        dtype=str(options["dtype"]),
        device=str(options["device"]),
        threads=control.threads,
        page_size=int(options["page_size"]),
        torch_version=version("torch"),
    )
