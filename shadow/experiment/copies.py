"""Copies of object graphs that run no code of the objects' classes: no `__deepcopy__`, no `__init__`, no hooks.

Two steps. `snapshot.Snapshot` copies live state: data is copied, and a `Ref` stands where something is that
cannot be copied, or may not be used twice (a pool, a socket, a model). `Thaw` makes any number of candidates'
worlds from one snapshot, with stand-ins in the place of the `Ref`s.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from enum import Enum
from types import FunctionType, MappingProxyType, SimpleNamespace
from typing import Any

from shadow.experiment import arrays
from shadow.experiment.randomness import forked_generator
from shadow.experiment.storage import items_of, on_class, store, stored

LOCKS = (type(threading.Lock()), type(threading.RLock()))
_SHARED = frozenset(
    (bool, int, float, complex, str, bytes, type(None), range, type(...), type(NotImplemented))
)
_SHARED_NAMES = """
builtins.slice datetime.date datetime.datetime datetime.time datetime.timedelta datetime.timezone decimal.Decimal
fractions.Fraction logging.Logger logging.RootLogger pathlib.PosixPath pathlib.PurePosixPath
pathlib._local.PosixPath re.Pattern torch.device torch.dtype torch.layout torch.Size uuid.UUID
"""
_SHARED_BY_NAME = frozenset(_SHARED_NAMES.split())
_CONTAINER_BASES = (dict, list, set, frozenset, tuple, deque)
_kinds: dict[type, str] = {}
_LIBRARIES = frozenset(
    ("torch", "numpy", "threading", "asyncio", "concurrent", "multiprocessing", "queue", "io")
)


class TooLarge(Exception):
    """There is more to copy than a comparison is worth."""


class Ref:
    """Stands in a snapshot for a live object that was not copied."""

    __slots__ = ("real",)

    def __init__(self, real: Any) -> None:
        self.real = real

    def __hash__(self) -> int:
        return id(self.real)

    def __eq__(self, other: object) -> bool:
        return type(other) is Ref and other.real is self.real


class Bound:
    """Stands in a snapshot for a bound method: its name, and the copy of its object."""

    __slots__ = ("name", "owner")

    def __init__(self, name: str, owner: Any) -> None:
        self.name, self.owner = name, owner


class Copier:
    """Copies containers and objects, each once: what was shared is shared between the copies."""

    def __init__(self, *, objects: int = 200_000, megabytes: float = 64.0) -> None:
        self._memo: dict[int, tuple[Any, Any]] = {}
        self._objects, self._bytes = objects, int(megabytes * 2**20)
        self._depth = 0

    def copy(self, value: Any) -> Any:
        """The copy of `value`; the same one each time.

        Raises:
            TooLarge: too many objects, too many bytes of tensors, or nested too deeply.
        """
        kind = type(value)
        if kind in _SHARED:
            return value
        found = self._memo.get(id(value))
        if found is not None:
            return found[1]
        self._objects -= 1
        self._depth += 1
        try:
            if self._objects < 0:
                raise TooLarge("more objects than are worth copying")
            if self._depth > 120:
                raise TooLarge("nested too deeply")
            made = self._made(value, kind)
        finally:
            self._depth -= 1
        return self._remember(value, made)

    def copy_of(self, value: Any) -> Any:
        """The copy that was made of `value`; `value` itself when none was."""
        found = self._memo.get(id(value))
        return value if found is None else found[1]

    def pairs(self) -> list[tuple[Any, Any]]:
        """(original, copy) of everything copied so far."""
        return list(self._memo.values())

    def knows(self, value: Any) -> bool:
        return type(value) in _SHARED or id(value) in self._memo

    def _remember(self, value: Any, made: Any) -> Any:
        self._memo[id(value)] = (value, made)
        return made

    def _made(self, value: Any, kind: type) -> Any:
        if kind in (list, tuple, set, frozenset) and _SHARED.issuperset(map(type, value)):
            self._objects -= len(value) // 100
            return value if kind in (tuple, frozenset) else value.copy()
        if kind is list:
            made: Any = self._remember(value, [])
            made.extend(map(self.copy, value))
        elif kind in (dict, OrderedDict, Counter):
            made = self._remember(value, kind())
            self._fill_dict(made, value)
        elif kind is set:
            made = self._remember(value, set())
            made.update(map(self.copy, value))
        elif kind in (tuple, frozenset):
            items = [self.copy(item) for item in value]
            same = kind is tuple and all(a is b for a, b in zip(items, value, strict=True))
            made = value if same else kind(items)
        elif kind is deque:
            made = self._remember(value, deque(maxlen=value.maxlen))
            made.extend(map(self.copy, value))
        elif kind is defaultdict:
            made = self._remember(value, defaultdict(self.copy(value.default_factory)))
            self._fill_dict(made, value)
        elif kind is bytearray:
            made = bytearray(value)
        elif kind is MappingProxyType:
            made = MappingProxyType({self.copy(k): self.copy(v) for k, v in value.items()})
        else:
            made = self._other(value, kind)
        return made

    def _fill_dict(self, made: Any, value: Any) -> None:
        if _SHARED.issuperset(map(type, dict.values(value))) and _SHARED.issuperset(
            map(type, dict.keys(value))
        ):
            self._objects -= dict.__len__(value) // 100
            dict.update(made, value)
            return
        for key, item in dict.items(value):
            dict.__setitem__(made, self.copy(key), self.copy(item))

    def _other(self, value: Any, kind: type) -> Any:
        raise NotImplementedError

    def _array(self, value: Any) -> Any:
        self._bytes -= arrays.size_in_bytes(value)
        if self._bytes < 0:
            raise TooLarge("tensors of more bytes than are worth copying")
        return arrays.cloned(value)

    def _object(self, value: Any, kind: type) -> Any:
        """A copy of an instance of a Python class, attribute by attribute, with its items if it is a container."""
        made: Any
        base: Any = next((base for base in _CONTAINER_BASES if issubclass(kind, base)), None)
        if base in (tuple, frozenset):
            made = base.__new__(kind, [self.copy(item) for item in items_of(value)])
        else:
            blank: Any = SimpleNamespace if kind is SimpleNamespace else base or object
            made = self._remember(value, blank.__new__(kind))
            if base is dict:
                self._fill_dict(made, value)
            elif base is not None:
                for item in items_of(value):
                    (base.add if base is set else base.append)(made, self.copy(item))
        frozen = _is_frozen(kind)
        for name, item in stored(value).items():
            copied = self.copy(item)
            frozen = frozen and copied is item
            store(made, name, copied)
        return value if frozen else made  # nothing in a frozen one of unchanging things can change


class Thaw(Copier):
    """Makes a world of its own from a snapshot. `stand_in` makes what a `Ref` or a `Bound` becomes."""

    def __init__(self, stand_in: Callable[[Any], Any], bound: Callable[[Any, str], Any]) -> None:
        super().__init__(objects=10**9, megabytes=10**6)
        self._stand_in, self._bound = stand_in, bound
        self._own: set[int] = set()

    def is_own(self, value: Any) -> bool:
        """Whether it was made here, as the copy of something."""
        return id(value) in self._own

    def _remember(self, value: Any, made: Any) -> Any:
        self._own.add(id(made))
        return super()._remember(value, made)

    def _other(self, value: Any, kind: type) -> Any:
        if kind is Ref:
            return self._stand_in(value.real)
        if kind is Bound:
            return self._bound(self.copy(value.owner), value.name)
        if arrays.is_tensor(value) or arrays.is_ndarray(value):
            return self._array(value)
        if kind in LOCKS:
            return fresh_lock(kind)
        if (generator := forked_generator(value)) is not None:
            return generator
        shared = issubclass(kind, type) or kind is FunctionType or kind_of(kind) in ("shared", "collaborator")
        return value if shared else self._object(value, kind)


def kind_of(kind: type) -> str:
    """ "shared" (never changes), "record", "object" (copied whole or not at all) or "collaborator"."""
    if kind not in _kinds:
        _kinds[kind] = _looked_at(kind)
    return _kinds[kind]


def _looked_at(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"
    if issubclass(kind, Enum | BaseException) or name in _SHARED_BY_NAME:
        return "shared"
    if kind is SimpleNamespace:
        return "record"
    if kind.__module__.partition(".")[0] in _LIBRARIES or on_class(kind, "__del__") is not None:
        return "collaborator"
    if not _is_python_class(kind):
        return "collaborator"
    is_record = on_class(kind, "__dataclass_fields__") or issubclass(kind, _CONTAINER_BASES)
    return "record" if is_record or kind.__dictoffset__ == 0 else "object"


def _is_python_class(kind: type) -> bool:
    """Made by a class statement, over nothing but such classes and at most one plain container."""
    base = next((base for base in _CONTAINER_BASES if issubclass(kind, base)), object)
    try:
        base.__new__(kind)
    except TypeError:
        return False  # the layout is that of some C class
    return kind not in (base, object)


def _is_frozen(kind: type) -> bool:
    declared = on_class(kind, "__dataclass_params__")
    return declared is not None and bool(declared[1].frozen) and not issubclass(kind, _CONTAINER_BASES)


def fresh_lock(kind: type) -> Any:
    """A lock of the same kind that nobody holds: a copy is used by one thread only."""
    return threading.Lock() if kind is LOCKS[0] else threading.RLock()
