"""Adapters pass on every parameter of what they wrap, or are refused; none is dropped on the way."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migration.code.source import Source
from migration.errors import CATALOGUE, MigrationError
from migration.move.adapters import Adapter, AdapterRefused, AdapterSpec, MemberMap, adapter_text
from migration.move.fake_support import assert_conforms
from migration.move.protocol_classes import ProtocolModule
from migration.move.wrapped_class import WrappedClass

HEAD = "from __future__ import annotations\nfrom typing import Any, Protocol\n"


def outcome(protocol: str, wrapped: str, *maps: MemberMap, head: str = "") -> Adapter | AdapterRefused:
    """The adapter of Protocol `Backend` (given by its body) for class `Pool` (given by its body)."""
    view = f"{HEAD}class Backend(Protocol):\n{textwrap.indent(textwrap.dedent(protocol), '    ')}"
    pool = f"{head}\nclass Pool:\n{textwrap.indent(textwrap.dedent(wrapped), '    ')}"
    protocols = ProtocolModule(Source("app/handler.py", view.encode()), "app.handler")
    source = WrappedClass(Source("app/pool.py", pool.encode()), "app.pool", "Pool")
    spec = AdapterSpec("Backend", "PoolBackend", "Pool", maps)
    return adapter_text(spec, protocols, source, lambda top: top == "app")


def text(*arguments: Any, **named: Any) -> str:
    found = outcome(*arguments, **named)
    assert isinstance(found, Adapter), found
    return found.text


def adapted(protocol: str, wrapped: str, *maps: MemberMap, head: str = "") -> Any:
    """A live adapter around a live Pool."""
    space: dict[str, Any] = {"__name__": "app.adapter"}
    exec(text(protocol, wrapped, *maps, head=head), space)
    pool: dict[str, Any] = {}
    exec(f"{head}\nclass Pool:\n{textwrap.indent(textwrap.dedent(wrapped), '    ')}", pool)
    return space["PoolBackend"].of(pool["Pool"]())


def refusals(protocol: str, wrapped: str, *maps: MemberMap) -> list[tuple[str, str]]:
    found = outcome(protocol, wrapped, *maps)
    assert isinstance(found, AdapterRefused), found.text
    assert all(refusal.code in CATALOGUE and refusal.way_out for refusal in found.refusals)
    return [(refusal.code, refusal.message) for refusal in found.refusals]


SEED = """
def allocate_pages(self, uuid: str, n: int) -> list[int]: ...
def release_pages(self, uuid: str) -> None: ...
def free_pages(self) -> int: ...
"""
POOL = """
free = 7
def allocate(self, seq_id: str, count: int = 1, *, priority: int = 0, pinned: bool = False) -> list[int]:
    return [seq_id, count, priority, pinned]
def release(self, seq_id: str) -> None:
    self.released = seq_id
