"""The coupling of sections, and clusters where there are no banners."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migration.survey.clusters import clusters
from migration.survey.coupling import Coupling, MethodUse, coupling
from migration.survey.inventory import take_inventory

ROOT = Path(__file__).resolve().parents[2]


def use(name: str, reads: str = "", writes: str = "", calls: str = "", lines: int = 1) -> MethodUse:
    return MethodUse(name, lines, frozenset(reads.split()), frozenset(writes.split()), Counter(calls.split()))


@pytest.fixture
def found() -> Coupling:
    return coupling(
        [
            ("A", [use("__init__", writes="x y z"), use("a1", "x", "y", "b1 b1 a2", 5), use("a2", "p")]),
            ("B", [use("b1", "y", "", "c1"), use("b2", "x y", "x")]),
            ("C", [use("c1", "q")]),
            ("Empty", []),
        ],
        banners=True,
    )


def test_calls_are_counted_by_place_and_inside_a_section_not_at_all(found: Coupling):
    pair = found.pair("A", "B")
    assert pair is not None and (pair.calls, pair.called) == (2, ("b1",))
    assert found.pair("B", "A") is not None and found.pair("B", "A").calls == 0


def test_shared_attributes_and_what_one_writes_for_the_other(found: Coupling):
    pair, back = found.pair("A", "B"), found.pair("B", "A")
    assert pair is not None and back is not None
    assert pair.shared == back.shared == ("x", "y")
    assert (pair.written_for, back.written_for) == (("y",), ("x",))


def test_sections_with_nothing_between_them_have_no_pair(found: Coupling):
    assert found.pair("A", "C") is None and found.pair("C", "B") is None
    assert [(p.source, p.target) for p in found.pairs] == [("A", "B"), ("B", "A"), ("B", "C")]


def test_init_couples_nothing_and_empty_sections_are_left_out(found: Coupling):
    assert [group.label for group in found.groups] == ["A", "B", "C"]
    assert found.groups[0].methods == ("a1", "a2") and found.groups[0].lines == 6
    assert [group.private for group in found.groups] == [("p",), (), ("q",)]


def test_a_name_defined_twice_counts_where_it_wins():
    found = coupling(
        [("A", [use("f"), use("g", calls="f")]), ("B", [use("f")])],
        banners=True,
    )
    pair = found.pair("A", "B")
    assert pair is not None and pair.called == ("f",)


def test_methods_that_share_attributes_form_a_cluster():
    uses = {f"kv{i}": frozenset({"pages", "table", f"k{i}"}) for i in range(4)}
    uses |= {f"io{i}": frozenset({"socket", "buffer", f"i{i}"}) for i in range(4)}
    uses |= {"lonely": frozenset()}
    found = clusters(uses, {})
    assert found == (("io0", "io1", "io2", "io3"), ("kv0", "kv1", "kv2", "kv3"), ("lonely",))


def test_an_attribute_that_every_method_uses_ties_nothing():
    uses = {name: frozenset({"args", name}) for name in "abcdef"}
    assert all(len(group) == 1 for group in clusters(uses, {}))


def test_calls_tie_methods_without_attributes():
    uses = dict.fromkeys("abcd", frozenset[str]())
    assert clusters(uses, {"a": frozenset("b")})[0] == ("a", "b")


@settings(derandomize=True, max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 40))
def test_clusters_are_a_partition_whatever_the_order(seed: int, size: int):
    rng = random.Random(seed)
    names = [f"m{index}" for index in range(size)]
    uses = {name: frozenset(rng.sample("abcdefgh", rng.randint(0, 4))) for name in names}
    calls = {name: frozenset(rng.sample(names, min(size, rng.randint(0, 2)))) for name in names}
    found = clusters(uses, calls)
    assert sorted(name for group in found for name in group) == sorted(names)
    shuffled = rng.sample(names, size)
    assert clusters({n: uses[n] for n in shuffled}, {n: calls[n] for n in shuffled}) == found


@settings(derandomize=True, max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_pairs_agree_with_a_count_by_hand(seed: int):
    rng = random.Random(seed)
    names = [f"m{index}" for index in range(12)]
    methods = [
        use(
            name,
            " ".join(rng.sample("abcde", 2)),
            " ".join(rng.sample("abcde", 1)),
            " ".join(rng.choices(names, k=3)),
        )
        for name in names
    ]
    sections = [("A", methods[:4]), ("B", methods[4:9]), ("C", methods[9:])]
    found = coupling(sections, banners=True)
    home = {method.name: label for label, members in sections for method in members}
    for source, members in sections:
        for target, others in sections:
            if source == target:
                continue
            calls = sum(n for m in members for name, n in m.calls.items() if home[name] == target)
            written = {w for m in members for w in m.writes} & {r for m in others for r in m.reads}
            pair = found.pair(source, target)
            assert (pair.calls if pair else 0) == calls
            assert set(pair.written_for if pair else ()) == written


def test_a_class_without_banners_is_coupled_by_clusters():
    text = (
        "class W:\n"
        "    def a(self):\n        self.pages = self.table\n"
        "    def b(self):\n        self.table = self.pages\n"
        "    def c(self):\n        self.socket = self.port\n"
        "    def d(self):\n        self.port = self.socket; self.a()\n"
    )
    found = take_inventory("w.py", text.encode()).coupling
    assert found.basis == "clusters"
    assert [set(group.methods) for group in found.groups] == [{"a", "b"}, {"c", "d"}]
    assert [(p.called, p.calls) for p in found.pairs] == [(("a",), 1)]


def test_banners_may_be_set_aside():
    data = (ROOT / "batchgen" / "batchgen_worker.py").read_bytes()
    plain = take_inventory("w.py", data, "BatchGenWorker").coupling
    grouped = take_inventory("w.py", data, "BatchGenWorker", by_clusters=True).coupling
    assert (plain.basis, grouped.basis) == ("banners", "clusters")
    count = {len({m for g in found.groups for m in g.methods}) for found in (plain, grouped)}
    assert len(count) == 1


def test_properties_count_as_calls_and_changes_in_place_as_writes():
    text = (
        "class W:\n"
        "    # ===== A =====\n"
        "    @property\n    def p(self): ...\n"
        "    def a(self):\n        return self.tasks\n"
        "    # ===== B =====\n"
        "    def b(self):\n        self.tasks.append(self.p)\n"
    )
    found = take_inventory("w.py", text.encode()).coupling
    pair = found.pair("B", "A")
    assert pair is not None and (pair.called, pair.written_for) == (("p",), ("tasks",))
