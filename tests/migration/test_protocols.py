"""Protocol members: only what is used, as writable as it is used, typed as far as the class shows."""

from __future__ import annotations

import pytest

from .support import planned, result, worker_source

HEAD = """
from typing import Optional
from elsewhere import Tool, make
class Box: pass
"""


def members(setup: str, use: str = "return self.x") -> str:
    """The Protocol for a method that does `use`, in a worker that also has a method with `setup`."""
    tail = "\n    # ==== Rest ====\n\n    def setup(self, given: Optional[Tool], plain, other: 'int' = 1):\n"
    tail += "".join(f"        {line}\n" for line in setup.splitlines())
    text = result(planned(worker_source(f"def f(self):\n    {use}\n", HEAD, tail)), "app/parts/cache.py")
    start = text.index("class WorkerView")
    return text[start : text.index("class CacheManager")]


@pytest.mark.parametrize(
    ("setup", "kind"),
    [
        ("self.x: dict[str, Box] = {}", "dict[str, Box]"),
        ("self.x: 'Optional[Box]' = None", "Optional[Box]"),
        ("self.x = 1", "int"),
        ("self.x = 'a'\nself.x = 'b'", "str"),
        ("self.x = 1\nself.x = None", "int | None"),
        ("self.x = True", "bool"),
        ("self.x = []", "list[Any]"),
        ("self.x = {k: 1 for k in plain}", "dict[Any, Any]"),
        ("self.x = int(plain)", "int"),
        ("self.x = Box()", "Box"),
        ("self.x = given", "Optional[Tool]"),
        ("self.x = given\nself.x = None", "Optional[Tool]"),
        ("self.x = other", "int"),
        ("given = plain\nself.x = given", "Any"),
        ("self.x = plain", "Any"),
        ("self.x = make()", "Any"),
        ("self.x = Tool()", "Any"),  # imported: a class, or a function that is spelled like one
        ("self.x = None", "Any"),
        ("self.x = 1\nself.x = 'a'", "Any"),
        ("self.x = 1\nself.x, self.y = plain", "Any"),
        ("self.x = 1\nfor self.x in plain: pass", "Any"),
        ("self.x = 1\nsetattr(self, 'x', plain)", "Any"),
        ("self.x: Unknown = 1", "Any"),
        ("pass", "Any"),
    ],
)
def test_type_of_an_attribute(setup: str, kind: str):
    assert f"    @property\n    def x(self) -> {kind}: ...\n" in members(setup)


@pytest.mark.parametrize("use", ["self.x = 1", "self.x += 1", "del self.x", "setattr(self, 'x', 2)"])
def test_what_is_written_is_a_plain_attribute(use: str):
    assert f"\n    x: {'Any' if 'setattr' in use else 'int'}\n" in members("self.x = 1", use)


def test_what_is_only_asked_for_is_no_member():
    text = members("self.x = 1", "return hasattr(self, 'x')")
    assert "x" not in text.split('"""')[-1]


def test_methods_keep_their_signature_and_properties_stay_properties():
    tail = """
    # ==== Rest ====

    def g(self, a: int, /, b, *c: str, d=1, **e): pass

    async def h(self) -> "Box": ...

    @property
    def p(self) -> int: return 1

    @staticmethod
    def s(v: int) -> int: return v
"""
    use = "def f(self):\n    return self.g, self.h(), self.p, self.s(1)\n"
    text = result(planned(worker_source(use, HEAD, tail)), "app/parts/cache.py")
    for line in (
        "def g(self, a: int, /, b: Any, *c: str, d: Any = ..., **e: Any) -> Any: ...",
        "async def h(self) -> Box: ...",
        "@property\n    def p(self) -> int: ...",
        "def s(self, v: int) -> int: ...",
    ):
        assert f"\n    {line}\n" in text


def test_attributes_created_on_first_use_are_named_in_the_docstring():
    assert "hasattr() may be False: x." in " ".join(members("self.x = 1").split())
