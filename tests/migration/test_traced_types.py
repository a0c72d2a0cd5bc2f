"""What is made of recorded types: one annotation with its imports, or none and why."""

from __future__ import annotations

import collections
import functools
import io
import json
import pathlib
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from migration.code.source import Source
from migration.errors import MigrationError
from migration.move.names import ImportName, ModuleNames
from migration.move.traced import spelled, with_trace
from migration.trace.probe.naming import type_name
from migration.trace.types import Traced, load_types, parse_types
from migration.trace.unions import one_type


class Outer:
    class Inner:
        pass


def local() -> Any:
    class Hidden(Outer):
        pass

    return Hidden()


HERE = __name__


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "None"),
        (True, "bool"),
        (Outer(), f"{HERE}.Outer"),
        (Outer.Inner(), f"{HERE}.Outer.Inner"),
        (local(), f"{HERE}.Outer"),  # a class that nobody can import counts as its first base that one can
        (Outer, f"type[{HERE}.Outer]"),
        (len, "collections.abc.Callable"),
        (local, "collections.abc.Callable"),
        (io.StringIO(), "io.StringIO"),  # defined in _io
        (pathlib.Path("x"), "pathlib.Path"),  # a PosixPath here
        (re.compile("x"), "re.Pattern"),
        (functools.partial(len), "functools.partial"),
        ((n for n in ()), "collections.abc.Generator"),
        ({}.keys(), "collections.abc.KeysView"),
        (iter([]), "object"),
        (sys, "types.ModuleType"),
        (types.SimpleNamespace(), "types.SimpleNamespace"),
        ([], "list"),
        ([1, "a", None], "list[None | int | str]"),
        ([1, "a", 1.5, b""], "list[Any]"),
        ([1] * 16 + ["beyond the sample"], "list[int]"),
        ({"a": [1]}, "dict[str, list[int]]"),
        ({"a": [[1]]}, "dict[str, list[list]]"),
        (collections.Counter("ab"), "collections.Counter[str]"),
        (collections.defaultdict(list, a=[1]), "collections.defaultdict[str, list[int]]"),
        ((), "tuple"),
        ((1, "a"), "tuple[int, str]"),
        ((1, 2, 3, "a"), "tuple[int | str, ...]"),
    ],
)
def test_name_of_a_type(value: Any, name: str):
    assert type_name(value, 2) == name


def test_a_subclass_of_a_container_is_not_looked_into():
    class Touchy(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            raise AssertionError("the program's code was run")

    assert type_name(Touchy([1]), 2) == "list"
    assert type_name([Touchy([1])], 2) == "list[list]"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["int"], "int"),
        (["None", "a.A"], "a.A | None"),
        (["bool", "int"], "int"),
        (["list", "list[int]"], "list[int]"),
        (["list"], "list[Any]"),
        (["list[int]", "list[None | str]"], "list[int | str | None]"),
        (["list[a.A]", "list[b.B]", "list[c.C]", "list[d.D]"], "list[Any]"),
        (["dict[str, list]", "dict[str, list[int]]"], "dict[str, list[int]]"),
        (["tuple[int, str]", "tuple[int, None]"], "tuple[int, str | None]"),
        (["tuple[int]", "tuple[int, str]"], "tuple[int | str, ...]"),
        (["tuple[int]", "tuple[str, ...]"], "tuple[int | str, ...]"),
        (["type[a.A]", "type[b.B]"], "type[a.A] | type[b.B]"),
        (["collections.abc.Callable", "None"], "collections.abc.Callable[..., Any] | None"),
        (["a.A", "b.B", "c.C", "None"], "a.A | b.B | c.C | None"),
    ],
)
def test_one_type_of_several(names: list[str], text: str):
    assert one_type(names) == (text, None)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a.A", "b.B", "c.C", "d.D"], "a.A, b.B, c.C, d.D"),
        (["None"], "only None"),
        (["__main__.A"], "__main__.A cannot be imported"),
        (["list[__mp_main__.A]"], "__mp_main__.A cannot be imported"),
        (["object"], "no type that can be named"),
    ],
)
def test_no_type_and_why(names: list[str], why: str):
    assert one_type(names) == ("Any", why)


DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "modules": ["app", "app.pool", "torch", "torch.nn"],
    "classes": {
        "app.worker:Worker": {
            "states": 12,
            "attributes": {
                "pool": {"None": 1, "app.pool.Pool.Page": 3},
                "weights": {"dict[str, torch.nn.Module]": 4},
                "x": {"int": 1, "str": 1, "float": 1, "bytes": 1},
            },
            "methods": {
                "step": {"calls": 2, "parameters": {"n": {"int": 2}}, "returns": {"None": 2}},
                "free.getter": {"calls": 1, "parameters": {}, "returns": {"float": 1}},
            },
        }
    },
}


def test_lookups(tmp_path: Path):
    path = tmp_path / "types.json"
    path.write_text(json.dumps(DOCUMENT))
    found = load_types(path)
    page = (("app.pool", "Pool.Page"),)
    assert found.type_of("pool") == Traced("app.pool.Pool.Page | None", "traced in 3 calls", page)
    weights = found.type_of("weights")
    assert weights is not None and weights.classes == (("torch.nn", "Module"),)
    assert found.type_of("x") == Traced("Any", "traced in 3 calls: bytes, float, int, str")
    assert found.type_of("free") == Traced("float", "traced in 3 calls")
    assert found.type_of("step") is None and found.type_of("other") is None
    assert found.parameter_of("step", "n") == Traced("int", "traced in 3 calls")
    assert found.return_of("step") == Traced("Any", "traced in 3 calls: only None")


