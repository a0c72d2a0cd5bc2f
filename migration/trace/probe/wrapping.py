"""Entries and exits by wrapping the methods of the class, for interpreters without `sys.monitoring`.

Cheaper than `sys.setprofile`, which makes every call of the whole program slower. Each call of a traced
method gets one frame more, `inspect.signature` and the `iscoroutinefunction` family still see the original.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from .recorder import NOTHING, Recorder
from .subjects import Method, Subject, methods


class Wrapping:
    """Replaces what the class binds; decorated methods are wrapped outside of their decorators."""

    name = "wrapping"

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def follow(self, subject: Subject) -> None:
        found = {method.name: method for method in methods(subject.kind)}
        for name, value in tuple(vars(subject.kind).items()):
            new: Any = None
            if type(value) is property:
                parts = [value.fget, value.fset, value.fdel]
                names = [f"{name}.{kind}" for kind in ("getter", "setter", "deleter")]
                if found.keys() & set(names):
                    part = functools.partial(self._part, subject, found)
                    getter, setter, deleter = map(part, names, parts)
                    new = property(getter, setter, deleter, value.__doc__)
            elif name not in found:
                continue
            elif type(value) in (staticmethod, classmethod):
                if isinstance(value.__func__, FunctionType):
                    new = type(value)(self._wrapped(subject, found[name], value.__func__))
            elif isinstance(value, FunctionType):
                new = self._wrapped(subject, found[name], value)
            if new is not None:
                type.__setattr__(subject.kind, name, new)  # a metaclass may have a __setattr__ of its own

    def _part(self, subject: Subject, found: dict[str, Method], name: str, function: Any) -> Any:
        known = name in found and isinstance(function, FunctionType)
        return self._wrapped(subject, found[name], function) if known else function

    def _wrapped(self, subject: Subject, method: Method, function: FunctionType) -> Callable[..., Any]:
        recorder = self._recorder

        def enter(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            instance = args[0] if method.has_self and args else NOTHING
            recorder.entered(subject, method, instance, _arguments(method, args, kwargs))
            return instance

        wrapper: Callable[..., Any]
        if inspect.isasyncgenfunction(function):
            return function  # a wrapper could not forward asend and athrow
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def asynchronous(*args: Any, **kwargs: Any) -> Any:
                instance = enter(args, kwargs)
                result = await function(*args, **kwargs)
                recorder.returned(subject, method, instance, result)
                return result

            wrapper = asynchronous
        elif inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args: Any, **kwargs: Any) -> Any:
                instance = enter(args, kwargs)
                result = yield from function(*args, **kwargs)
                recorder.returned(subject, method, instance, NOTHING)
                return result

            wrapper = generator
        else:

            @functools.wraps(function)
            def plain(*args: Any, **kwargs: Any) -> Any:
                instance = enter(args, kwargs)
                result = function(*args, **kwargs)
                recorder.returned(subject, method, instance, result)
                return result

            wrapper = plain
        return wrapper


def _arguments(method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(parameter, value) of a call, defaults included; what does not fit is left to the call itself."""
    code, function = method.code, method.function
    star, double = method.gathered
    positional = method.named[: code.co_argcount]
    given = dict(zip(positional, args, strict=False))
    for name, value in kwargs.items():
        if name in method.named:
            given.setdefault(name, value)
        elif double is not None:
            yield f"**{double}", value
    defaults = function.__defaults__ or ()
    given = {**dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True)), **given}
    given = {**(function.__kwdefaults__ or {}), **given}
    for name in method.named[1:] if method.has_self else method.named:
        if name in given:
            yield name, given[name]
    if star is not None:
        for value in args[code.co_argcount :]:
            yield f"*{star}", value
