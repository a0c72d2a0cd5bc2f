"""What is asked of the process of `shadow graphs`, and what it says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec

from shadow.diff import Comparison


class Task(msgspec.Struct, frozen=True):
    """What to run. `options` are fields of batchgen.engine.EngineOptions; `batches` request files, run back to back.

    Of each `every`-th decode step the replay is run again; after `max_steps` the run ends.
    """

    tree: str
    batches: tuple[str, ...]
    threads: int
    options: dict[str, object]
    every: int = 1
    max_steps: int | None = None


@dataclass(frozen=True)
class Begun:
    """The worker is built. `waits`: why the host waits for each comparison, None where it does not."""

    requests: int
    refused: int
    device: str
    torch: str
    waits: str | None


@dataclass(frozen=True)
class Replayed:
    """What was found of one replayed step."""

    step: int
    comparison: Comparison


@dataclass(frozen=True)
class Ended:
    """The run is over. `forwards`: how decode forwards began, "replay" or why eagerly. `waited`: how often the host
    waited for the device to compare."""

    forwards: Counter[str]
    waited: int


Said = Begun | Replayed | Ended
