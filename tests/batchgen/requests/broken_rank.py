"""``batchgen`` with the real engine, whose generation fails on the rank that BROKEN_RANK names."""

from __future__ import annotations

import os
import sys
from typing import Any

import batchgen.engine
from batchgen.cli import main

build_worker = batchgen.engine.build_worker


def build_broken_worker(options: batchgen.engine.EngineOptions) -> Any:
    worker = build_worker(options)
    if os.environ["BROKEN_RANK"] == os.environ["RANK"]:

        def generate(*arguments: object, **how: object) -> None:
            raise RuntimeError("this rank is broken")

        worker.generate = generate  # type: ignore[assignment,method-assign]
    return worker


if __name__ == "__main__":
    batchgen.engine.build_worker = build_broken_worker
    sys.exit(main())
