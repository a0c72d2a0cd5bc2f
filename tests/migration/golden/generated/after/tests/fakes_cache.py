"""Strict fakes of the Protocols in app.parts.cache: their members and nothing else. Generated."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from app.parts.cache import CacheState, GpuKvBackend
    from app.pool import Pool


class NotGiven(AttributeError):
    """A member of the Protocol that the test did not give to its fake; hasattr() says False of it."""


class Call(NamedTuple):
    """One call of a fake's method: what may be passed by position is in `args`, defaults are in neither."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _NotGiven:
    def __repr__(self) -> str:
        return "NOT_GIVEN"


#: Default of every member and of every parameter that has one in the Protocol.
NOT_GIVEN: Any = _NotGiven()


@dataclass(frozen=True)
class _Shape:
    protocol: str
    attributes: tuple[str, ...]
    readonly: frozenset[str]
    methods: tuple[str, ...]


@dataclass
class _State:
    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)


_SHAPES: dict[type, _Shape] = {}


class StrictFake:
    """Has the members of one Protocol and no others; each is given by the test, none is made up."""

    __slots__ = ("_strict_fake_state",)
    _strict_fake_state: _State

    def __init_subclass__(
        cls, *, protocol: str, readonly: tuple[str, ...] = (), methods: tuple[str, ...] = ()
    ) -> None:
        _SHAPES[cls] = _Shape(protocol, tuple(vars(cls)["__slots__"]), frozenset(readonly), methods)

    def __init__(self, /, **members: Any) -> None:
        object.__setattr__(self, "_strict_fake_state", _State())
        give(self, **{name: value for name, value in members.items() if value is not NOT_GIVEN})

    if not TYPE_CHECKING:  # a type checker that saw these would let every name pass

        def __getattr__(self, name: str) -> Any:
            raise _missing(self, name)

        def __setattr__(self, name: str, value: Any) -> None:
            shape = _SHAPES[type(self)]
            if name in shape.methods or name in shape.readonly:
                message = (
                    f"{name} is read-only in {shape.protocol}; a test sets it with give(fake, {name}=...)"
                )
                raise AttributeError(message, name=name, obj=self)
            if name not in shape.attributes:
                raise _missing(self, name)
            object.__setattr__(self, name, value)


def give(fake: StrictFake, **members: Any) -> None:
    """Set members of a fake, read-only ones and methods (as callables) too."""
    shape = _SHAPES[type(fake)]
    for name, value in members.items():
        if name in shape.methods:
            fake._strict_fake_state.answers[name] = value
        elif name in shape.attributes:
            object.__setattr__(fake, name, value)
        else:
            raise _missing(fake, name)


def calls_of(fake: StrictFake, name: str | None = None) -> list[Call]:
    """The calls of a fake's methods so far, in order; of one method when it is named."""
    return [call for call in fake._strict_fake_state.calls if name in (None, call.name)]


