"""What a rank tells of itself: each collective before it joins it, and where it stands when it is asked by a signal."""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from shadow.messages import Joining
from shadow.ranks.place import Place

ASK = signal.SIGUSR1
"""A rank that gets it writes its stack to its standard error, wherever it waits, even within a collective."""

_MORE = (
    *("all_gather_into_tensor", "all_to_all", "all_to_all_single", "gather", "gather_object", "scatter"),
    *("scatter_object_list", "reduce", "reduce_scatter", "reduce_scatter_tensor", "monitored_barrier"),
    *("isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"),
)
_OWN = Path(__file__).resolve().parent.parent


def show_stacks() -> None:
    """From now on this process answers `ASK`."""
    faulthandler.register(ASK, file=sys.stderr, all_threads=False)


@contextmanager
def announcing(
    place: Place | None, tree: Path, send: Callable[[Joining], None], step: Callable[[], int]
) -> Iterator[None]:
    """Inside, every collective is told of before it is joined; of one rank alone nothing is.

    `tree`: what lines are given relative to. `step`: decode steps begun so far.
    """
    if place is None:
        yield
        return
    import torch.distributed as dist

    from shadow.observe.effects import COLLECTIVES, arguments
    from shadow.observe.hooks import Hooks

    def telling(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def hook(*args: Any, **kwargs: Any) -> Any:
                detail = arguments((*args, *kwargs.values()))
                send(Joining(f"dist.{name}", detail, called_at(tree), step()))
                return original(*args, **kwargs)

            return hook

        return make

    hooks = Hooks()
    for name in (*COLLECTIVES, *_MORE):
        if callable(getattr(dist, name, None)):
            hooks.wrap(dist, name, telling(name))
    try:
        yield
    finally:
        hooks.undo()


def called_at(tree: Path) -> str:
    """file:line of the innermost call that is neither the harness's nor torch's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and foreign(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{shown(frame.f_code.co_filename, tree)}:{frame.f_lineno}"


@lru_cache(maxsize=1 << 10)
def foreign(file: str) -> bool:
    """Whether a file is the harness's own (mutants are not), or torch's."""
    path = Path(file)
    if path.is_relative_to(_OWN):
        return "catalogue" not in path.parts
    return "torch" in path.parts and "site-packages" in path.parts


def shown(file: str, tree: Path) -> str:
    path = Path(file)
    return str(path.relative_to(tree)) if path.is_relative_to(tree) else file
