"""A worker process: gets its work, then records one at a time, until its starter closes the pipe or is gone."""

from __future__ import annotations

import os
import sys
import threading
import time
from multiprocessing.connection import Connection

_LOOK_SECONDS = 1.0


def _end_with(starter: int) -> None:
    """A record may be replayed for long, and nobody wants it any more."""
    while os.getppid() == starter:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def main(handle: int, starter: int) -> None:
    threading.Thread(target=_end_with, args=(starter,), daemon=True).start()
    from shadow.record.fleet.engine import replay_in_worker

    with Connection(handle) as connection:
        try:
            work = connection.recv()
            while True:
                connection.send(replay_in_worker(work, connection.recv()))
        except (EOFError, ConnectionError):
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
