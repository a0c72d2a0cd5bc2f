"""What ends a run of the pipeline, with the exit code that it has."""

from __future__ import annotations

from collections.abc import Iterable

DONE, FOUND, REFUSED, SHORT, USAGE = 0, 1, 2, 3, 64

#: Worst first; what is not listed is as bad as the first.
_ORDER = (REFUSED, FOUND, SHORT, DONE)


class PipelineError(Exception):
    """One line: what, where, why, and what to do. `code` is the exit code of the command."""

    def __init__(self, message: str, code: int = REFUSED) -> None:
        super().__init__(message)
        self.code = code


def worst(codes: Iterable[int]) -> int:
    """The exit code that stands for several: 2, 1, 3, 0; 0 for none."""
    return min(codes, key=lambda code: _ORDER.index(code) if code in _ORDER else -1, default=DONE)
