"""Seams are found where a class has them, within the budget, and the same ones every time."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migration.errors import MigrationError
from migration.seams.concerns import members_of
from migration.seams.divide import divide
from migration.seams.graph import class_graph
from migration.seams.interface import cluster
from migration.seams.search import find_seams
from migration.seams.words import camel, common_name, identifier, telling, title_name

from .seams_worker import PATH, graph, tree

GRAPH = graph()


def seams(budget: int = 60, top: int = 8) -> list[tuple[str, ...]]:
    return [found.names for found in find_seams(GRAPH, budget, top)]


def test_methods_of_one_concern_are_one_cluster():
    assert seams() == [
        ("take_pages", "give_pages", "count_pages"),
        ("sample_tokens", "sample_scaled", "sample_log", "step"),
        ("finish", "report"),
    ]


def test_a_smaller_budget_gives_smaller_clusters_and_long_methods_stand_alone_at_the_end():
    found = seams(budget=6)
    assert found[-1] == ("take_pages",)
    assert all(GRAPH.lines(names) <= 6 for names in found[:-1])
    assert seams(top=2) == seams()[:2]


def test_set_up_and_stubs_of_earlier_slices_are_no_part_of_a_seam():
    stubbed = (
        "class Worker:\n"
        "    def __init__(self): self.x = 1\n"
        "    def moved(self): return Cache.for_worker(self).moved()\n"
        "    def stays(self): return self.x\n"
    )
    found = class_graph(tree(stubbed), PATH)
    assert found.movable == ("stays",)
    assert [c.names for c in find_seams(found, 100, 5)] == [("stays",)]
    assert find_seams(class_graph(tree("class Worker:\n    x = 1\n"), PATH), 100, 5) == ()


def test_the_interface_of_a_cluster():
    found = cluster(GRAPH, ["sample_tokens", "sample_scaled", "sample_log"])
    assert found.lines == 12
    assert found.own == {"sampled", "rank", "args"} and found.needs == {"log"}
    assert found.called == set() and found.written == {"sampled"}
    assert found.calls_in == (("step", "sample_tokens"),) and found.calls_out == ()
    assert cluster(GRAPH, ["step"]).calls_out == (("step", "sample_tokens"), ("step", "take_pages"))


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        # What only the cluster uses costs nothing, what others use too does.
        (["take_pages", "give_pages"], ["take_pages", "give_pages", "count_pages"]),
        # A call less crosses the border.
        (["sample_tokens"], ["sample_tokens", "sample_log"]),
    ],
)
def test_what_narrows_an_interface_costs_less(worse: list[str], better: list[str]):
    assert cluster(GRAPH, better).cost < cluster(GRAPH, worse).cost
    assert cluster(GRAPH, better).score < cluster(GRAPH, worse).score


SHARED = """
class Worker:
    def __init__(self):
        self.a = 1
        self.b = 2
    def one(self):
        return self.a
    def two(self):
        return self.{attribute}
    def other(self):
        self.a += 1
        return self.b
"""


def test_a_settled_member_costs_half_of_one_that_changes():
    changing, settled = (cluster(graph(SHARED.format(attribute=name)), ["two"]).cost for name in ("a", "b"))
    assert changing == 2 * settled > 0


INTERFACE = """
class Worker:
    def __init__(self):
        self.a = self.b = 0
    def one(self):
        {body}
    def two(self):
        self.one(); self.a += 1; self.b += 1
    def three(self):
        self.one(); self.four()
    def four(self):
        pass
"""


@pytest.mark.parametrize(
    ("body", "cost"),
    [
        ("pass", 4),  # two calls from outside, each counts one: two halves
        ("return self.a", 6),
        ("self.a = 1", 7),  # written here, used elsewhere
        ("self.four()", 8),  # a call to the outside, and a member
        ("return self.four", 8),
    ],
)
def test_calls_members_and_written_members_are_counted(body: str, cost: int):
    assert cluster(graph(INTERFACE.format(body=body)), ["one"]).cost == cost


def test_what_has_nothing_in_common_is_not_put_together():
    text = "class Worker:\n    def __init__(self): self.args = 1\n" + "".join(
        f"    def {name}(self):\n        self.{name}_state = self.args\n        return self.{name}_state\n"
        for name in ("admit", "sample", "evict", "report", "migrate", "decode")
    )
    assert {len(c.names) for c in find_seams(graph(text), 100, 6)} == {1}


LONG = "    def use{0}(self):\n        self.carry()\n" + "        self.own{0} = self.{0}\n" * 11
GROWN = """
class Worker:
    def __init__(self):
        self.rare = self.x = self.y = self.z = 0
    def alpha(self):
        self.rare += 1
        return self.carry()
    def beta(self):
        self.rare += 2
        return self.carry()
    def gamma(self):
        self.rare += 3
        return self.carry()
    def delta(self):
        self.rare += 4
        return self.carry()
    def carry(self):
        self.x += self.y
        self.y += self.z
        self.z += self.x
        return self.x
