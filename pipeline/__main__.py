"""`python -m pipeline`: a kill that can be caught ends a run as Ctrl-C does."""

import signal

from pipeline.cli import main

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise SystemExit(main())
