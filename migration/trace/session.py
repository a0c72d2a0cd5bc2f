"""Runs a command with the probe in every Python process that it starts, and gathers what they saw."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migration.errors import MigrationError
from migration.trace.merge import Merged, merge

#: How long a process may outlive the command and still end in good order.
_GRACE_S = 2.0
_PROBE = Path(__file__).with_name("probe")

# The folder with this file comes first on PYTHONPATH, so each Python child imports it as it starts. It takes
# itself off the path again and hands on to the sitecustomize that the interpreter would have found.
_START = '''"""Starts the probe of `migrate trace`; written for one run and gone after it."""
import sys

_FOLDER = {folder!r}


def _start():
    import importlib.util

    where = {probe!r}
    spec = importlib.util.spec_from_file_location(
        "_migrate_probe", where + "/__init__.py", submodule_search_locations=[where]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["_migrate_probe"] = module
    spec.loader.exec_module(module)
    module.start(_FOLDER, {classes!r}, {depth!r}, {limit!r})


def _hand_on():
    own = sys.modules.pop("sitecustomize")
    sys.path[:] = [entry for entry in sys.path if entry != _FOLDER]
    try:
        import sitecustomize
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = own


if sys.version_info >= (3, 11):
    _start()
else:
    sys.stderr.write("migrate trace: not traced, needs Python 3.11: " + sys.executable + "\\n")
_hand_on()
'''


@dataclass(frozen=True)
class Run:
    """How the command ended (128 + n for signal n) and what its processes saw."""

    exit_code: int
    seen: Merged


def trace(command: Sequence[str], classes: Sequence[str], depth: int, limit: int) -> Run:
    """Run `command` with this terminal; MG522 when it cannot be started.

    Processes are reached through PYTHONPATH: children of any depth, torchrun's workers among them, unless
    they are started with `-I`, `-E` or `-S` or with a PYTHONPATH of their own. Ctrl-C is the command's to
    handle, a request to terminate is passed on; either way what was seen up to then is returned.
    """
    with tempfile.TemporaryDirectory(prefix="migrate-trace-") as folder:
        text = _START.format(
            folder=folder, probe=str(_PROBE), classes=list(classes), depth=depth, limit=limit
        )
        Path(folder, "sitecustomize.py").write_text(text, encoding="utf-8")
        paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with _signals() as forward:
            try:
                process = subprocess.Popen(_runnable(command), env=environment)
            except OSError as error:
                raise MigrationError("MG522", f"{command[0]}: {error.strerror}") from error
            forward.append(process)
            status = process.wait()
        return Run(128 - status if status < 0 else status, _gathered(Path(folder)))


def _gathered(folder: Path) -> Merged:
    """What all processes saw; those that outlive the command (a resource tracker) get a moment to end."""
    deadline = time.monotonic() + _GRACE_S
    while (seen := merge(folder)).ended_early and time.monotonic() < deadline:
        time.sleep(0.05)
    return seen


def _runnable(command: Sequence[str]) -> list[str]:
    """A script that is not executable is run by this interpreter."""
    script = command[0].endswith(".py") and not os.access(command[0], os.X_OK)
    return [sys.executable, *command] if script else list(command)


@contextmanager
def _signals() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Outlive the command: the terminal sends it Ctrl-C itself, SIGTERM is passed on."""
    started: list[subprocess.Popen[bytes]] = []

    def handle(number: int, frame: Any) -> None:
        if number == signal.SIGTERM:
            for process in started:
                process.send_signal(number)

    # Functions, not SIG_IGN: what is ignored would stay ignored in the command.
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