"""
GROWN += "".join(map(LONG.format, "xyz"))


def test_a_method_with_most_of_its_calls_in_a_cluster_joins_it():
    found = [c.names for c in find_seams(graph(GROWN), 17, 9)]
    assert ("alpha", "beta", "gamma", "delta", "carry") in found


def test_what_is_too_small_for_a_slice_is_not_proposed():
    long = "".join(f"        self.n{i} = {i}\n" for i in range(30))
    text = f"class Worker:\n    def __init__(self): pass\n    def tiny(self): return 1\n    def work(self):\n{long}"
    text += f"    def other(self):\n{long.replace('self.n', 'self.m')}"
    assert {c.names for c in find_seams(graph(text), 200, 9)} == {("work",), ("other",)}


def test_members_are_predicted_with_mangled_names_properties_and_asked_attributes():
    text = textwrap.dedent("""
        class Worker:
            def __init__(self): self.__n = 0
            @property
            def size(self): return self.__n
            def grow(self):
                if hasattr(self, "asked") and hasattr(self, "probed"): self.__n += self.size
                self.__private(); self.plain(); self.__class__; self.plain
                return self.inherited()
            def __private(self): pass
            def plain(self): pass
            def probed(self): pass
        """)
    found = graph(text)
    names = ["size", "grow", "plain"]
    assert members_of(found, cluster(found, names), ()) == {
        *("_Worker__n", "size", "_Worker__private", "plain", "inherited")
    }
    assert found.nodes["grow"].mentioned >= {"asked", "_Worker__n"}
    assert "plain" in members_of(found, cluster(found, ["grow"]), ())


CACHES = ("take_kv_cache", "give_kv_caches", "drop_cache")


def test_words_and_names():
    assert telling("_getGPUKVFreePages2") == ["gpukv", "free", "pages"]
    assert telling("maybe_init_kv_cache") == ["kv", "cache"]
    assert title_name("KV Cache Helper Methods") == "kv_cache" and title_name("The 2 of") == "the_of"
    assert identifier("class") == "class_" and identifier("3d!") == "part_3d" and identifier("") == "part"
    assert camel("kv_cache") == "KvCache" and camel("class_") == "Class"
    assert common_name(GRAPH, ["take_pages", "give_pages", "count_pages"]) == "pages"
    assert common_name(GRAPH, ["report"]) == "report"
    caches = graph("class Worker:\n" + "".join(f"    def {n}(self): ...\n" for n in CACHES))
    assert common_name(caches, CACHES) == "kv_cache"
    # Nothing in common: the one that most others call.
    assert common_name(GRAPH, ["step", "sample_scaled", "count_pages"]) == "count_pages"


def test_a_division_has_all_methods_once_and_no_part_over_the_budget():
    names = GRAPH.movable
    parts = divide(GRAPH, names, 18)
    assert sorted(itertools.chain(*parts)) == sorted(names)
    assert [GRAPH.lines(part) <= 18 for part in parts] == [True] * len(parts) and len(parts) == 3
    assert any(part >= {"take_pages", "give_pages", "count_pages"} for part in parts)
    first = [min(list(GRAPH.nodes).index(name) for name in part) for part in parts]
    assert first == sorted(first)
    assert frozenset(("take_pages",)) in divide(GRAPH, names, 5)


def test_a_class_or_file_that_is_not_there_is_an_error():
    with pytest.raises(MigrationError, match="does not exist"):
        class_graph(tree(), "app/no.py")
    with pytest.raises(MigrationError, match="no module-level class No"):
        class_graph(tree(), PATH, "No")


@st.composite
def classes(draw: st.DrawFn) -> str:
    """A class of small methods that use attributes and call each other at random."""
    random_ = random.Random(draw(st.integers(0, 10**6)))
    count = draw(st.integers(1, 14))
    lines = ["class Worker:", "    def __init__(self):", "        self.a0 = self.a1 = self.a2 = 0"]
    for number in range(count):
        lines.append(f"    def part{number % 4}_m{number}(self):")
        for _ in range(random_.randint(0, 6)):
            lines.append(f"        self.a{random_.randrange(9)} = self.a{random_.randrange(9)}")
        for _ in range(random_.randint(0, 3)):
            other = random_.randrange(count)
            lines.append(f"        self.part{other % 4}_m{other}()")
        lines.append("        return 0")
    return "\n".join(lines) + "\n"


@settings(max_examples=60, derandomize=True, deadline=None)
@given(classes(), st.integers(2, 40), st.integers(1, 6))
def test_seams_are_disjoint_ranked_within_the_budget_and_few(text: str, budget: int, top: int):
    found = graph(text)
    chosen = find_seams(found, budget, top)
    names = [name for one in chosen for name in one.names]
    assert len(names) == len(set(names)) and len(chosen) <= top
    assert set(names) <= set(found.movable)
    fitting = [one for one in chosen if one.lines <= budget]
    assert chosen[: len(fitting)] == tuple(fitting)
    assert all(len(one.names) == 1 for one in chosen[len(fitting) :])
    assert [one.score for one in fitting] == sorted(one.score for one in fitting)
    for one in chosen:
        assert one == cluster(found, one.names)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(classes(), st.integers(2, 40))
def test_a_division_of_any_class_is_a_partition(text: str, budget: int):
    found = graph(text)
    parts = divide(found, found.movable, budget)
    assert sorted(itertools.chain(*parts)) == sorted(found.movable)
    assert all(found.lines(part) <= budget or len(part) == 1 for part in parts)


def test_the_same_class_gives_the_same_seams_whatever_the_hash_seed():
    script = "from tests.migration.test_plan_seams import seams; print(seams(), seams(12))"
    root = Path(__file__).parents[2]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