@pytest.mark.parametrize(
    ("text", "name", "code", "message"),
    [
        ("{", None, "MG521", "Expecting"),
        ("[]", None, "MG521", "schema None"),
        ('{"schema": 2}', None, "MG521", "schema 2, this version reads 1"),
        ('{"schema": 1}', None, "MG521", "KeyError: 'classes'"),
        (json.dumps(DOCUMENT), "app.worker:Other", "MG524", "Other? It has app.worker:Worker"),
        (json.dumps({**DOCUMENT, "classes": {}}), None, "MG524", "It has none"),
    ],
)
def test_what_is_wrong_with_a_file(text: str, name: str | None, code: str, message: str, tmp_path: Path):
    path = tmp_path / "types.json"
    path.write_text(text)
    with pytest.raises(MigrationError, match=re.escape(message)) as error:
        load_types(path, name)
    assert error.value.code == code and str(path) in str(error.value)


def test_a_file_that_is_not_there():
    with pytest.raises(MigrationError, match="no-such") as error:
        load_types(Path("no-such.json"))
    assert error.value.code == "MG303"


def test_a_type_name_that_is_none_is_an_error_of_the_file():
    document = json.loads(json.dumps(DOCUMENT).replace('"int": 2', '"1 +": 2'))
    with pytest.raises(MigrationError) as error:
        parse_types(document, None, "types.json").parameter_of("step", "n")
    assert error.value.code == "MG521"


HEAD = """
import torch
import numpy as np
from torch.nn import Parameter as Weight
from other import Page
class Pool: pass
"""


@pytest.mark.parametrize(
    ("text", "classes", "expected", "imports"),
    [
        ("int | None", (), "int | None", []),
        ("torch.Tensor", (("torch", "Tensor"),), "torch.Tensor", [ImportName("torch")]),
        ("numpy.ndarray", (("numpy", "ndarray"),), "np.ndarray", [ImportName("numpy", None, "np")]),
        (
            "list[torch.nn.Parameter]",
            (("torch.nn", "Parameter"),),
            "list[Weight]",
            [ImportName("torch.nn", "Parameter", "Weight")],
        ),
        ("app.worker.Pool", (("app.worker", "Pool"),), "Pool", [ImportName("app.worker", "Pool")]),
        # a package that passes on what its module defines
        ("other.pages.Page", (("other.pages", "Page"),), "Page", [ImportName("other", "Page")]),
        ("kv.tasks.Task", (("kv.tasks", "Task"),), "Task", [ImportName("kv.tasks", "Task")]),
        ("kv.Page", (("kv", "Page"),), "kv.Page", [ImportName("kv")]),  # Page is another class here
        ("kv.Any", (("kv", "Any"),), "kv.Any", [ImportName("kv")]),
        ("kv.list", (("kv", "list"),), "kv.list", [ImportName("kv")]),
        (
            "a.X | b.X",
            (("a", "X"), ("b", "X")),
            "X | b.X",
            [ImportName("a", "X"), ImportName("b")],
        ),
    ],
)
def test_a_type_in_the_workers_own_words(
    text: str, classes: tuple[tuple[str, str], ...], expected: str, imports: list[ImportName]
):
    names = ModuleNames(Source("app/worker.py", HEAD.encode()), "app.worker", False)
    assert spelled(Traced(text, "", classes), names) == (expected, frozenset(imports))


def test_any_is_no_annotation():
    names = ModuleNames(Source("app/worker.py", HEAD.encode()), "app.worker", False)
    assert spelled(Traced("Any", "traced in 3 calls: a, b, c, d"), names) is None


SEEN = Traced("app.worker.Pool", "traced in 3 calls", (("app.worker", "Pool"),))
WIDE = Traced("Any", "traced in 3 calls: a.A, b.B, c.C, d.D")


@pytest.mark.parametrize(
    ("text", "evidence", "traced", "expected"),
    [
        ("Any", "no evidence", SEEN, ("Pool", "traced in 3 calls")),
        ("Any", "annotation is not importable", SEEN, ("Pool", "traced in 3 calls")),
        ("Any | None", "assignment", SEEN, ("Pool | None", "traced in 3 calls")),
        ("Any", "property", SEEN, ("Pool", "traced in 3 calls")),
        ("list[Any]", "annotation", SEEN, ("list[Any]", "annotation")),
        ("int", "assignment", SEEN, ("int", "assignment")),
        ("Any", "assigned int, str", SEEN, ("Any", "assigned int, str")),
        ("Any", "no evidence", None, ("Any", "no evidence")),
        ("Any", "no evidence", WIDE, ("Any", f"no evidence; {WIDE.evidence}")),
    ],
)
def test_the_class_is_asked_first(text: str, evidence: str, traced: Traced | None, expected: tuple[str, str]):
    names = ModuleNames(Source("app/worker.py", HEAD.encode()), "app.worker", False)
    found = with_trace(text, evidence, traced, names)
    assert found[:2] == expected
    assert found[2] == ({ImportName("app.worker", "Pool")} if "Pool" in found[0] else set())
