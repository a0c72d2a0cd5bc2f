"""A recipe that was planned on certain bodies moves those bodies, or nothing."""

from __future__ import annotations

import ast
import dataclasses
import json
import subprocess

import pytest

from migration.code.source import Source
from migration.code.structure import outline
from migration.errors import MigrationError
from migration.move.cut import CutPlan, plan_cut
from migration.move.planned import body_hash, planned_bodies
from migration.recipe import Recipe, parse_recipe

from .interpreters import INTERPRETERS
from .support import RECIPE, codes, planned, tree_of, worker_source

METHODS = """
def take(self, count=1):
    # Comments and layout are not what was planned on.
    return [self.name] * count

@property
def size(self):
    return len(self.name)

@size.setter
def size(self, value):
    self.name = self.name[:value]
"""
NAMED = dataclasses.replace(RECIPE, section="", methods=("take", "size"))


def pinned(recipe: Recipe) -> Recipe:
    shape = outline(Source("app/worker.py", worker_source(METHODS)), "Worker")
    return dataclasses.replace(recipe, planned=planned_bodies(shape.methods[1:]))


def test_hashes_are_those_of_the_proof_and_accessors_have_their_own():
    recipe = pinned(RECIPE)
    plan = planned(worker_source(METHODS), recipe)
    assert list(recipe.planned) == ["take", "size", "size.setter"]
    assert list(recipe.planned.values()) == [detail.body for detail in plan.proof.details]


def test_layout_and_comments_may_change():
    edited = METHODS.replace("# Comments and layout are not", "# They are not").replace(
        "count=1", "count = 1"
    )
    assert isinstance(plan_cut(pinned(RECIPE), tree_of(worker_source(edited))), CutPlan)


@pytest.mark.parametrize("recipe", [RECIPE, NAMED])
@pytest.mark.parametrize(
    ("old", "new", "where"),
    [("* count", "* (count + 1)", "take"), ("count=1", "count=2", "take"), ("[:value]", "[value:]", "size")],
)
def test_a_changed_body_is_refused(recipe: Recipe, old: str, new: str, where: str):
    outcome = plan_cut(pinned(recipe), tree_of(worker_source(METHODS.replace(old, new))))
    assert codes(outcome) == ["MG109"] and outcome.refusals[0].where == where
    assert isinstance(plan_cut(recipe, tree_of(worker_source(METHODS.replace(old, new)))), CutPlan)


def test_what_a_banner_covers_may_not_grow_or_shrink():
    grown = worker_source(METHODS + "\ndef more(self):\n    pass\n")
    assert codes(plan_cut(pinned(RECIPE), tree_of(grown))) == ["MG109"]
    assert isinstance(plan_cut(pinned(NAMED), tree_of(grown)), CutPlan)
    assert isinstance(plan_cut(dataclasses.replace(pinned(RECIPE), stays=("more",)), tree_of(grown)), CutPlan)
    shrunk = METHODS.partition("@size.setter")[0]
    for recipe in (RECIPE, NAMED):
        outcome = plan_cut(pinned(recipe), tree_of(worker_source(shrunk)))
        assert codes(outcome) == ["MG109"] and "size.setter" in outcome.refusals[0].message


def test_a_method_that_stays_need_not_be_what_it_was():
    edited = METHODS.replace("* count", "* 2")
    recipe = dataclasses.replace(pinned(RECIPE), stays=("take",))
    assert isinstance(plan_cut(recipe, tree_of(worker_source(edited))), CutPlan)


TOML = """
schema = 1
name = "cache"
[source]
file = "app/worker.py"
class = "Worker"
methods = ["take"]
[target]
file = "app/parts/cache.py"
class = "CacheManager"
[planned.bodies]
"take" = "{}"
"""


def test_the_table_is_read_and_checked():
    assert parse_recipe(TOML.format("a" * 64), "x.toml").planned == {"take": "a" * 64}
    assert parse_recipe(TOML.partition("[planned")[0], "x.toml").planned == {}
    for wrong in ("abc", "A" * 64, "g" * 64):
        with pytest.raises(MigrationError, match=r"planned\.bodies\.take: must be a SHA-256"):
            parse_recipe(TOML.format(wrong), "x.toml")
    with pytest.raises(MigrationError, match=r"planned\.body: unknown entry, did you mean bodies"):
        parse_recipe(TOML.format("a" * 64).replace("planned.bodies", "planned.body"), "x.toml")


MANY_KINDS = '''
def many(self, a, /, b=1, *c, d=(), **e):
    """Words."""
    x: int = 1
    u"old", b"bytes", 1.5, 2j, None, True, ..., f"{a!r:>{b}} {c}" "more"
    match a:
        case {"k": [1, *_], **rest}:
            pass
    async def inner(): return [i async for i in a if i]
    try:
        raise ValueError from None
    except* OSError as error:
        del x
    return lambda: (yield)
'''


@pytest.mark.parametrize("python", INTERPRETERS)
def test_every_python_finds_the_same_hash(python: str):
    script = (
        "import ast, json, sys\n"
        "from migration.move.planned import body_hash\n"
        "print(json.dumps(body_hash(ast.parse(sys.argv[1]).body[0])))"
    )
    run = subprocess.run([python, "-c", script, MANY_KINDS], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == body_hash(ast.parse(MANY_KINDS).body[0])


def test_none_and_nothing_are_told_apart():
    def hashed(text: str) -> str:
        return body_hash(ast.parse(text).body[0])

    assert hashed("def f(self): return None") != hashed("def f(self): return")
    assert hashed("def f(self): return u'a'") != hashed("def f(self): return b'a'")
