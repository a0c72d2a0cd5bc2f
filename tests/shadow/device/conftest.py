from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.shadow.device.interpreted import Interpreter, interpreter


@pytest.fixture(scope="module")
def interpreted() -> Iterator[Interpreter]:
    with interpreter() as made:
        yield made
