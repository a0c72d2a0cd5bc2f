"""``python -m batchgen``: the same as the ``batchgen`` command, and what torchrun starts."""

import sys

from batchgen.cli import main

if __name__ == "__main__":
    sys.exit(main())
