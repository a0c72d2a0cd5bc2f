"""A recipe with mistakes is refused with all of them at once."""

from __future__ import annotations

import re

import pytest

from migration.errors import MigrationError
from migration.recipe import RewriteSpec, SnapshotSpec, module_name, parse_recipe
from migration.slices import load_recipe

GOOD = """
schema = 1
name = "cache"
[source]
file = "app/worker.py"
class = "Worker"
section = "Cache"
[target]
file = "app/parts/cache.py"
class = "CacheManager"
[[handles]]
name = "pools"
protocol = "PoolState"
doc = "Pools."
attributes = ["pool"]
[[handles]]
name = "worker"
protocol = "WorkerView"
doc = "The rest."
rest = true
"""


def test_attributes_go_to_the_handle_that_lists_them():
    recipe = parse_recipe(GOOD, "cache.toml")
    assert recipe.handle_for("pool").name == "pools"
    assert recipe.handle_for("anything").name == "worker"
    assert (recipe.source_module, recipe.target_module) == ("app.worker", "app.parts.cache")


def test_a_recipe_without_a_rest_gets_the_host():
    recipe = parse_recipe(GOOD.replace("rest = true", "rest = false"), "cache.toml")
    assert (recipe.host.name, recipe.host.protocol) == ("host", "WorkerHost")
    assert recipe.handle_for(None) is recipe.host


def test_module_of_a_package_file():
    assert module_name("a/b/__init__.py") == "a.b"


def test_the_shipped_slices_are_valid():
    assert load_recipe("kv").handler_class == "KVCacheManager"


@pytest.mark.parametrize(
    ("old", "new", "problems"),
    [
        ("schema = 1", "schema = 2", ["this version reads schema 1, not 2"]),
        ('name = "cache"', "name = 3", ["name: must be str, is 3"]),
        ("section =", "sektion =", ["sektion: unknown entry, did you mean section?"]),
        ("[target]", "[goal]", ["goal: unknown entry", "target: missing"]),
        (
            'file = "app/worker.py"',
            'file = "/app/worker.py"',
            ["source.file: '/app/worker.py' must be a rel"],
        ),
        ("app/parts/cache.py", "app/../cache.py", ["target.file"]),
        ('class = "Worker"', 'class = "Work er"', ["source.class: 'Work er' is not a Python name"]),
        ('attributes = ["pool"]', "rest = true", ["only one may have `rest = true`"]),
        ('section = "Cache"', "", ["either `section` (a banner) or `methods` (names) must be given"]),
        ('section = "Cache"', 'section = "Cache"\nmethods = ["a"]', ["either `section`"]),
        ('class = "CacheManager"', 'class = "CacheManager"\nsiblings = "both"', ["target.siblings"]),
        ("rest = true", 'rest = "yes"', ["rest: must be bool, is 'yes'"]),
        ("rest = true", 'rest = true\nattributes = ["pool"]', ["pool is listed by pools and worker"]),
        ("WorkerView", "PoolState", ["protocol PoolState is used twice"]),
        ("WorkerView", "CacheManager", ["target.class: also the name of a protocol"]),
        ('["pool"]', "[1]", ["attributes: must be a list of strings"]),
        ("[target]", "[gate]\ncallbacks = 'on_result'\n[target]", ["gate.callbacks: must be list"]),
        (
            "[target]",
            "[gate]\ncallbacks = ['self.on']\n[target]",
            ["gate.callbacks: 'self.on' is not a Python"],
        ),
        ("[target]", "[gate.parts]\nstats = ['a']\n[target]", ["gate.parts.stats: must be capitals"]),
        ("[target]", "[gate.parts]\nSTATS = 'a'\n[target]", ["gate.parts.STATS: must be a list of methods"]),
        ("[target]", "[gate.parts]\nSTATS = []\n[target]", ["gate.parts.STATS: must be a list of methods"]),
        ("[target]", "[gate.parts]\nA = ['f']\nB = ['f']\n[target]", ["gate.parts.B: f is in A already"]),
        ("[source]", "[source", ["line 4"]),
    ],
)
def test_every_mistake_is_reported(old: str, new: str, problems: list[str]):
    assert old in GOOD
    with pytest.raises(MigrationError) as error:
        parse_recipe(GOOD.replace(old, new, 1), "cache.toml")
    assert error.value.code == "MG401" and str(error.value).startswith("cache.toml: ")
    for problem in problems:
        assert re.search(re.escape(problem), str(error.value))


DECLARED = """
[[handles]]
name = "view"
protocol = "HostView"
doc = "A view."
expressions = [
    "self.engine.view",  # a "string" in a comment ]
]
[[rewrites]]
from = "self._hold"
to = "self.view.hold"
"""


