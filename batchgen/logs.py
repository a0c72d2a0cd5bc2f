"""What of the log is shown on stderr, and how."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _CurrentStderr(logging.Handler):
    """Writes to what stderr is at that moment: a progress bar puts its own in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


@contextmanager
def shown_from(level: str | None) -> Iterator[None]:
    """Shows what is logged at `level` and above, with its time and its source; afterwards all is as it was.

    None: warnings and errors, as Python itself shows them; of the step policy only errors, for a pool that is too small
    parks rows all the time, and the summary counts them.
    """
    logger, policy = logging.getLogger("batchgen"), logging.getLogger("batchgen.scheduler")
    was = logger.level, logger.propagate, policy.level
    handler = _CurrentStderr()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    if level is None:
        policy.setLevel(logging.ERROR)
    else:
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = was[1]
        logger.setLevel(was[0])
        policy.setLevel(was[2])
