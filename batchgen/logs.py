"""What of the log is shown on stderr, and how."""

from __future__ import annotations

import logging
import sys


class _CurrentStderr(logging.Handler):
    """Writes to what stderr is at that moment: a progress bar puts its own in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


def set_up_logging(level: str | None) -> None:
    """Shows what is logged at `level` and above, with its time and its source.

    None: warnings and errors, as Python itself shows them; of the step policy only errors, for a pool that is too small
    parks rows all the time, and the summary counts them.
    """
    if level is None:
        logging.getLogger("batchgen.scheduler").setLevel(logging.ERROR)
        return
    handler = _CurrentStderr()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("batchgen")
    for old in [old for old in logger.handlers if isinstance(old, _CurrentStderr)]:
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(level.upper())
    logging.getLogger("batchgen.scheduler").setLevel(logging.NOTSET)