def test_what_is_declared_about_expressions_is_read():
    recipe = parse_recipe(GOOD + DECLARED, "cache.toml")
    assert recipe.handles[2].expressions == ("self.engine.view",) and not recipe.handles[2].is_worker
    assert recipe.rewrites == (RewriteSpec("self._hold", "self.view.hold"),)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "self.engine.view",
            "self.engine.view()",
            "line 26: handles[2].expressions: 'self.engine.view()' must",
        ),
        ("self.engine.view", "engine.view", "line 26: handles[2].expressions: 'engine.view' must be a chain"),
        ("self.engine.view", "self.engine.", "is not a Python expression"),
        ("expressions =", "rest = true\nexpressions =", "only one may have `rest = true`"),
        ('doc = "A view."', 'doc = "A view."\nattributes = ["x"]', "with `expressions` another object"),
        (
            'doc = "A view."',
            'doc = "A view."\nadapter = "x.y"',
            "line 26: handles[2].adapter: 'x.y' must be `pack",
        ),
        ("self._hold", "self._hold(", "line 30: rewrites[0].from: 'self._hold(' is not a Python expression"),
        ("self._hold", "other._hold", "line 30: rewrites[0].from: 'other._hold' does not mention self"),
        (
            "self.view.hold",
            "self.veiw.hold",
            "line 31: rewrites[0].to: no handle is called veiw, did you mean view?",
        ),
        ("self.view.hold", "self.view", "line 31: rewrites[0].to: it must name a member of the handle"),
        ("self.view.hold", "self.view.hold()", "line 31: rewrites[0].to: 'self.view.hold()' must be a chain"),
        ("self.view.hold", "self.view.__hold", "private name"),
        ("self._hold", "self.engine", "line 30: rewrites[0].from: it overlaps with the handle expression"),
        (
            "[[rewrites]]",
            '[[rewrites]]\nfrom = "self._hold(1)"\nto = "self.view.x"\n[[rewrites]]',
            "overlaps with",
        ),
        (
            "to =",
            "too =",
            "rewrites[0].to: missing; line 31: rewrites[0].too: unknown entry, did you mean to?",
        ),
    ],
)
def test_mistakes_in_what_is_declared_have_their_line(old: str, new: str, problem: str):
    text = GOOD + DECLARED
    assert old in DECLARED
    with pytest.raises(MigrationError) as error:
        parse_recipe(GOOD + DECLARED.replace(old, new, 1), "cache.toml")
    assert problem in str(error.value), text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("class HostView(Protocol):\n  def f(self): ...\n", ""),
        ("from a import B\nclass HostView(Protocol):\n  'x'\n  b: B\n", ""),
        ("class Other(Protocol):\n  x: int\n", "it must hold the class HostView alone, it holds Other"),
        ("x = 1\n", "line 1 of it is neither an import nor a class"),
        ("class HostView(Protocol:\n", "line 1 of it is not Python"),
        ("class HostView(Base):\n  x: int\n", "HostView must have the one base Protocol"),
        ("@final\nclass HostView(Protocol):\n  x: int\n", "line 1 of it: a decorator"),
        ("class HostView(Protocol):\n  x: int = 1\n", "line 2 of it: a member has a value"),
        ("class HostView(Protocol):\n  x = 1\n", "line 2 of it is no member of a Protocol"),
        (
            "class HostView(Protocol):\n  def f(self, n=SIZE): ...\n",
            "line 2 of it: a default must be a literal",
        ),
        (
            "class HostView(Protocol):\n  @cache\n  def f(self): ...\n",
            "line 2 of it: a decorator other than prop",
        ),
    ],
)
def test_a_given_protocol_must_be_able_to_stand_in_the_handler_module(text: str, problem: str):
    given = DECLARED.replace('doc = "A view."', f'doc = "A view."\nprotocol_text = """\n{text}"""')
    if not problem:
        assert parse_recipe(GOOD + given, "cache.toml").handles[2].protocol_text == text.strip()
        return
    with pytest.raises(MigrationError) as error:
        parse_recipe(GOOD + given, "cache.toml")
    assert f"line 26: handles[2].protocol_text: {problem}" in str(error.value)


def test_a_protocol_is_given_once_and_under_its_name():
    both = (
        'doc = "A view."\nprotocol_from = "app.views:View"\nprotocol_text = "class HostView(Protocol): ..."'
    )
    with pytest.raises(MigrationError) as error:
        parse_recipe(GOOD + DECLARED.replace('doc = "A view."', both), "cache.toml")
    assert "either `protocol_text` or `protocol_from`" in str(error.value)
    assert "line 26: handles[2].protocol_from: it names View, `protocol` says HostView" in str(error.value)


