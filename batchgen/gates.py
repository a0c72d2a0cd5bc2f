"""What a run does about its worker's gates: nothing, and not even an import, where the worker has none."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shadow.experiment import Closing

_EXPERIMENT = "shadow.experiment"
_FOLDER = Path("out/shadow")


class GateFlagError(ValueError):
    """A gate's environment variable means nothing, or differs between ranks."""


@contextmanager
def agreed_gates(report: str | None) -> Iterator[None]:
    """Around the import of the worker's module, which makes the gates: all ranks agree on them, or none goes on.

    Raises:
        GateFlagError: on every rank.
    """
    refused = None
    try:
        yield
    except ValueError as error:
        if _EXPERIMENT not in sys.modules or not isinstance(error, sys.modules[_EXPERIMENT].FlagError):
            raise
        refused = error
    if _EXPERIMENT in sys.modules:
        from shadow.experiment import FlagError, agree

        try:
            agree(_gather, refused=refused, report=report)
        except FlagError as error:
            raise GateFlagError(str(error)) from error


def close_gates(*, alone: bool = False) -> Closing | None:
    """Ends the gates that compare, on all ranks together or `alone`; None where there are none."""
    if _EXPERIMENT not in sys.modules:
        return None
    from shadow.experiment import close_all

    return close_all(None if alone else _gather)


def report_path(output: str) -> str:
    """Where gates of a run report that are not told: a file of its own for each run."""
    name = "stdout" if output == "-" else Path(output).stem
    return str(_FOLDER / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl")


def _gather(value: Any) -> list[Any]:
    import torch.distributed as dist

    answers: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(answers, value)
    return answers
