"""Hooks that only watch what they are put around: gates look past them, candidates do not meet them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from shadow.experiment.intercept import ACTIVE, Watcher
from shadow.experiment.storage import MISSING, WATCHES, instance_dict, is_a, on_class

_seen_by: ContextVar[Watcher | None] = ContextVar("shadow_seen_by", default=None)


def watching(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[..., Any]:
    """A hook to be bound to `owner.name` (of an instance, a class or a module) by the caller.

    While a gate compares, it sees what is hooked as if no hook were there: the call that the hook hands on is
    recorded, nothing of what the hook does itself is, and a candidate's calls pass it by.

    Args:
        make: gets a callable that hands a call on, and returns the hook. The hook hands each call on once, with the
            arguments that it got, gives the answer that it was handed, and leaves the worker as it is.
    """
    before = _before(owner, name)
    original = getattr(owner, name)
    if before is MISSING and not is_a(owner, type) and on_class(type(owner), name) is not None:
        original = functools.wraps(original)(functools.partial(_by_class, owner, name))

    @functools.wraps(original)
    def hand_on(*args: Any, **kwargs: Any) -> Any:
        token = ACTIVE.set(_seen_by.get())
        try:
            return original(*args, **kwargs)
        finally:
            ACTIVE.reset(token)

    made = make(hand_on)

    @functools.wraps(original)
    def hook(*args: Any, **kwargs: Any) -> Any:
        active = ACTIVE.get()
        if active is not None and active.answers:
            return original(*args, **kwargs)
        seen_by, token = _seen_by.set(active), ACTIVE.set(None)
        try:
            return made(*args, **kwargs)
        finally:
            ACTIVE.reset(token)
            _seen_by.reset(seen_by)

    vars(hook)[WATCHES] = before
    return hook


def _before(owner: Any, name: str) -> Any:
    """The raw attribute that a hook takes the place of; MISSING where an instance has it from its class."""
    if is_a(owner, type):
        found = on_class(owner, name)
        return MISSING if found is None else found[1]
    return (instance_dict(owner) or {}).get(name, MISSING)


def _by_class(owner: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """A call of what the class has by now: it may have been wrapped since the hook was put there."""
    found = on_class(type(owner), name)
    assert found is not None
    return found[1].__get__(owner, type(owner))(*args, **kwargs)
