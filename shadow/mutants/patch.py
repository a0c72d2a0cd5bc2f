"""What mutants are made of: methods of live objects, classes and modules, replaced for a while."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shadow.mutants.registry import MutantError, Plant

_ABSENT = object()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` inside, and what it was outside. MutantError where there is no such name."""
    if not hasattr(owner, name):
        raise MutantError(f"{_called(owner)} has no {name} to plant a fault in")
    own = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


@contextmanager
def around(owner: Any, name: str, body: Callable[..., Any]) -> Iterator[None]:
    """Calls of `owner.name(...)` become `body(original, ...)`.

    `owner` is an object, a module, or a class; of a class the first argument of a method is its object.
    """
    original = getattr(owner, name, None)
    if not callable(original):
        raise MutantError(f"{_called(owner)} has no method {name} to plant a fault in")

    def replacement(*args: Any, **kwargs: Any) -> Any:
        return body(original, *args, **kwargs)

    bound = isinstance(owner, type) and isinstance(
        inspect.getattr_static(owner, name), staticmethod | classmethod
    )
    with replaced(owner, name, staticmethod(replacement) if bound else replacement):
        yield


def _called(owner: Any) -> str:
    return str(getattr(owner, "__name__", None) or f"a {type(owner).__name__}")


def module(plant: Plant, name: str) -> Any:
    """A loaded module of batchgen: `module(plant, "kv.gpu")`. MutantError where there is none."""
    found = plant.modules.get(f"batchgen.{name}")
    if found is None:
        raise MutantError(f"this tree has no module batchgen.{name}")
    return found


def sequence(plant: Plant, label: str) -> Any:
    """The sequence of this label (the request's custom_id), None while there is none."""
    batch = getattr(plant.worker, "global_batch", None) or ()
    return next((entry for entry in batch if entry.custom_id == label), None)


def index(plant: Plant, label: str) -> int:
    """Its global index, -1 while there is none: what pools and page tables call it."""
    entry = sequence(plant, label)
    return -1 if entry is None else int(entry.global_idx)


def row(plant: Plant, label: str) -> int | None:
    """Its row in the batch that attention is bound to, None where it has none."""
    wrapper = module(plant, "attention").AttnWrapperBase
    rows = [int(number) for number in wrapper.cur_batch or ()]
    number = index(plant, label)
    return rows.index(number) if number in rows else None