"""
MAPS = (
    MemberMap("allocate_pages", "allocate", {"uuid": "seq_id", "n": "count"}),
    MemberMap("release_pages", "release", {"uuid": "seq_id"}),
    MemberMap("free_pages", "free"),
)


def test_renamed_methods_and_parameters_and_the_keywords_that_the_protocol_does_not_have():
    backend = adapted(SEED, POOL, *MAPS)
    assert backend.allocate_pages("a", 3) == ["a", 3, 0, False]
    assert backend.allocate_pages(uuid="a", n=3, priority=2, pinned=True) == ["a", 3, 2, True]
    assert backend.release_pages("b") is None and backend.free_pages() == 7
    signature = str(inspect.signature(type(backend).allocate_pages))
    assert (
        signature
        == "(self, uuid: 'str', n: 'int', *, priority: 'int' = 0, pinned: 'bool' = False) -> 'list[int]'"
    )


def test_the_object_is_asked_for_at_every_call():
    """The worker replaces its manager when it must grow: an old one must never be used."""
    space: dict[str, Any] = {}
    exec(text(SEED, POOL, *MAPS), space)

    class Pool:
        def __init__(self, free: int) -> None:
            self.free = free

    pools = [Pool(1)]
    backend = space["PoolBackend"](lambda: pools[-1])
    assert backend.free_pages() == 1
    pools.append(Pool(2))
    assert backend.free_pages() == 2


def test_a_default_that_is_no_literal_stays_the_wrapped_methods_own():
    """Neither copied (it is one object, made once) nor evaluated anew: what is omitted is not passed."""
    wrapped = "def take(self, n, into=[], *, order=LIMIT): into.append(n); return into, order"
    backend = adapted("def take(self, n: int) -> Any: ...", wrapped, head="LIMIT = object()")
    first, order = backend.take(1)
    assert backend.take(2)[0] is first and first == [1, 2]
    assert backend.take(3, into=[9], order="x") == ([9, 3], "x") and order != "x"


def test_open_defaults_of_the_protocol_are_those_of_the_wrapped_method():
    backend = adapted(
        "def take(self, n: int = ..., m: int = 5) -> Any: ...", "def take(self, n=3, m=4): return n, m"
    )
    assert backend.take() == (3, 5)
    assert str(inspect.signature(backend.take)) == "(n: 'int' = 3, m: 'int' = 5) -> 'Any'"


def test_star_arguments_and_unknown_keywords_go_through():
    wrapped = "def take(self, n, /, m=2, *rest, k, **more): return n, m, rest, k, more"
    backend = adapted(
        "def take(self, a: int, k: int, extra: int) -> Any: ...",
        wrapped,
        MemberMap("take", "take", {"a": "n"}),
    )
    assert backend.take(1, 5, 6) == (1, 2, (), 5, {"extra": 6})
    assert backend.take(1, 5, 6, 7, 8, m=3, z=9) == (1, 3, (7, 8), 5, {"extra": 6, "z": 9})


def test_attributes_and_properties():
    wrapped = """
    def __init__(self): self.size = 1
    @property
    def half(self): return self.size / 2
    """
    protocol = """
    pages: int
    @property
    def half(self) -> float: ...
    """
    backend = adapted(protocol, wrapped, MemberMap("pages", "size"))
    backend.pages += 3
    assert (backend.pages, backend.half) == (4, 2.0)
    with pytest.raises(AttributeError):
        backend.half = 1


def test_asynchronous_methods():
    wrapped = "async def load(self, a, *, b=1): return a, b\ndef now(self): return 1\n"
    protocol = "async def load(self, a: int) -> Any: ...\nasync def now(self) -> int: ...\n"
    backend = adapted(protocol, wrapped)
    assert asyncio.run(backend.load(1, b=2)) == (1, 2) and asyncio.run(backend.now()) == 1


def test_static_and_class_methods_generators_and_overloads():
    wrapped = """
    @staticmethod
    def pure(a, b=1): return a, b
    @classmethod
    def made(cls, a): return cls.__name__, a
    def each(self, n): yield from range(n)
    @overload
    def many(self, a: int) -> int: ...
    @overload
    def many(self, a: str) -> str: ...
    def many(self, a, deep=False): return a, deep
    """
    protocol = "".join(
        f"def {name}(self, {arg}: Any) -> Any: ...\n"
        for name, arg in (("pure", "a"), ("made", "a"), ("each", "n"), ("many", "a"))
    )
    backend = adapted(protocol, wrapped, head="from typing import overload")
    assert (backend.pure(1, b=2), backend.made(3), list(backend.each(2))) == ((1, 2), ("Pool", 3), [0, 1])
    assert backend.many(1, deep=True) == (1, True)


def test_a_method_of_a_base_class_in_the_same_file():
    head = "class Base:\n    def take(self, n, *, k=1): return n, k\n    def other(self): return 0\n"
    view = f"{HEAD}class Backend(Protocol):\n    def take(self, n: int) -> Any: ...\n"
    pool = f"{head}class Pool(Base):\n    def other(self, x=1): return x\n"
    protocols = ProtocolModule(Source("app/handler.py", view.encode()), "app.handler")
    wrapped = WrappedClass(Source("app/pool.py", pool.encode()), "app.pool", "Pool")
    found = adapter_text(AdapterSpec("Backend", "PoolBackend", "Pool"), protocols, wrapped, lambda top: True)
    assert isinstance(found, Adapter) and "take(n, k=k)" in found.text
    other = wrapped.offers("other").node
    assert other is not None and len(other.args.args) == 2


@pytest.mark.parametrize(
    ("protocol", "wrapped", "maps", "code", "message"),
    [
        ("(self, n: int)", "(self, n, stream)", {}, "MG525", "stream of f has no default and nothing leads to it"),
        ("(self, n: int)", "(self, n, *, stream)", {}, "MG525", "stream of f has no default and nothing leads to it"),
        ("(self, n: int = ...)", "(self, n)", {}, "MG525", "n may be omitted, but n of f has no default"),
        ("(self, n: int = ...)", "(self, **more)", {}, "MG525", "n may be omitted, but n would have no default"),
        ("(self, n: int, m: int)", "(self, n)", {}, "MG526", "m leads nowhere: f(n)"),
        ("(self, n: int, m: int)", "(self, n, *rest)", {}, "MG526", "m leads nowhere: f(n, rest)"),
        ("(self, *n: int)", "(self, n=1)", {}, "MG526", "*n leads nowhere: f(n)"),
        ("(self, **n: int)", "(self, n=1)", {}, "MG526", "**n leads nowhere: f(n)"),
        ("(self, n: int)", "(self, n)", {"m": "n"}, "MG526", "the mapping names m, which f does not have"),
        ("(self, n: int, m: int)", "(self, n)", {"m": "n"}, "MG526", "m and another parameter both lead to n"),
        ("(self, n: int)", "(self, m, n=1)", {"n": "m"}, "MG526", "n of f needs its own parameter"),
        ("(self, n: int)", "(self, n, m=[], /)", {}, "MG528", "the default of m of f is no literal"),
        ("(self, n: int)", "(self, n, m=[], *rest)", {}, "MG528", "the default of m of f is no literal"),
        ("(self, n: Any = [])", "(self, n=1)", {}, "MG528", "the default of n in the Protocol is no literal"),
    ],
)  # fmt: skip
def test_a_parameter_that_could_not_be_passed_on_is_refused(
    protocol: str, wrapped: str, maps: dict[str, str], code: str, message: str
):
    found = refusals(f"def f{protocol} -> Any: ...", f"def f{wrapped}: pass", MemberMap("f", "f", maps))
    assert any(got == code and why.startswith(message) for got, why in found), found


@pytest.mark.parametrize(
    ("protocol", "wrapped", "maps", "code", "message"),
    [
        ("def f(self) -> Any: ...", "def g(self): pass", (), "MG526", "Pool in app/pool.py does not show it"),
        ("def f(self) -> Any: ...", "pass", (MemberMap("g", "f"),), "MG526", "Backend has no such member"),
        (
            "def f(self) -> Any: ...",
            "def __f(self): pass",
            (MemberMap("f", "__f"),),
            "MG526",
            "private to Pool",
        ),
        (
            "def f(self) -> Any: ...",
            "async def f(self): pass",
            (),
            "MG528",
            "is asynchronous, the member is not",
        ),
        ("def f(self) -> Any: ...", "@wrap(1)\ndef f(self): pass", (), "MG528", "decorator wrap may change"),
        (
            "def f(self) -> Any: ...",
            "if 1:\n    def f(self): pass",
            (),
            "MG528",
            "under a condition in line 4",
        ),
        ("f: int", "def f(self): pass", (), "MG526", "f is a method, the member is not"),
        ("f: int", "@property\ndef f(self): pass", (), "MG526", "f is read-only, the member is not"),
        ("def f(self, a: int) -> Any: ...", "f = 1", (), "MG526", "f is an attribute and takes no parameter"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused(
    protocol: str, wrapped: str, maps: tuple[MemberMap, ...], code: str, message: str
):
    found = refusals(protocol, wrapped, *maps)
    assert any(got == code and message in why for got, why in found), found


def test_every_reason_is_given_at_once():
    protocol = "def f(self, a: int) -> Any: ...\ndef g(self) -> Any: ...\ndef h(self, x: int) -> Any: ...\n"
    wrapped = "def f(self, b): pass\ndef h(self, x, y): pass\n"
    assert [code for code, _ in refusals(protocol, wrapped)] == ["MG526", "MG525", "MG526", "MG525"]


def test_a_name_that_would_mean_two_things_is_refused():
    view = (
        f"{HEAD}from app.pages import Page\nclass Backend(Protocol):\n    def f(self, a: Page) -> Any: ...\n"
    )
    pool = "from other import Page\nclass Pool:\n    def f(self, a, b: Page = None): pass\n"
    protocols = ProtocolModule(Source("app/handler.py", view.encode()), "app.handler")
    wrapped = WrappedClass(Source("app/pool.py", pool.encode()), "app.pool", "Pool")
    found = adapter_text(AdapterSpec("Backend", "PoolBackend", "Pool"), protocols, wrapped, lambda top: True)
    assert isinstance(found, AdapterRefused) and [r.code for r in found.refusals] == ["MG529"]


def test_an_unknown_protocol_names_those_that_there_are():
    protocols = ProtocolModule(Source("h.py", f"{HEAD}class View(Protocol): ...".encode()), "h")
    wrapped = WrappedClass(Source("p.py", b"class Pool: pass"), "p", "Pool")
    with pytest.raises(MigrationError, match="no Protocol Backend; it has View") as error:
        adapter_text(AdapterSpec("Backend", "PoolBackend", "Pool"), protocols, wrapped, lambda top: True)
    assert error.value.code == "MG527"


# Any signature, any part of it in the Protocol under other names and kinds: what is passed arrives.

_NAMES = ("a", "b", "c", "d", "e")


@st.composite
def signatures(draw: st.DrawFn) -> dict[str, Any]:
    """Kinds and defaults of a wrapped method's parameters, in a valid order."""
    count = draw(st.integers(0, 4))
    kinds = sorted(draw(st.lists(st.sampled_from((0, 1, 3)), min_size=count, max_size=count)))
    optional = [draw(st.booleans()) for _ in kinds]
    for index in range(1, count):  # no required positional parameter after one that has a default
        if kinds[index] < 3 and optional[index - 1]:
            optional[index] = True
    literal = [draw(st.booleans()) for _ in kinds]
    star, double = draw(st.booleans()), draw(st.booleans())
    return {"kinds": kinds, "optional": optional, "literal": literal, "star": star, "double": double}


