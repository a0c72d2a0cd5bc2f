"""The Python interpreters of this machine that `migrate trace` is tried with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_ASK = "import sys; print(sys.executable, *sys.version_info[:2])"


def _answer(python: str) -> tuple[str, str] | None:
    """(executable, version) of an interpreter that starts."""
    done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    path, major, minor = done.stdout.rsplit(maxsplit=2)
    return path, f"{major}.{minor}"


def _found() -> dict[str, str]:
    """Executable -> version: the running one and the first of each later version, on PATH or under pyenv."""
    found = {sys.executable: f"{sys.version_info[0]}.{sys.version_info[1]}"}
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for version in ("3.12", "3.13", "3.14"):
        on_path = shutil.which(f"python{version}")
        for python in filter(None, (on_path, *map(str, sorted(versions.glob(f"{version}.*/bin/python"))))):
            answer = _answer(python)
            if answer is not None and answer[1] not in found.values():
                found[answer[0]] = answer[1]
    return found


_VERSIONS = _found()
INTERPRETERS = sorted(_VERSIONS)
TRACED_BY = {
    python: f"{'monitoring' if tuple(map(int, version.split('.'))) >= (3, 12) else 'wrapping'} {version}"
    for python, version in _VERSIONS.items()
}
