"""Wrappers on classes and modules that make calls visible while a comparison is being made.

Wrapped are the methods of collaborators (objects that cannot be copied), methods of data classes that must not
run twice, functions of modules that a gate names, and the hand-over of log records. Objects keep their identity
and class. A wrapper asks one context variable: empty, it calls the original; otherwise it lets the control's
recorder see the call, or answers the candidate from what was recorded. Nothing is wrapped unless a gate compares.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import FunctionType
from typing import Any, Protocol

from shadow.experiment.audit import INTERCEPTED
from shadow.experiment.storage import class_dict, mro, on_class

#: Special methods that are calls like any other.
SPECIAL = (
    "__call__", "__len__", "__contains__", "__getitem__", "__setitem__", "__delitem__", "__enter__", "__exit__",
    "__bool__",
)  # fmt: skip


class Watcher(Protocol):
    """Who is told of intercepted calls: the control's recorders, or a candidate's world."""

    #: It answers in the place of what is called: a candidate is running.
    answers: bool

    def through(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    async def through_async(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


class Call:
    """What is called. `receives`: its first argument is the object that it belongs to."""

    __slots__ = ("fenced", "is_property", "label", "original", "receives")

    def __init__(
        self,
        label: str,
        original: Callable[..., Any],
        *,
        receives: bool,
        fenced: str | None,
        is_property: bool = False,
    ) -> None:
        self.label, self.original, self.receives = label, original, receives
        self.is_property = is_property
        #: Why it must not run twice, where it belongs to objects that are copied.
        self.fenced = fenced


ACTIVE: ContextVar[Watcher | None] = ContextVar("shadow_active", default=None)

_lock = threading.RLock()
_undo: list[Callable[[], None]] = []
_calls: dict[tuple[type, str], Call] = {}
_taped: dict[tuple[type, str], bool] = {}
_functions: set[str] = set()


def wrapper_of(call: Call) -> Callable[..., Any]:
    """Calls the original, or lets whoever is active see or answer the call."""
    original = call.original
    wrapped: Callable[..., Any]
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def wrapped_async(*args: Any, **kwargs: Any) -> Any:
            active = ACTIVE.get()
            if active is None:
                return await original(*args, **kwargs)
            return await active.through_async(call, args, kwargs)

        wrapped = wrapped_async
    else:

        @functools.wraps(original)
        def wrapped_plain(*args: Any, **kwargs: Any) -> Any:
            active = ACTIVE.get()
            if active is None:
                return original(*args, **kwargs)
            return active.through(call, args, kwargs)

        wrapped = wrapped_plain
    vars(wrapped)[INTERCEPTED] = original
    return wrapped


def label_of(owner: type, name: str) -> str:
    return f"{owner.__qualname__}.{name}"


def tape(cls: type, name: str, fenced: str | None = None) -> bool:
    """Wraps one method, property, static or class method where it is defined; False when that is not possible."""
    found = on_class(cls, name)
    if found is None:
        return False
    owner, value = found
    with _lock:
        known = _calls.get((owner, name))
        if known is not None:
            known.fenced = known.fenced or fenced
            return True
        if (owner, name) not in _taped:
            _taped[owner, name] = _install(owner, name, value, fenced)
        return _taped[owner, name]


def is_taped(cls: type, name: str) -> bool:
    found = on_class(cls, name)
    return found is not None and (found[0], name) in _calls


def _install(owner: type, name: str, value: Any, fenced: str | None) -> bool:
    label = label_of(owner, name)
    made: Any
    if isinstance(value, property):
        if value.fget is None:
            return False
        call = Call(label, value.fget, receives=True, fenced=fenced, is_property=True)
        made = property(wrapper_of(call), value.fset, value.fdel, value.__doc__)
    elif isinstance(value, staticmethod):
        call = Call(label, value.__func__, receives=False, fenced=fenced)
        made = staticmethod(wrapper_of(call))
    elif isinstance(value, FunctionType) or (callable(value) and not isinstance(value, type | classmethod)):
        call = Call(label, value, receives=True, fenced=fenced)
        made = wrapper_of(call)
    else:
        return False
    try:
        setattr(owner, name, made)
    except (TypeError, AttributeError):
        return False  # the class cannot be changed
    _calls[owner, name] = call
    _undo.append(functools.partial(_restore, owner, name, value, made))
    return True


def _restore(owner: Any, name: str, value: Any, made: Any) -> None:
    namespace = class_dict(owner) if isinstance(owner, type) else vars(owner)
    if namespace.get(name) is made:  # somebody else's later patch stays
        setattr(owner, name, value)


def tape_class(cls: type) -> None:
    """Wraps everything callable that the class, and its bases outside libraries, define."""
    for klass in mro(cls):
        if klass.__module__.partition(".")[0] in sys.stdlib_module_names | {"torch", "numpy"}:
            continue
        for name, value in list(class_dict(klass).items()):
            special = name.startswith("__") and name.endswith("__")
            if isinstance(value, FunctionType | property | staticmethod) and (not special or name in SPECIAL):
                tape(klass, name)


def tape_function(path: str) -> bool:
    """Wraps a function of a module, such as "torch.distributed.barrier"; False when there is none to wrap."""
    module_name, _, name = path.rpartition(".")
    module = sys.modules.get(module_name)
    value = vars(module).get(name) if module is not None else None
    with _lock:
        if path in _functions:
            return True
        if module is None or not callable(value) or isinstance(value, type):
            return False
        made = wrapper_of(Call(path, value, receives=False, fenced=None))
        setattr(module, name, made)
        _functions.add(path)
        _undo.append(functools.partial(_restore, module, name, value, made))
        return True


def watch_logging() -> None:
    """Log records of the control are recorded; those of a candidate go nowhere."""
    with _lock:
        original = logging.Logger.handle
        if INTERCEPTED in vars(original):
            return

        @functools.wraps(original)
        def handle(self: logging.Logger, record: logging.LogRecord) -> None:
            active = ACTIVE.get()
            if active is None:
                original(self, record)
                return
            emit = Call("log", lambda *_: original(self, record), receives=False, fenced=None)
            active.through(emit, (record.name, record.levelname, record.msg, record.args), {})

        vars(handle)[INTERCEPTED] = original
        setattr(logging.Logger, "handle", handle)  # noqa: B010
        _undo.append(functools.partial(_restore, logging.Logger, "handle", original, handle))


class Stop(BaseException):
    """Ends a candidate that asked for something the tape does not hold. Not an Exception: few handlers catch it."""


def watch_unraisable() -> None:
    """What a stopped candidate's generators say while they are taken apart is nobody's business."""
    with _lock:
        original = sys.unraisablehook
        if INTERCEPTED in getattr(original, "__dict__", {}):
            return

        def hook(unraisable: Any) -> None:
            if unraisable.exc_type is not Stop:
                original(unraisable)

        vars(hook)[INTERCEPTED] = original
        sys.unraisablehook = hook
        _undo.append(functools.partial(_restore, sys, "unraisablehook", original, hook))


def remove_all() -> None:
    """Takes every wrapper off again."""
    with _lock:
        while _undo:
            with contextlib.suppress(TypeError, AttributeError):
                _undo.pop()()
        _calls.clear()
        _taped.clear()
        _functions.clear()