def definition(name: str, parameters: list[tuple[str, int, str]], star: bool, double: bool, body: str) -> str:
    """Source of a method; `parameters` are (name, kind, default text) with kinds 0 posonly, 1 plain, 3 keyword."""
    parts = ["self"]
    for index, (parameter, kind, default) in enumerate(parameters):
        if kind == 3 and not star and (index == 0 or parameters[index - 1][1] < 3):
            parts.append("*")
        if kind == 3 and star and "*rest" not in parts:
            parts.append("*rest")
        parts.append(parameter + (f"={default}" if default else ""))
        if kind == 0 and (index + 1 == len(parameters) or parameters[index + 1][1] > 0):
            parts.append("/")
    parts += ["*rest"] if star and "*rest" not in parts else []
    parts += ["**more"] if double else []
    return f"def {name}({', '.join(parts)}): {body}"


@settings(max_examples=300, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=signatures(), data=st.data())
def test_whatever_is_passed_arrives(shape: dict[str, Any], data: st.DataObject):
    names = _NAMES[: len(shape["kinds"])]
    defaults = {
        name: f"'own {name}'" if literal else f"object_of('own {name}')"
        for name, literal in zip(names, shape["literal"], strict=True)
    }
    offered = [
        (name, kind, defaults[name] if optional else "")
        for name, kind, optional in zip(names, shape["kinds"], shape["optional"], strict=True)
    ]
    seen = ", ".join(
        [
            *(f"{name}={name}" for name in names),
            *(["rest=rest"] if shape["star"] else []),
            *(["more=more"] if shape["double"] else []),
        ]
    )
    wrapped = definition("f", offered, shape["star"], shape["double"], f"return dict({seen})")

    # The Protocol: every required parameter and some others, in any order, renamed, all of them plain.
    chosen = [name for name, _, default in offered if not default or data.draw(st.booleans())]
    chosen = data.draw(st.permutations(chosen))
    renamed = {name: data.draw(st.sampled_from((name, f"my_{name}"))) for name in chosen}
    kind = data.draw(st.sampled_from((1, 3)))
    protocol = definition("f", [(renamed[name], kind, "") for name in chosen], False, False, "...")
    protocol = protocol.replace("):", ") -> Any:")
    maps = MemberMap("f", "f", {new: old for old, new in renamed.items() if new != old})
    head = "def object_of(x): return x\n"
    found = outcome(protocol, wrapped, maps, head=head)
    if isinstance(found, AdapterRefused):
        # Only what cannot be omitted by position may be refused.
        assert {refusal.code for refusal in found.refusals} == {"MG528"}
        assert shape["star"] or 0 in shape["kinds"]
        return
    backend = adapted(protocol, wrapped, maps, head=head)
    extra = {name: f"extra {name}" for name in names if name not in chosen and data.draw(st.booleans())}
    rest = (7, 8) if shape["star"] and kind == 1 else ()
    more = {"z": 9} if shape["double"] else {}
    if kind == 1:
        result = backend.f(*(f"given {name}" for name in chosen), *rest, **extra, **more)
    else:
        result = backend.f(**{renamed[name]: f"given {name}" for name in chosen}, **extra, **more)
    expected: dict[str, Any] = {name: f"own {name}" for name in names}
    expected |= {name: f"given {name}" for name in chosen} | extra
    expected |= {"rest": rest} if shape["star"] else {}
    expected |= {"more": more} if shape["double"] else {}
    assert result == expected


def test_the_page_shows_what_is_generated():
    head = "class Order: pass\nDEFAULT = Order()"
    wrapped = """
    def allocate(self, seq: str, count: int = 1, *, order: Order = DEFAULT, pin: bool = False) -> list[int]: ...
    def release(self, seq: str) -> None: ...
    free: int
    """
    maps = (MemberMap("allocate_pages", "allocate", {"uuid": "seq", "n": "count"}), *MAPS[2:])
    maps = (*maps, MemberMap("release_pages", "release", {"uuid": "seq"}))
    page = (Path(__file__).parents[2] / "docs/protocols.md").read_text(encoding="utf-8")
    shown = page[page.index("    def allocate_pages(") :].partition("```")[0]
    got = text(SEED, wrapped, *maps, head=head)
    assert shown in got
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "110", "-"]
    assert subprocess.run(command, input=got, capture_output=True, text=True, check=True).stdout == got


def test_the_adapter_conforms_at_run_time():
    space: dict[str, Any] = {}
    exec(f"{HEAD}class Backend(Protocol):{textwrap.indent(SEED, '    ')}", space)
    assert_conforms(space["Backend"], adapted(SEED, POOL, *MAPS))