SNAPSHOT = '[snapshot]\nname = "config"\nclass = "Config"\nfields = ["args.limit", "size"]\n'


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"config"', '"pools"', "line 22: snapshot.name: a handle is called pools too"),
        ('"Config"', '"PoolState"', "line 23: snapshot.class: PoolState is the name of another class"),
        (
            '"size"',
            '"args.limit.size", "size"',
            "line 24: snapshot.fields: args.limit.size and size would both be size",
        ),
        ('"size"', '"size()"', "line 24: snapshot.fields: 'self.size()' must be a chain"),
        ('"size"', '"__size"', "line 24: snapshot.fields: __size is private to the worker"),
        ('["args.limit", "size"]', "[]", "line 24: snapshot.fields: it has no fields"),
        ("fields", "feilds", "line 24: snapshot.feilds: unknown entry, did you mean fields?"),
    ],
)
def test_mistakes_in_a_snapshot_have_their_line(old: str, new: str, problem: str):
    assert parse_recipe(GOOD + SNAPSHOT, "x").snapshot == SnapshotSpec(
        "config", "Config", ("args.limit", "size")
    )
    with pytest.raises(MigrationError) as error:
        parse_recipe(GOOD + SNAPSHOT.replace(old, new, 1), "cache.toml")
    assert problem in str(error.value)


ADAPTER = """
[[adapters]]
handle = "view"
name = "ViewBackend"
file = "app/backends/view.py"
wraps = "app.views:View"
[adapters.members]
free = "left"
take = { name = "allocate", parameters = { n = "count" } }
"""


def test_an_adapter_that_is_written_is_the_adapter_of_its_handle():
    recipe = parse_recipe(GOOD + DECLARED + ADAPTER, "x")
    assert recipe.handles[2].adapter == "app.backends.view:ViewBackend"
    assert recipe.adapters[0].members == (("free", "left", ()), ("take", "allocate", (("n", "count"),)))
    assert recipe.generated == ("app/backends/view.py",)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"view"', '"veiw"', "line 34: adapters[0].handle: no handle is called veiw, did you mean view?"),
        (
            '"view"',
            '"pools"',
            "line 34: adapters[0].handle: pools has no `expressions`: there is nothing to wrap",
        ),
        ('"ViewBackend"', '"View Backend"', "line 35: adapters[0].name: 'View Backend' is not a Python name"),
        ("app/backends/view.py", "app/worker.py", "line 36: adapters[0].file: app/worker.py is taken"),
        (
            "app.views:View",
            "app.views",
            "line 37: adapters[0].wraps: 'app.views' must be `package.module:Name`",
        ),
        ('"left"', "3", "line 39: adapters[0].members.free: must be a name, or a table"),
        (
            "parameters =",
            "paramters =",
            "line 40: adapters[0].members.take.paramters: unknown entry, did you mean par",
        ),
        ('{ n = "count" }', '"count"', "line 40: adapters[0].members.take.parameters: must be a table"),
    ],
)
def test_mistakes_in_an_adapter_have_their_line(old: str, new: str, problem: str):
    assert old in ADAPTER
    with pytest.raises(MigrationError) as error:
        parse_recipe(GOOD + DECLARED + ADAPTER.replace(old, new, 1), "cache.toml")
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'apply = ["allways"]',
            "line 22: hasattr.apply: must be a list of 'always' and 'never', has 'allways', did you",
        ),
        (
            'attributes = { x = "optonal" }',
            "line 22: hasattr.attributes.x: must be 'constant', 'optional' or 'capability', is 'optonal', did you "
            "mean optional?",
        ),
        (
            'attributes = { x = "optional" }\ndeclare = { xx = { after = "y" } }',
            "line 23: hasattr.declare.xx: `hasattr.attributes` does not say that it is 'optional', did you mean x?",
        ),
        (
            'attributes = { x = "optional" }\ndeclare = { x = { after = 1 } }',
            'line 23: hasattr.declare.x: must be a table, { after = "attribute" }',
        ),
        (
            'attributes = { x = "optional" }\ndeclare = { x = { after = "y", aftr = 1 } }',
            "line 23: hasattr.declare.x.aftr: unknown entry, did you mean after?",
        ),
        (
            'attributes = { x = "optional" }\ndeclare = { x = { after = "self.y" } }',
            "line 23: hasattr.declare.x.after: 'self.y' is not a Python name",
        ),
        (
            'apply = ["never"]\n[hasattr.accept]\n"W.f sets: it" = " "',
            "line 24: hasattr.accept.W.f sets: it: must be the reason why nothing comes of it",
        ),
        (
            'attributes = { drain = "capability", _drain = "capability" }',
            "line 22: hasattr.attributes._drain: its Protocol HasDrain is that of drain too",
        ),
        ("apply = []", "line 21: hasattr: it must say `apply` or `attributes`"),
        ('aply = ["always"]', "line 22: hasattr.aply: unknown entry, did you mean apply?"),
    ],
)
def test_mistakes_about_hasattr_have_their_line(text: str, problem: str):
    with pytest.raises(MigrationError) as error:
        parse_recipe(f"{GOOD}[hasattr]\n{text}\n", "cache.toml")
    assert problem in str(error.value)
