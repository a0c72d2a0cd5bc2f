"""The extractability score counts what has a proof, and says why the rest has none."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from migration.errors import MigrationError
from migration.survey import attempts
from migration.survey.score import Definition, Score, score_class
from migration.survey.score_report import print_score, score_json

from .support import DictTree, tree_of

WORKER = """
import warnings
from typing import overload

class Base:
    def close(self): ...

class Worker(Base):
    def __init__(self):
        self.items = []

    def __len__(self):
        return len(self.items)

    @property
    def first(self):
        return self.items[0]

    @first.setter
    def first(self, value):
        self.items[0] = value

    @overload
    def take(self, count: int) -> list: ...
    @overload
    def take(self, count: None) -> int: ...
    def take(self, count=None):
        return self.items[:count] if count else len(self.items)

    @staticmethod
    def double(value):
        return value * 2

    @classmethod
    def made(cls):
        return cls()

    if warnings:
        def warn(self):
            return len(self.items)

    def close(self):
        super().close()

    def register(self, registry):
        registry.append(self)

    def show(self):
        return f"{self.items=}"

    def caught(self):
        warnings.warn("late", stacklevel=3)
        return locals()

    def __secret(self):
        return self.__hidden
"""


def scored(text: str, **files: str) -> Score:
    return score_class(tree_of(text.encode(), **files), "app/worker.py")


@pytest.fixture(scope="module")
def score() -> Score:
    return scored(WORKER)


def outcomes(score: Score) -> dict[str, str]:
    return {f"{one.name} {one.kind}": one.outcome for one in score.definitions}


def test_every_definition_is_tried_whatever_its_kind(score: Score):
    assert outcomes(score) == {
        "__init__ special method": "named",
        "__len__ special method": "named",
        "first property": "named",
        "first accessor": "named",
        "take method": "named",
        "double static method": "named",
        "made class method": "host",
        "warn method": "named",
        "close method": "host",
        "register method": "host",
        "show method": "refused",
        "caught method": "refused",
        "__secret method": "named",
    }
    assert [one.name for one in score.definitions if one.conditional] == ["warn"]


def test_one_line_sums_it_up(score: Score):
    assert score.line == (
        "13 definitions: 11 movable (84 %), 3 of them through the host handle, 2 refused: MG011, MG012"
    )
    assert score.percent == 84


def test_reasons_and_rewrites_are_listed(score: Score):
    by_name = {one.name: one for one in score.definitions}
    assert [r.code for r in by_name["caught"].refusals] == ["MG011", "MG011"]
    assert {r.message.split()[0] for r in by_name["caught"].refusals} == {"stacklevel", "locals()"}
    assert dict(score.rewrites)["super() spelled out"] == 1
    assert dict(by_name["__secret"].rewrites)["private name spelled out"] == 1


def test_nothing_is_called_movable_without_a_proof(monkeypatch: pytest.MonkeyPatch):
    real = attempts.plan_cut

    def failing(recipe, tree):
        return real(recipe, tree) if "take" not in recipe.methods else refused(recipe)

    def refused(recipe):
        from migration.errors import Refusal
        from migration.move.cut import CutRefused

        return CutRefused(recipe, (Refusal("MG205", recipe.source_file, 0, "something differs"),))

    monkeypatch.setattr(attempts, "plan_cut", failing)
    score = scored(WORKER)
    assert [one.name for one in score.definitions if one.outcome == "refused"] == ["take", "show", "caught"]
    assert score.refusals == (("MG011", 1), ("MG012", 1), ("MG205", 1))


def test_a_reason_that_holds_for_the_whole_file_is_found_at_once(monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []
    real = attempts.plan_cut
    monkeypatch.setattr(attempts, "plan_cut", lambda *a: calls.append(1) or real(*a))
    methods = "".join(f"    def m{n}(self): return {n}\n" for n in range(40))
    # app.py beside app/: what is written into app/ would never be imported.
    score = score_class(
        DictTree({"app/worker.py": f"class Worker:\n{methods}".encode(), "app.py": b""}), "app/worker.py"
    )
    assert score.movable == 0 and dict(score.refusals) == {"MG104": 40}
    assert len(calls) <= 4


def test_two_that_cannot_go_together_each_move_alone():
    score = scored(
        "class Worker:\n"
        "    @property\n    def size(self): return self.n\n"
        "    @size.setter\n    def size(self, n): self.n = n\n"
        "    def size_setter(self, n): self.size = n\n"
    )
    assert score.percent == 100 and score.tried == 3


def test_an_accessor_is_refused_with_its_property():
    score = scored(
        "class Worker:\n"
        "    @property\n    def size(self): return vars()\n"
        "    @size.setter\n    def size(self, n): self.n = n\n"
    )
    assert [(one.kind, one.outcome) for one in score.definitions] == [
        ("property", "refused"),
        ("accessor", "refused"),
    ]
    assert all(one.refusals for one in score.definitions)


def test_each_of_two_definitions_is_refused_by_its_own_line():
    score = scored("class Worker:\n    def f(self): return 1\n    def f(self): return 2\n")
    assert [one.refusals[0].line for one in score.definitions] == [2, 3]


STUBBED = '''
from app.parts.cache import Cache

class Worker:
    def one(self):
        """Words."""
        return Cache.for_worker(self).one()

    async def two(self):
        return await Cache.for_worker(self).two()

    def three(self):
        return (yield from Cache.for_worker(self).three())

    def four(self):
        with Cache.for_worker(self).four() as value:
            yield value

    def like(self):
        Cache.for_worker(self)
        return self.for_worker(1)

    def own(self):
        return Cache(self).own()
'''


def test_what_has_moved_already_is_counted_apart():
    score = scored(STUBBED, app__parts__cache="class Cache: ...\n")
    assert {one.name for one in score.definitions if one.outcome == "stub"} == {"one", "two", "three", "four"}
    assert score.line.startswith("2 definitions: 2 movable (100 %)")
    assert score.line.endswith("0 refused; 4 moved already")


def test_names_of_the_attempt_never_clash_with_the_class():
    score = scored(
        "from app.other import WorkerMethods, WorkerNamed, WorkerHost\n"
        "class Worker:\n"
        "    def _named(self, WorkerMethods2=None): return self\n"
        "    def _host(self): return self.for_workers\n",
        app__other="WorkerMethods = WorkerNamed = WorkerHost = int\n",
        app__worker_methods="",
    )
    assert score.percent == 100


def test_a_class_without_definitions_has_nothing_to_move():
    assert scored("class Worker:\n    x = 1\n").line == "0 definitions: 0 movable (100 %), 0 refused"
    assert Score("a.py", "A", tuple([_definition("refused")] + 200 * [_definition("named")])).percent == 99


def _definition(outcome) -> Definition:
    return Definition("f", "method", False, 1, 1, outcome, (), ())


def test_a_file_or_class_that_is_not_there_is_an_error():
    with pytest.raises(MigrationError, match=r"app/other\.py does not exist"):
        score_class(tree_of(b""), "app/other.py")
    with pytest.raises(MigrationError, match="no module-level class"):
        score_class(tree_of(b""), "app/worker.py")


def test_table_and_json_say_the_same(score: Score):
    out = io.StringIO()
    print_score(score, Console(file=out, width=180))
    data = json.loads(json.dumps(score_json(score)))
    text = out.getvalue()
    assert data["line"] in text and data["movable"] == 11 and data["class"] == "Worker"
    assert [one["name"] for one in data["definitions"]] == [one.name for one in score.definitions]
    assert re.search(r"show\s.*MG012.*write the label out", text)
    assert re.search(r"property +│ +1 +│ +1 ", text)


def test_each_attempt_is_told(score: Score):
    told: list[str] = []
    score_class(tree_of(WORKER.encode()), "app/worker.py", progress=told.append)
    assert told == ["12 methods at once", "10 methods at once"]
