"""Plain forms of the fields of live objects, made anew only of what is not what it was.

There are a thousand fields at each step. All of them are read; of one that holds the very object that it held before,
and that cannot change in place, the plain form of then is the plain form of now. Tensors, containers and objects are
looked into every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum, auto
from functools import lru_cache
from itertools import compress, count
from operator import attrgetter, is_, is_not
from typing import Any

import numpy as np
import torch
from xxhash import xxh3_64_intdigest

from shadow.observation import Key, Kind, Observed
from shadow.observe.probe import Values, keys
from shadow.plain import Plain, Record, plain

_SHOWN = 16  # numbers of a tensor; of a longer one the last few, and a digest of all
_SETTLED = frozenset((int, bool, str, float, bytes, type(None)))
Reader = Callable[[Any], tuple[Any, ...]]


@lru_cache(maxsize=64)
def reader(names: tuple[str, ...]) -> Reader:
    """Reads all of these attributes at once. AttributeError where one was never set."""
    return attrgetter(*names) if len(names) > 1 else lambda owner: tuple(getattr(owner, n) for n in names)


class _Sort(Enum):
    TENSOR = auto()
    FROZEN = auto()
    OTHER = auto()


@lru_cache(maxsize=64)
def _sort(cls: Any) -> _Sort:
    if issubclass(cls, torch.Tensor):
        return _Sort.TENSOR
    parameters = getattr(cls, "__dataclass_params__", None)
    return _Sort.FROZEN if parameters is not None and parameters.frozen else _Sort.OTHER


@dataclass
class _Looked:
    """One object, which is held: its id is nobody else's. `inner`: the places of what may have changed in place."""

    owner: Any
    label: str
    names: tuple[str, ...]
    places: tuple[Key, ...]
    read: Reader
    held: tuple[Any, ...]
    values: Values
    inner: set[int]


@dataclass(frozen=True)
class _Parameters:
    """A frozen object, held as well. `settled`: nothing in it can change in place."""

    value: Any
    read: Reader
    held: tuple[Any, ...]
    settled: bool
    plain: Plain


@dataclass
class _Numbers:
    """A tensor of integers, held. `digest`: of the numbers that were shown as `plain`, which end before `end`."""

    tensor: torch.Tensor
    about: tuple[int, torch.Size]
    view: np.ndarray
    end: int | None
    digest: int
    plain: Plain


class Fields:
    """Of objects that are looked at again and again; `forget` them when they are done with."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.forget()

    def forget(self) -> None:
        self._looked: dict[int, _Looked] = {}
        self._frozen: dict[int, _Parameters] = {}
        self._tensors: dict[tuple[int, int], _Numbers] = {}

    def of(self, owner: Any, label: str, names: tuple[str, ...], rename: Mapping[str, str]) -> Values:
        """By the key of each name, in order; not to be kept, for it is brought up to date the next time.

        `rename` must be what it was before, but after `forget`.
        """
        last = self._looked.get(id(owner))
        if last is None or last.names != names or last.label != label:
            places = keys(self._kind, (label,), names)
            last = _Looked(owner, label, names, places, reader(names), (), dict.fromkeys(places), set())
            self._looked[id(owner)] = last
        try:
            held = last.read(owner)
        except AttributeError:
            held = tuple(getattr(owner, name, None) for name in names)
        before, last.held = last.held, held
        values, places, inner = last.values, last.places, last.inner
        changed = compress(count(), map(is_not, before, held)) if before else range(len(held))
        for at in changed:
            value = held[at]
            sort = type(value)
            if sort in _SETTLED or isinstance(value, Enum):
                inner.discard(at)
                if sort is str:
                    value = rename.get(value, value)
                values[places[at]] = value if sort in _SETTLED else value.name
            else:
                inner.add(at)
        for at in inner:
            place = places[at]
            values[place] = self._look_into(owner, at, names[at], held[at], rename, values[place])
        return values

    def _look_into(
        self, owner: Any, at: int, name: str, value: Any, rename: Mapping[str, str], before: Observed
    ) -> Observed:
        cls: Any = type(value)
        sort = _sort(cls)
        if sort is _Sort.TENSOR:
            numbers = self._numbers((id(owner), at), value)
            if numbers is not None:
                # what lies behind the tokens decoded so far is uninitialised memory
                return _shown(numbers, owner.decoded_length if name == "decoded_tokens" else None)
        elif sort is _Sort.FROZEN:
            return self._parameters(value, cls, rename)
        now = plain(value, rename)
        return before if now == before and repr(now) == repr(before) else now

    def _parameters(self, value: Any, cls: Any, rename: Mapping[str, str]) -> Plain:
        known = self._frozen.get(id(value))
        if known is not None and known.settled:
            if all(map(is_, known.held, known.read(value))):
                return known.plain
        read = reader(_names_of(cls))
        held = read(value)
        now = plain(value, rename)
        self._frozen[id(value)] = _Parameters(value, read, held, all(map(_settled, held)), now)
        return now

    def _numbers(self, place: tuple[int, int], tensor: torch.Tensor) -> _Numbers | None:
        """None where they are no integers."""
        known, about = self._tensors.get(place), (tensor.data_ptr(), tensor.shape)
        if known is not None and known.tensor is tensor and known.about == about:
            if tensor.device.type != "cpu":
                known.view = tensor.cpu().numpy()
            return known
        if tensor.is_floating_point():
            return None
        known = self._tensors[place] = _Numbers(tensor, about, tensor.cpu().numpy(), None, -1, None)
        return known


def _shown(known: _Numbers, end: int | None) -> Plain:
    numbers = known.view[..., :end]
    digest = xxh3_64_intdigest(numbers.data if numbers.flags.c_contiguous else numbers.tobytes())
    if digest != known.digest or end != known.end:
        known.end, known.digest, known.plain = end, digest, _tensor(numbers, digest)
    return known.plain


def _settled(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_settled, value))
    return type(value) in _SETTLED or isinstance(value, Enum)


@lru_cache(maxsize=64)
def _names_of(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


@lru_cache(maxsize=64)
def _name(dtype: np.dtype[Any]) -> str:
    return str(dtype)


def _tensor(numbers: np.ndarray, digest: int) -> Plain:
    if numbers.size > _SHOWN:
        shown: Plain = f"… {numbers.reshape(-1)[-8:].tolist()} (#{digest:016x})"
    else:
        shown = tuple(numbers.reshape(-1).tolist())
    return Record("Tensor", (("dtype", _name(numbers.dtype)), ("shape", numbers.shape), ("content", shown)))
