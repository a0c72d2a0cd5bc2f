"""Shared by all tests: few threads, and no attention state left over from another test.

Nothing here imports torch: the tests of the packages that do without it stay quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "2")
# Threads that wait by spinning take the core from the test beside them: three times slower on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(autouse=True)
def _clean_attention_state() -> Iterator[None]:
    yield
    wrapper = sys.modules.get("batchgen.attention.wrapper")
    if wrapper is not None:
        wrapper.AttnWrapperBase.reset()
