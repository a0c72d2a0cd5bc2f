"""A file that is only looked at may be anything: each command goes on without it."""

from __future__ import annotations

import ast
import warnings

import pytest

from migration.code.source import Source
from migration.code.structure import outline
from migration.code.syntax import expression_or_none, parse_or_none
from migration.move.attribute_writes import writes_of
from migration.move.usage import overrides
from migration.presence.class_files import ClassFiles
from migration.split.managers import Managers
from migration.split.rules import method_refusals

from .support import RECIPE, DictTree

UNREADABLE = {
    "a mistake": b"def (:\n",
    "a null byte": b"x = 1\0\n",
    "no UTF-8": b"x = '\xff'\n",
    "deeper than the parser follows": b"x = " + b"-" * 100_000 + b"1\n",
}
SOURCE = Source(
    "app/worker.py",
    b"from app.guards import held\nclass Worker:\n    def run(self):\n        with held():\n            pass\n",
)


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE)
def test_what_does_not_parse_is_none(data: bytes):
    with pytest.raises((SyntaxError, ValueError, RecursionError, MemoryError)):
        ast.parse(data)
    assert parse_or_none(data) is None
    assert expression_or_none(data.removeprefix(b"x = ")) is None


def test_what_parses_is_its_tree_and_its_warnings_are_its_own():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = parse_or_none(b"x = '\\d'\n")
        assert tree is not None and isinstance(tree.body[0], ast.Assign)
        found = expression_or_none(b"'\\d'")
    assert isinstance(found, ast.Constant)
    assert expression_or_none("x = 1") is None


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE)
def test_each_reader_of_other_files_goes_on(data: bytes):
    said = b"# Worker.run _grow held()\n" + data
    tree = DictTree({SOURCE.path: SOURCE.data, "app/other.py": said, "app/guards.py": said})
    shape = outline(SOURCE, "Worker")
    (method,) = shape.methods
    assert method_refusals(SOURCE, shape, method, 1, tree) == ()
    assert not Managers(SOURCE, shape.node, method.node, tree).propagates(method.node.body[0].items[0])  # type: ignore[attr-defined]
    assert overrides(tree, RECIPE, {"_grow"}) == ()
    assert list(writes_of(tree, "_grow")) == []
    assert ClassFiles(tree).module("app/other.py") is None
