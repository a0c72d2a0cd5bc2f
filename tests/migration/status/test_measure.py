"""What is counted of a version, and that counting in pieces is the same as counting the whole."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from migration.burndown.measure import ClassSize, HandlerSize, Measurer, Unparsed, measure_handler
from migration.burndown.pieces import cut
from migration.burndown.rows import thin
from tests.migration.test_cli import migrate

ROOT = Path(__file__).parents[3]
WORKER = ROOT / "batchgen/batchgen_worker.py"


def size(text: str) -> ClassSize:
    found = Measurer("Worker").measure(text.encode())
    assert isinstance(found, ClassSize), found
    return found


def test_hasattr_and_getattr_on_the_first_parameter_are_counted_and_on_nothing_else():
    found = size(
        "class Worker:\n"
        "    def a(this, other):\n"
        "        hasattr(this, 'x'), getattr(this, 'y', None), getattr(other, 'z'), hasattr(this.q, 'x')\n"
        "        text = \"hasattr(this, 'x')\"  # hasattr(this, 'x')\n"
        "        def inner():\n"
        "            return getattr(this, text)\n"
        "    @staticmethod\n"
        "    def b(this):\n"
        "        return hasattr(this, 'x')\n"
    )
    assert found.asks == 3


def test_methods_under_a_condition_count_and_nested_functions_do_not():
    text = (
        "class Worker:\n    if X:\n        def a(self): ...\n    else:\n        def b(self): ...\n"
        "    def c(self):\n        def d(): ...\n"
    )
    assert size(text).methods == 3


def test_gates_are_counted_with_the_legacy_bodies_behind_them():
    text = (
        "_A = Gate('A', H, {})\n_B = Gate('B', H, {})\nX = other('C')\n\n\n"
        "class Worker:\n    def _legacy_a(self): ...\n    def a(self): ...\n"
    )
    found = size(text)
    assert (found.gates, found.gated, found.methods) == (2, 1, 2)


def test_a_module_without_the_class_has_nothing_of_it():
    assert size("x = 1\n") == ClassSize(1, 0, 0, 0, 0, 0)


def test_a_version_that_does_not_parse_says_where():
    assert Measurer("Worker").measure(b"class Worker:\n    def a(:\n") == Unparsed("line 2: invalid syntax")


def test_protocol_width_counts_a_property_and_its_setter_once():
    text = b"""from typing import Protocol
class A(Protocol):
    x: int
    @property
    def y(self): ...
    @y.setter
    def y(self, value): ...
class B(Protocol[int]):
    def z(self): ...
class C:
    def no(self): ...
"""
    assert measure_handler(text) == HandlerSize(11, 2, 3)


ODD = {
    "decorators": "@one\n@two(\n    3\n)\nclass Worker:\n    @a\n    @b(\n        1)\n    def f(self):\n        pass\n",
    "text at the margin": 'class Worker:\n    def f(self):\n        return """\nclass Worker:\n    def g(self):\n"""\n'
    "    def h(self): ...\n",
    "two classes": "class Worker:\n    def f(self): ...\nclass Worker:\n    def g(self): ...\n    def h(self): ...\n",
    "statement at the margin": "class Worker:\n    def f(self): ...\n(a) = 1\n'''text'''\n",
    "no method": "class Worker:\n    x = 1\n",
    "comments behind": "class Worker:\n    def f(self):\n        pass\n        # done\n\n# more\n",
    "one line": "class Worker: pass\n",
    "carriage returns": "class Worker:\r\n    def f(self):\r\n        pass\r\n",
    "no last line end": "class Worker:\n    def f(self):\n        pass",
    "conditional first": "class Worker:\n    if X:\n        def f(self): ...\n    def g(self): ...\n",
    "continued line": "class Worker:\n    x = 1 + \\\n    2\n    def f(self): ...\n",
    "margin in brackets": "class Worker:\n    def f(self):\n        return [\n1,\nname\n]\n    def g(self): ...\n",
    "another indentation": "class Worker:\n    def f(self): ...\n      def g(self): ...\n",
    "class in text before": '"""\nclass Worker:\n    def f(self): ...\n"""\nclass Worker:\n    def g(self): ...\n'
    "    def h(self): ...\n",
    "async": "class Worker:\n    async def f(self): ...\n    async  def g(self): ...\n",
    "else at the margin": "if X:\n    pass\nclass Worker:\n    def f(self): ...\nelse:\n    pass\n",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_modules_measure_the_same_in_pieces_and_as_a_whole(name: str):
    data = ODD[name].encode()
    assert Measurer("Worker").measure(data) == Measurer("Worker").measure_whole(data.replace(b"\r\n", b"\n"))


def test_edits_of_a_real_class_measure_the_same_in_pieces_and_as_a_whole():
    """Lines are deleted, doubled and shifted at random, so that some versions parse and some do not."""
    lines = WORKER.read_bytes().splitlines(keepends=True)
    chance, measurer, parsed = random.Random(5), Measurer("BatchGenWorker"), 0
    for _ in range(60):
        edited, at = list(lines), chance.randrange(len(lines))
        match chance.randrange(4):
            case 0:
                del edited[at : at + chance.randrange(1, 40)]
            case 1:
                edited[at:at] = edited[at - 3 : at]
            case 2:
                edited[at] = b"\t" + edited[at]
            case 3:
                edited[at] = edited[at].lstrip(b"\t")
        data = b"".join(edited)
        found = measurer.measure(data)
        assert found == measurer.measure_whole(data)
        parsed += isinstance(found, ClassSize)
    assert 10 < parsed < 60


def test_most_versions_are_measured_in_pieces():
    assert cut(WORKER.read_bytes(), "BatchGenWorker") is not None


def test_the_count_of_questions_is_that_of_the_inventory():
    done = migrate("inventory", WORKER, "--json")
    methods = json.loads(done.stdout)["methods"]
    kinds = [use["kind"] for method in methods for use in method["reflection"]]
    asked = sum(kind in ("hasattr", "getattr") for kind in kinds)
    found = Measurer("BatchGenWorker").measure(WORKER.read_bytes())
    assert isinstance(found, ClassSize)
    assert found.asks == asked > 0
    assert found.methods == len(methods)


@pytest.mark.parametrize(("items", "most"), [(1, 50), (50, 50), (51, 50), (200, 50), (3, 2)])
def test_thinning_keeps_both_ends_and_never_repeats(items: int, most: int):
    kept = thin(range(items), most)
    assert len(kept) == min(items, most) == len(set(kept))
    assert (kept[0], kept[-1]) == (0, items - 1)
