"""``batchgen`` with the environment of FLAGS on the rank that OF_RANK names, and on no other."""

from __future__ import annotations

import json
import os
import sys

from batchgen.cli import main

if __name__ == "__main__":
    if os.environ["RANK"] == os.environ["OF_RANK"]:
        os.environ |= json.loads(os.environ["FLAGS"])
    sys.exit(main())
