"""The side of `migrate trace` that lives in the traced processes: standard library only, relative imports.

It is loaded by path under a name of its own, so that neither migrate nor its requirements have to be
installed for the traced interpreter, and a project that has a package called `migration` keeps it.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .hook import watch
from .monitoring import Monitoring
from .recorder import Recorder
from .wrapping import Wrapping

if TYPE_CHECKING:
    from .subjects import Subject

__all__ = ["start"]


def start(folder: str, classes: Sequence[str], depth: int, limit: int) -> None:
    """Trace `classes` (`pkg.module:Class`) in this process; what is seen goes to a file in `folder`.

    `depth` is how deep the elements of containers are looked at, `limit` the calls of one method
    after which it is left alone (0: never).
    """
    recorder = Recorder(folder, depth, limit)
    backend = Monitoring.claim(recorder) or Wrapping(recorder)
    recorder.note("process", f"{backend.name} {sys.version_info[0]}.{sys.version_info[1]}")

    def found(subject: Subject) -> None:
        recorder.note("class", subject.path)
        try:
            backend.follow(subject)
        except Exception as error:  # the import that we are part of must not fail for us
            recorder.note("problem", f"{subject.path} cannot be followed: {type(error).__name__}: {error}")

    watch(classes, found, recorder)
    atexit.register(recorder.close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=recorder.forked)
