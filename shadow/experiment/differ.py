"""Where two values part: a walk over both at once that runs no code of their classes.

Plain values are compared bit by bit (NaN equals itself, 0.0 and -0.0 differ, 1, 1.0 and True differ), tensors
likewise. What a port may change without changing the meaning is equal: list and tuple, set and frozenset, an
enum and its value, a dataclass and a mapping with the same names, a scalar of numpy or torch and the number.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Callable, Set
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType
from typing import Any

from shadow.experiment import arrays
from shadow.experiment.brief import brief
from shadow.experiment.randomness import generator_state
from shadow.experiment.storage import MISSING, held, items_of, on_class, stored

_PLAIN = (bool, int, float, complex, str, bytes, bytearray, range, slice, type(None))
_EXACT = frozenset((bool, int, str, bytes, type(None)))  # equal and of one type: the same
_SEQUENCES = (list, tuple, deque)
_SETS = (set, frozenset)
_MAPPINGS = (dict, MappingProxyType)
_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType)
_DEEPEST = 100


class Nature(StrEnum):
    VALUE = "value"
    TYPE = "type"
    ORDER = "order"  # the same items in another order
    SHAPE = "shape"  # dtype, shape or device of a tensor
    MISSING = "missing"  # only the control has it
    EXTRA = "extra"  # only the candidate has it


@dataclass(frozen=True)
class Difference:
    path: str
    nature: Nature
    control: str
    candidate: str


class Differ:
    """Collects the differences of any number of pairs.

    Args:
        real: maps stand-ins to what they stand for; two stand-ins of one object are equal.
        limit: pairs looked at in all; `cut` says that there were more.
    """

    def __init__(self, real: Callable[[Any], Any] = lambda value: value, limit: int = 200_000) -> None:
        self.differences: list[Difference] = []
        #: Leaf values that both sides had.
        self.compared = 0
        #: Places of which only the type could be seen.
        self.opaque: set[str] = set()
        self.cut = False
        self._real = real
        self._left = limit
        self._seen: set[tuple[int, int]] = set()
        self._floats = True
        self._apart: Set[int] = frozenset()

    def compare(
        self, control: Any, candidate: Any, path: str, *, floats: bool = True, apart: Set[int] = frozenset()
    ) -> bool:
        """Compares one pair; True when nothing differs in it.

        Args:
            floats: floating-point tensors too.
            apart: identities of the control's tensors that are left out.
        """
        before = len(self.differences)
        self._floats, self._apart = floats, apart
        self._walk(control, candidate, path, 0)
        return len(self.differences) == before

    def taken(self) -> list[Difference]:
        """The differences since the last time."""
        taken, self.differences = self.differences, []
        return taken

    def _differ(self, path: str, nature: Nature, control: Any, candidate: Any) -> None:
        self.compared += 1
        self._note(path, nature, control, candidate)

    def _note(self, path: str, nature: Nature, control: Any, candidate: Any) -> None:
        self.differences.append(Difference(path, nature, brief(control), brief(candidate)))

    def _walk(self, control: Any, candidate: Any, path: str, depth: int) -> None:
        kind = type(control)
        if kind in _EXACT and kind is type(candidate) and control == candidate:
            self.compared += 1
            return
        control, candidate = self._real(control), self._real(candidate)
        if control is candidate:
            self.compared += 1
            return
        if self._left <= 0 or depth > _DEEPEST:
            self.cut = True
            return
        self._left -= 1
        ours, theirs = _number(control), _number(candidate)
        if control is MISSING or candidate is MISSING:
            self._differ(path, Nature.EXTRA if control is MISSING else Nature.MISSING, control, candidate)
        elif _base(ours) or _base(theirs):
            self.compared += 1
            if _base(ours) is not _base(theirs):
                self._note(path, Nature.TYPE, control, candidate)
            elif _bits(ours) != _bits(theirs):
                self._note(path, Nature.VALUE, control, candidate)
        else:
            pair = (id(control), id(candidate))
            if pair not in self._seen:
                self._seen.add(pair)
                self._compound(control, candidate, path, depth + 1)

    def _compound(self, control: Any, candidate: Any, path: str, depth: int) -> None:
        ours, theirs = type(control), type(candidate)
        if arrays.is_tensor(control) or arrays.is_ndarray(control):
            self._arrays(control, candidate, path)
        elif issubclass(ours, _SEQUENCES) and issubclass(theirs, _SEQUENCES):
            self._sequences(list(items_of(control)), list(items_of(candidate)), path, depth)
        elif issubclass(ours, _SETS) and issubclass(theirs, _SETS):
            self._sets(control, candidate, path)
        elif ours is theirs and _declared(ours):
            self._named(stored(control), stored(candidate), path, depth, attributes=True)
        elif (left := _fields(control)) is not None and (right := _fields(candidate)) is not None:
            self._named(left, right, path, depth, ordered=ours is theirs is dict)
            if _declared(ours) and _declared(theirs) and ours.__name__ != theirs.__name__:
                self._differ(path, Nature.TYPE, control, candidate)
        elif issubclass(ours, _FUNCTIONS) and issubclass(theirs, _FUNCTIONS):
            self.opaque.add(path)
            if control.__name__ != candidate.__name__:
                self._differ(path, Nature.VALUE, control.__name__, candidate.__name__)
        elif (state := generator_state(control)) is not None and ours is theirs:
            self._walk(state, generator_state(candidate), f"{path} (state)", depth)
        elif ours is not theirs or issubclass(ours, type):
            self._differ(path, Nature.TYPE, control, candidate)
        elif issubclass(ours, BaseException):
            self._walk(control.args, candidate.args, f"{path}.args", depth)
        else:
            left, right = stored(control), stored(candidate)
            if not left and not right:
                self.opaque.add(path)
            self._named(left, right, path, depth, attributes=True)

    def _arrays(self, control: Any, candidate: Any, path: str) -> None:
        if not (arrays.is_tensor(candidate) or arrays.is_ndarray(candidate)):
            self._differ(path, Nature.TYPE, control, candidate)
        elif (ours := arrays.header(control)) != (theirs := arrays.header(candidate)):
            self.compared += 1
            self.differences.append(Difference(path, Nature.SHAPE, ours, theirs))
        elif id(control) in self._apart or (not self._floats and arrays.is_floating(control)):
            self.opaque.add(path)
        elif (index := arrays.first_unequal(control, candidate)) is None:
            self.compared += 1
        else:
            where = f"{path}[{', '.join(map(str, index))}]" if index else path
            ours, theirs = (control[index], candidate[index]) if index else (control, candidate)
            self._differ(where, Nature.VALUE, _item(ours), _item(theirs))

    def _sequences(self, control: list[Any], candidate: list[Any], path: str, depth: int) -> None:
        if _all_same(control, candidate):
            self.compared += max(len(control), 1)
            return
        if len(control) == len(candidate) and _reordered(control, candidate):
            first = next(i for i, (a, b) in enumerate(zip(control, candidate, strict=True)) if a != b)
            self._differ(f"{path}[{first}]", Nature.ORDER, control, candidate)
            return
        for index in range(max(len(control), len(candidate))):
            ours = control[index] if index < len(control) else MISSING
            theirs = candidate[index] if index < len(candidate) else MISSING
            self._walk(ours, theirs, f"{path}[{index}]", depth)

    def _sets(self, control: Any, candidate: Any, path: str) -> None:
        self.compared += 1
        ours = {self._key(item): item for item in items_of(control)}
        theirs = {self._key(item): item for item in items_of(candidate)}
        for key in ours.keys() - theirs.keys():
            self._differ(f"{path}{{{brief(ours[key], 40)}}}", Nature.MISSING, ours[key], MISSING)
        for key in theirs.keys() - ours.keys():
            self._differ(f"{path}{{{brief(theirs[key], 40)}}}", Nature.EXTRA, MISSING, theirs[key])

    def _named(
        self,
        control: dict[Any, Any],
        candidate: dict[Any, Any],
        path: str,
        depth: int,
        *,
        ordered: bool = False,
        attributes: bool = False,
    ) -> None:
        if _all_same(list(control), list(candidate)) and _all_same(
            list(control.values()), list(candidate.values())
        ):
            self.compared += max(len(control), 1)
            return
        ours = {self._key(key): key for key in control}
        theirs = {self._key(key): key for key in candidate}
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            name = ours.get(key, theirs.get(key))
            where = f"{path}.{name}" if attributes else f"{path}[{brief(name, 60)}]"
            left = control[ours[key]] if key in ours else MISSING
            right = candidate[theirs[key]] if key in theirs else MISSING
            self._walk(left, right, where, depth)
        if ordered and list(ours) != list(theirs) and ours.keys() == theirs.keys():
            self._differ(f"{path}.keys()", Nature.ORDER, list(ours.values()), list(theirs.values()))

    def _key(self, value: Any) -> Any:
        if type(value) in _EXACT:
            return value
        real = self._real(value)
        return _number(real) if _base(_number(real)) else real


def _number(value: Any) -> Any:
    """An enum's value and a scalar array's number; anything else as it is."""
    if issubclass(type(value), Enum):
        return value._value_
    return _item(value) if arrays.is_scalar(value) else value


def _item(value: Any) -> Any:
    return value.item() if arrays.is_scalar(value) else value


def _base(value: Any) -> type | None:
    """Which plain type a value belongs to."""
    kind = type(value)
    if kind in _PLAIN:
        return kind
    return next((base for base in _PLAIN if issubclass(kind, base)), None)


def _bits(value: Any) -> Any:
    """What two values of one plain type must share to be the same."""
    base = _base(value)
    if base is float:
        return struct.pack("<d", value)
    if base is complex:
        return struct.pack("<dd", value.real, value.imag)
    if base in (range, slice):
        return (value.start, value.stop, value.step)
    return value if base is None or type(value) is base else base(value)


def _declared(cls: type) -> Any:
    found = on_class(cls, "__dataclass_fields__")
    return None if found is None else found[1]


def _fields(value: Any) -> dict[Any, Any] | None:
    """A mapping's items, or a dataclass's fields by name."""
    if issubclass(type(value), dict):
        return dict(dict.items(value))
    if type(value) is MappingProxyType:
        return dict(value.items())
    declared = _declared(type(value))
    return None if declared is None else {name: held(value, name) for name in declared}


def _all_same(control: list[Any], candidate: list[Any]) -> bool:
    """Plain items, the same ones in the same order: found out at the speed of C."""
    types = list(map(type, control))
    return _EXACT.issuperset(types) and types == list(map(type, candidate)) and control == candidate


def _reordered(control: list[Any], candidate: list[Any]) -> bool:
    """The same plain items, not in the same order."""
    if not all(type(item) in (int, str, bool, bytes) for item in (*control, *candidate)):
        return False
    tagged = [[(type(item), item) for item in side] for side in (control, candidate)]
    return tagged[0] != tagged[1] and Counter(tagged[0]) == Counter(tagged[1])
