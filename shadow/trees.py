"""A source tree from what a user names: a folder, a worker file, or a git revision."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE, WORKER = "batchgen", "batchgen/batchgen_worker.py"


class TreeError(ValueError):
    """What was named is no tree; one line that says what it must be."""


@contextmanager
def source_tree(named: str, beside: Path = Path()) -> Iterator[Path]:
    """The folder that holds `batchgen/` for what was `named`; copies live as long as the context.

    A folder is used as it is. A `.py` file stands for a copy of the tree in `beside` with that file as its
    worker. Anything else is a revision of the git repository that `beside` is in. TreeError.
    """
    path = Path(named)
    if path.is_dir():
        yield _checked(path.resolve(), named)
        return
    with tempfile.TemporaryDirectory(prefix="shadow-tree-") as folder:
        copy = Path(folder)
        if path.is_file():
            if path.suffix != ".py":
                raise TreeError(f"{named} is neither a folder nor a Python file")
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(_checked(beside.resolve(), str(beside)) / PACKAGE, copy / PACKAGE, ignore=skip)
            shutil.copyfile(path, copy / WORKER)
        else:
            _export(named, beside, copy)
        yield _checked(copy.resolve(), named)


def _checked(tree: Path, named: str) -> Path:
    if not (tree / PACKAGE / "__init__.py").is_file():
        raise TreeError(f"{named} is not a source tree: it holds no {PACKAGE}/__init__.py")
    return tree


def _export(revision: str, repository: Path, folder: Path) -> None:
    command = ["git", "-C", str(repository), "archive", "--format=tar", revision, "--", PACKAGE]
    if revision.startswith("-"):
        raise TreeError(f"{revision!r} is no folder, Python file or git revision")
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["git archive failed"]
        raise TreeError(f"{revision!r} is no folder, Python file or git revision here: {said[0]}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