def answer(
    fake: StrictFake,
    name: str,
    positional: tuple[tuple[str, Any], ...] = (),
    rest: tuple[Any, ...] = (),
    named: Mapping[str, Any] | None = None,
) -> Any:
    """Record a call and pass it to the callable that the test gave; parameters not passed stay unpassed."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    gap = False
    for parameter, value in positional:
        gap = gap or value is NOT_GIVEN
        if not gap:
            args.append(value)
        elif value is not NOT_GIVEN:
            kwargs[parameter] = value
    kwargs |= {parameter: value for parameter, value in (named or {}).items() if value is not NOT_GIVEN}
    fake._strict_fake_state.calls.append(Call(name, (*args, *rest), kwargs))
    try:
        given = fake._strict_fake_state.answers[name]
    except KeyError:
        raise _missing(fake, name) from None
    return given(*args, *rest, **kwargs)


async def answer_async(
    fake: StrictFake,
    name: str,
    positional: tuple[tuple[str, Any], ...] = (),
    rest: tuple[Any, ...] = (),
    named: Mapping[str, Any] | None = None,
) -> Any:
    """`answer` for an `async def`; the callable may be asynchronous or not."""
    result = answer(fake, name, positional, rest, named)
    return await result if inspect.isawaitable(result) else result


def _missing(fake: StrictFake, name: str) -> AttributeError:
    shape, kind = _SHAPES[type(fake)], type(fake).__name__
    known = [*shape.attributes, *shape.methods]
    if name in known:
        message = f"{name} was not given to the fake: {kind}({name}=...)"
        return NotGiven(message, name=name, obj=fake)
    near = difflib.get_close_matches(name, known, 1)
    hint = f", did you mean {near[0]}?" if near else f"; it has {', '.join(known) or 'no member'}"
    return AttributeError(f"{shape.protocol} has no member {name}{hint}", name=name, obj=fake)


def assert_conforms(protocol: type, value: object, *, optional: Collection[str] = ()) -> None:
    """Fail unless `value` has every member of the Protocol, and each method takes every call that it allows.

    Run it on the fake and on the real object: then a test with the fake speaks for the real one. Members in
    `optional` may be missing (attributes that are created on first use). Nothing is called.
    """
    problems: list[str] = []
    for name, wanted in _protocol_members(protocol).items():
        found = inspect.getattr_static(value, name, NOT_GIVEN)
        if found is NOT_GIVEN and not hasattr(value, name):
            if name not in optional:
                problems.append(f"{name}: missing")
        elif inspect.isfunction(wanted):
            problems += [f"{name}: {problem}" for problem in _call_problems(wanted, getattr(value, name))]
    if problems:
        lines = "\n  ".join(problems)
        raise AssertionError(f"{type(value).__name__} is no {protocol.__name__}:\n  {lines}")


def _protocol_members(protocol: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in reversed(protocol.__mro__):
        if getattr(kind, "_is_protocol", False) and kind.__module__ not in ("typing", "typing_extensions"):
            found |= dict.fromkeys(inspect.get_annotations(kind))
            found |= {
                name: part
                for name, part in vars(kind).items()
                if inspect.isfunction(part) or isinstance(part, property)
            }
    # What Python itself puts into the namespace of a Protocol class.
    own = ("__init__", "__subclasshook__", "__annotate__", "__annotate_func__")
    return {name: part for name, part in found.items() if name not in own}


def _call_problems(wanted: Any, found: Any) -> Iterator[str]:
    """Why some call that `wanted` allows would fail, or mean something else, on `found`."""
    if not callable(found):
        yield "not callable"
        return
    if inspect.iscoroutinefunction(wanted) is not inspect.iscoroutinefunction(found):
        yield "one is `async def`, the other is not"
    _, *asked = inspect.signature(wanted).parameters.values()  # without self
    try:
        offered = list(inspect.signature(found).parameters.values())
    except ValueError:  # written in C: it does not say
        return
    parameter = inspect.Parameter
    by_position = [
        p for p in offered if p.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    by_name = {
        p.name: p for p in offered if p.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    kinds = {p.kind for p in offered}
    served: set[str] = set()
    for index, one in enumerate(asked):
        if one.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if one.kind not in kinds:
                yield f"takes no {'*' if one.kind is parameter.VAR_POSITIONAL else '**'}{one.name}"
            continue
        placed = one.kind is not parameter.KEYWORD_ONLY
        place = by_position[index] if placed and index < len(by_position) else None
        named = by_name.get(one.name) if one.kind is not parameter.POSITIONAL_ONLY else None
        if placed and place is None and parameter.VAR_POSITIONAL not in kinds:
            yield f"takes no {one.name} by position"
        elif (
            one.kind is not parameter.POSITIONAL_ONLY and named is None and parameter.VAR_KEYWORD not in kinds
        ):
            yield f"takes no {one.name} by name"
        elif placed and named is not None and named is not place:
            yield f"{one.name} stands at another place"
        for target in (place, named):
            if target is not None and target.name not in served:
                served.add(target.name)
                if one.default is not one.empty and target.default is target.empty:
                    yield f"{one.name} must not be required"
    for rest in offered:
        variable = rest.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if rest.name not in served and rest.default is rest.empty and not variable:
            yield f"also requires {rest.name}"


class FakeGpuKvBackend(
    StrictFake,
    protocol="app.parts.cache.GpuKvBackend",
    methods=("allocate_pages", "free_pages"),
):
    """Fake of GpuKvBackend; a member that is not given raises NotGiven when it is used."""

    __slots__ = ("closed",)

    closed: bool

    def __init__(
        self,
        *,
        closed: bool = NOT_GIVEN,
        allocate_pages: Callable[..., list[int]] = NOT_GIVEN,
        free_pages: Callable[..., int] = NOT_GIVEN,
    ) -> None:
        super().__init__(closed=closed, allocate_pages=allocate_pages, free_pages=free_pages)

    def allocate_pages(self, uuid: str, n: int) -> list[int]:
        result: list[int] = answer(self, "allocate_pages", (("uuid", uuid), ("n", n)))
        return result

    def free_pages(self) -> int:
        result: int = answer(self, "free_pages")
        return result


class FakeCacheState(
    StrictFake,
    protocol="app.parts.cache.CacheState",
    readonly=("names",),
    methods=("note",),
):
    """Fake of CacheState; a member that is not given raises NotGiven when it is used."""

    __slots__ = ("names", "pool")

    pool: Pool
    names: list[str]

    def __init__(
        self,
        *,
        pool: Pool = NOT_GIVEN,
        names: list[str] = NOT_GIVEN,
        note: Callable[..., int] = NOT_GIVEN,
    ) -> None:
        super().__init__(pool=pool, names=names, note=note)

    def note(self, count: int, *names: str, **more: Any) -> int:
        result: int = answer(self, "note", (("count", count),), names, named={**more})
        return result


if TYPE_CHECKING:  # each fake is held against its Protocol

    def _GpuKvBackend(fake: FakeGpuKvBackend) -> GpuKvBackend:
        return fake

    def _CacheState(fake: FakeCacheState) -> CacheState:
        return fake
