"""What a candidate gets in the place of the worker and of the objects that cannot be copied.

A view is an instance of a subclass of the worker's class, so that its methods, properties and `isinstance` work;
its attributes are filled in from the snapshot as they are used, and what is written stays in it. A remote stands
for one live object; whatever is done with it is answered by the world that it belongs to.
"""

from __future__ import annotations

import abc
import typing
from collections.abc import Callable
from typing import Any, Protocol

from shadow.experiment.intercept import SPECIAL
from shadow.experiment.storage import class_dict, mro, on_class

#: Special methods that hand out something which the tape does not hold.
_HANDED_OUT = (
    "__iter__",
    "__next__",
    "__reversed__",
    "__await__",
    "__aiter__",
    "__anext__",
    "__aenter__",
    "__aexit__",
)
_METACLASSES = (type, abc.ABCMeta, type(typing.Protocol))


class Unviewable(Exception):
    """No view can be made of a class without running code of its own."""


class ViewWorld(Protocol):
    """What a view asks of its world."""

    def view_get(self, name: str, plain: Callable[[], Any]) -> Any: ...
    def view_set(self, name: str, plain: Callable[[], None]) -> None: ...
    def view_delete(self, name: str, plain: Callable[[], None]) -> None: ...


class RemoteWorld(Protocol):
    """What a remote asks of its world."""

    def read(self, real: Any, name: str) -> Any: ...
    def write(self, real: Any, name: str, value: Any) -> None: ...
    def call(self, real: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def hand_out(self, real: Any, name: str) -> Any: ...


_views: dict[type, type] = {}
_remotes: dict[type, type] = {}
_WORLD = "_shadow_world_"


def view_of(cls: type, world: ViewWorld | None) -> Any:
    """A view without attributes.

    Raises:
        Unviewable: making a subclass of `cls` would be noticed by it.
    """
    if cls not in _views:
        _views[cls] = _view_class(cls)
    made: Any = object.__new__(_views[cls])
    object.__setattr__(made, _WORLD, world)
    return made


def _view_class(cls: type) -> type:
    if type(cls) not in _METACLASSES:
        raise Unviewable(f"{cls.__qualname__} has the metaclass {type(cls).__name__}")
    for klass in mro(cls):
        if "__init_subclass__" in class_dict(klass) and klass.__module__ not in ("builtins", "typing"):
            raise Unviewable(f"{klass.__qualname__} takes note of its subclasses")
    world_slot: Any = None
    base: Any = cls

    def __getattribute__(self: Any, name: str) -> Any:
        return world_slot(self).view_get(name, lambda: base.__getattribute__(self, name))

    def __setattr__(self: Any, name: str, value: Any) -> None:
        world_slot(self).view_set(name, lambda: base.__setattr__(self, name, value))

    def __delattr__(self: Any, name: str) -> None:
        world_slot(self).view_delete(name, lambda: base.__delattr__(self, name))

    namespace: dict[str, Any] = {
        "__slots__": (_WORLD,),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__getattribute__": __getattribute__,
        "__setattr__": __setattr__,
        "__delattr__": __delattr__,
    }
    if on_class(cls, "__del__") is not None:
        namespace["__del__"] = lambda self: None
    try:
        made = type(cls)(cls.__name__, (cls,), namespace)
        object.__new__(made)
    except TypeError as error:
        raise Unviewable(f"{cls.__qualname__} cannot be subclassed: {error}") from None
    world_slot = class_dict(made)[_WORLD].__get__
    return made


class Remote:
    """The base of all remotes. `real_of` and `world_of` look past its hooks."""

    __slots__ = ("_real_", "_world_")

    def __getattribute__(self, name: str) -> Any:
        return world_of(self).read(real_of(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        world_of(self).write(real_of(self), name, value)

    def __delattr__(self, name: str) -> None:
        world_of(self).hand_out(real_of(self), f"del {name}")

    def __hash__(self) -> int:
        return id(real_of(self))

    def __eq__(self, other: object) -> bool:
        return real_of(self) is (real_of(other) if is_remote(other) else other)

    def __repr__(self) -> str:
        return f"<stand-in for {type(real_of(self)).__name__}>"

    def __reduce_ex__(self, protocol: typing.SupportsIndex) -> Any:
        return world_of(self).hand_out(real_of(self), "__reduce_ex__")


_real_slot: Callable[[Any], Any] = class_dict(Remote)["_real_"].__get__
_world_slot: Callable[[Any], RemoteWorld] = class_dict(Remote)["_world_"].__get__


def real_of(remote: Any) -> Any:
    return _real_slot(remote)


def world_of(remote: Any) -> RemoteWorld:
    return _world_slot(remote)


def is_remote(value: Any) -> bool:
    return issubclass(type(value), Remote)


def remote_for(real: Any, world: RemoteWorld) -> Any:
    """A stand-in with the special methods that the class of `real` has."""
    cls = type(real)
    if cls not in _remotes:
        _remotes[cls] = _remote_class(cls)
    made: Any = object.__new__(_remotes[cls])
    class_dict(Remote)["_real_"].__set__(made, real)
    class_dict(Remote)["_world_"].__set__(made, world)
    return made


def _remote_class(cls: type) -> type:
    def calling(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return world_of(self).call(real_of(self), name, args, kwargs)

        return method

    def handing_out(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return world_of(self).hand_out(real_of(self), name)

        return method

    namespace: dict[str, Any] = {
        "__slots__": (),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
    }
    namespace |= {name: calling(name) for name in SPECIAL if on_class(cls, name) is not None}
    namespace |= {name: handing_out(name) for name in _HANDED_OUT if on_class(cls, name) is not None}
    return type(cls.__name__, (Remote,), namespace)


class RemoteCall:
    """A bound method of a remote."""

    __slots__ = ("__name__", "_name", "_real", "_world")

    def __init__(self, world: RemoteWorld, real: Any, name: str) -> None:
        self._world, self._real, self._name = world, real, name
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._world.call(self._real, self._name, args, kwargs)
