"""A recipe that is written down is read back as the same recipe."""

from __future__ import annotations

import dataclasses
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migration.recipe import (
    AdapterEntry,
    HandleSpec,
    HasattrSpec,
    Recipe,
    RewriteSpec,
    SnapshotSpec,
    parse_recipe,
)
from migration.recipe_text import Comments, recipe_text
from migration.slices import load_recipe

# A lone surrogate is no text: no file in UTF-8 can hold one.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
NAME = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
NAMES = st.lists(NAME, max_size=5, unique=True).map(tuple)
METHODS = st.lists(TEXT.filter(bool), min_size=1, max_size=5, unique=True).map(tuple)
CHAINS = st.sampled_from(((), ("self.pool",), ("self.a.pool", "self.b")))
ADAPTER = st.sampled_from(("", "app.backends:Ranks"))
GIVEN = st.sampled_from((("", ""), ("", "app.pools:Pool"), ("class Pool(Protocol):\n    size: int", "")))
REWRITES = st.sampled_from(
    ((), (RewriteSpec("hasattr(self, 'x')", "self.pool.there"), RewriteSpec("self.go", "self.host.go")))
)
DIGEST = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    attributes = draw(NAMES)
    handles = (
        HandleSpec("state", "State", draw(TEXT), attributes, False),
        HandleSpec("pool", "Pool", draw(TEXT), (), False, draw(CHAINS), draw(ADAPTER), *draw(GIVEN)),
        HandleSpec("host", "Host", draw(TEXT), (), True, request=draw(st.booleans())),
    )
    section = draw(st.one_of(st.just(""), TEXT))
    return Recipe(
        name=draw(NAME),
        source_file=draw(NAME) + ".py",
        source_class="Worker",
        section=section,
        target_file="parts/" + draw(NAME) + ".py",
        handler_class="Handler",
        handles=handles,
        methods=() if section else draw(METHODS),
        stays=draw(NAMES),
        late_bound=draw(NAMES),
        decorators=draw(NAMES),
        siblings=draw(st.sampled_from(("worker", "handler"))),
        docstrings=draw(st.booleans()),
        import_root=draw(st.sampled_from(("", "src"))),
        gate_prefix=draw(st.sampled_from(("", "KV"))),
        effects=tuple(draw(st.dictionaries(TEXT, st.sampled_from(("pure", "skip: x")), max_size=2)).items()),
        taped=draw(NAMES),
        callbacks=draw(NAMES),
        shared=draw(NAMES),
        budget=draw(st.integers(0, 900)),
        planned=draw(st.dictionaries(TEXT, DIGEST, max_size=2)),
        rewrites=draw(REWRITES),
        base=draw(st.sampled_from(("", "app.planner:Planner"))),
        route=draw(st.sampled_from(("", "app.native:Native"))),
        human=draw(st.sampled_from(((), ("app/native.py", "docs/cache.md")))),
    )


@settings(max_examples=150, derandomize=True, deadline=None)
@given(recipes())
def test_round_trip(recipe: Recipe):
    assert parse_recipe(recipe_text(recipe), "x.toml") == recipe


def test_every_entry_is_written():
    drawn = {
        "methods": ("a",),
        "stays": ("b",),
        "late_bound": ("c",),
        "decorators": ("d",),
        "taped": ("e",),
        "callbacks": ("on_result",),
        "shared": ("a.b.C",),
        "parts": (("STATS", ("f", "g")), ("LOADS", ("h",))),
        "siblings": "handler",
        "docstrings": True,
        "import_root": "src",
        "gate_prefix": "P",
        "route": "app.native:Native",
        "base": "app.planner:Planner",
        "human": ("app/native.py", "docs/cache.md"),
        "budget": 7,
        "effects": (("f", "pure"),),
        "rewrites": (RewriteSpec("self.go", "self.req.gone"),),
        "planned": {"a": "0" * 64},
        "section": "",
        "snapshot": SnapshotSpec("fixed", "Fixed", ("args.limit", "size")),
        "types": "types.json",
        "hasattr": HasattrSpec(
            ("always",), ("x", "y z"), ("o", "é"), ("drain",), (("é", "o"),), (("W has x", 'it "is"'),)
        ),
        "fakes": "tests/fakes.py",
        "adapters": (
            AdapterEntry(
                "pool", "P", "app/p.py", "app.pool:Pool", (("a", "b", ()), ("c", "c", (("n", "m"),)))
            ),
            AdapterEntry("view", "V", "app/v.py", "app.view:View"),
        ),
    }
    pool = HandleSpec("pool", "Pool", "", (), False, ("self.pool",), "app.p:P")
    view = HandleSpec("view", "View", "", (), False, ("self.view",), "app.v:V")
    kv = load_recipe("kv")
    assert kv.handles[-1].request
    recipe = dataclasses.replace(kv, handles=(pool, view, *kv.handles), **drawn)
    assert parse_recipe(recipe_text(recipe), "x.toml") == recipe
    defaults = {f.name for f in dataclasses.fields(Recipe) if f.default is not dataclasses.MISSING}
    assert defaults | {"planned", "section"} == set(drawn) | {"partial"}, (
        "a new entry needs a place in the text"
    )
    spelled = {"name", "protocol", "doc", "attributes", "rest", "expressions", "adapter"}
    spelled |= {"protocol_text", "protocol_from", "request"}
    assert spelled == {f.name for f in dataclasses.fields(HandleSpec)}, (
        "a new entry needs a place in the text"
    )


@pytest.mark.parametrize(
    "text", ['a "quoted" \\ name', "tab\t bell\x07 del\x7f", "line\u2028end", "\U000e0001", "é ="]
)
def test_any_text_is_a_string(text: str):
    recipe = dataclasses.replace(load_recipe("kv"), methods=(), section=text)
    assert parse_recipe(recipe_text(recipe), "x.toml").section == text


def test_comments_stand_beside_what_they_are_about():
    recipe = dataclasses.replace(load_recipe("kv"), section="", methods=("a", "b"), stays=("b",))
    comments = Comments(("First.", "", "Second\x07\n."), {"a": "3 lines"}, {"b": "MG011: uses locals()"})
    text = recipe_text(recipe, comments)
    assert text.startswith("# First.\n#\n# Second  .\nschema = 1\n")
    assert '    "a",  # 3 lines\n    "b",\n' in text and '"b",  # MG011: uses locals()' in text
    assert parse_recipe(text, "x.toml") == recipe and tomllib.loads(text)["schema"] == 1
