"""Replaced functions of the code under observation, which can be put back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from shadow.experiment import watching


def tree_module(name: str) -> Any | None:
    """The loaded module `batchgen.<name>` of this process's tree; None where the tree has none."""
    return sys.modules.get(f"batchgen.{name}")


def tree_class(module: str, name: str) -> Any | None:
    """A class that `batchgen.<module>` has under that name."""
    return getattr(tree_module(module), name, None)


class Hooks:
    """Wrappers around functions of classes, modules and instances; `undo` puts everything back.

    They only watch: a gate that compares meanwhile looks past them.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def wrap(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """`owner.name` becomes `make(original)`. A class method's wrapper is called without the class."""
        raw = vars(owner).get(name)
        made: Any = watching(owner, name, make)
        if isinstance(raw, classmethod | staticmethod):
            made = staticmethod(made)
        setattr(owner, name, made)

        def undo() -> None:
            if raw is None:
                delattr(owner, name)
            else:
                setattr(owner, name, raw)

        self._undo.append(undo)

    def later(self, undo: Callable[[], None]) -> None:
        """Has `undo` called when everything is put back."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Last first. Idempotent."""
        while self._undo:
            self._undo.pop()()
