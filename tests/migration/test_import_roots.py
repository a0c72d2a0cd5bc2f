"""The folder that imports start from is found from packages and imports, and guessed at from nothing else."""

from __future__ import annotations

import pytest

from migration.code.import_roots import import_root
from migration.code.source import Source

from .support import DictTree

PLAIN = "class Worker: ...\n"


@pytest.mark.parametrize(
    ("path", "text", "packages", "root"),
    [
        ("app/worker.py", PLAIN, ["app"], ""),
        ("app/parts/worker.py", PLAIN, ["app", "app/parts"], ""),
        ("src/app/worker.py", PLAIN, ["src/app"], "src"),
        # A package without __init__.py above one that has it, seen by the import.
        ("top/mid/app/worker.py", "import top.other\n" + PLAIN, ["top/mid/app"], ""),
        ("lib/top/mid/worker.py", "from top.mid import x\n" + PLAIN, [], "lib"),
        ("lib/top/mid/worker.py", "def f():\n    from top import x\n" + PLAIN, [], "lib"),
        # The standard library is no evidence, nor is a relative import.
        ("src/logging/app/worker.py", "import logging\n" + PLAIN, ["src/logging/app"], "src/logging"),
        ("src/app/worker.py", "from .src import x\n" + PLAIN, ["src/app"], "src"),
        ("worker.py", PLAIN, [], ""),
        ("tools/worker.py", PLAIN, [], ""),
        ("tools/worker.py", PLAIN + "if __name__ == '__main__':\n    Worker()\n", [], "tools"),
    ],
)
def test_root(path: str, text: str, packages: list[str], root: str):
    tree = DictTree({path: text.encode(), **{f"{folder}/__init__.py": b"" for folder in packages}})
    assert import_root(tree, Source(path, text.encode())) == root
