"""The hasattr prover: what it claims holds on every run, and what it rewrites means the same."""

from __future__ import annotations

import random
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migration.code.source import Edit, Source, apply_edits
from migration.code.structure import outline
from migration.presence.accepting import accept, obstacle_name
from migration.presence.findings import HasattrFinding
from migration.presence.prover import prove_hasattr
from pipeline.copies import tree_before

from .random_class import Run, Writer
from .support import DictTree

ROOT = Path(__file__).resolve().parents[2]
EVERY_REWRITE = frozenset(("constant", "attribute", "default", "optional", "declared"))


def prove(
    text: str, name: str = "W", files: dict[str, str] | None = None, **more: str
) -> list[HasattrFinding]:
    """Findings for class `name` of app/w.py; other files by path, or by keyword with `__` for `/`."""
    data = textwrap.dedent(text).encode()
    others = {**(files or {}), **{f"{path.replace('__', '/')}.py": other for path, other in more.items()}}
    tree = {"app/w.py": data, **{path: textwrap.dedent(other).encode() for path, other in others.items()}}
    source = Source("app/w.py", data)
    return list(prove_hasattr(source, outline(source, name), DictTree(tree)))


def only(text: str, name: str = "W", files: dict[str, str] | None = None, **more: str) -> HasattrFinding:
    (finding,) = prove(text, name, files, **more)
    return finding


def worker(init: str, use: str = "return hasattr(self, 'x')", more: str = "", head: str = "") -> str:
    """A class with that `__init__` body and a method `use`; `more` is further class body."""
    body = [
        "class W:",
        "    def __init__(self, n=0):",
        textwrap.indent(textwrap.dedent(init).strip("\n"), " " * 8),
        "    def use(self):",
        textwrap.indent(textwrap.dedent(use).strip("\n"), " " * 8),
        textwrap.indent(textwrap.dedent(more).strip("\n"), " " * 4),
    ]
    return textwrap.dedent(head) + "\n".join(body) + "\n"


# Always: __init__ makes it whichever way it takes


@pytest.mark.parametrize(
    ("init", "verdict"),
    [
        ("self.x = 1", "always"),
        ("self.x: int = 1", "always"),
        ("self.x: int", "never"),
        ("(self.y, [self.x, *_]) = 1, (2, 3)", "always"),
        ("setattr(self, 'x', 1)", "always"),
        ("if n:\n    self.x = 1", "depends"),
        ("if n:\n    self.x = 1\nelse:\n    self.x = 2", "always"),
        ("if n:\n    return\nself.x = 1", "depends"),
        ("if n:\n    raise ValueError\nself.x = 1", "always"),
        ("for _ in range(n):\n    self.x = 1", "depends"),
        ("for self.x in range(n):\n    pass", "depends"),
        ("while True:\n    self.x = 1\n    if n:\n        break", "always"),
        ("while True:\n    if n:\n        break\n    self.x = 1", "depends"),
        ("try:\n    self.x = n\nexcept ValueError:\n    pass", "depends"),
        ("try:\n    self.x = n\nexcept ValueError:\n    raise", "always"),
        ("try:\n    pass\nfinally:\n    self.x = 1", "always"),
        ("try:\n    self.x = 1\nfinally:\n    pass", "always"),
        ("try:\n    return\nfinally:\n    self.x = 1", "depends"),
        ("with open(n) as f:\n    self.x = f", "always"),
        ("with n as f:\n    self.x = f", "depends"),
        ("with open(n) as self.x:\n    pass", "always"),
        ("match n:\n    case 1:\n        self.x = 1\n    case _:\n        self.x = 2", "always"),
        ("match n:\n    case 1:\n        self.x = 1\n    case 2:\n        self.x = 2", "depends"),
        ("n and setattr(self, 'x', 1)", "depends"),
        ("[setattr(self, 'x', i) for i in range(n)]", "depends"),
        ("def make():\n    self.x = 1", "depends"),
        ("assert setattr(self, 'x', 1) is None", "depends"),
        ("self.x = None", "always"),
    ],
)
def test_an_attribute_is_always_there_only_if_every_way_through_init_makes_it(init: str, verdict: str):
    assert only(worker(init)).verdict == verdict


def test_an_annotation_alone_makes_nothing_and_a_class_value_is_enough():
    assert only(worker("pass", more="x: int")).verdict == "never"
    assert only(worker("pass", more="x: int = 1")).verdict == "always"
    assert only(worker("pass", more="def x(self): ...")).verdict == "always"


def test_a_none_is_there_all_the_same():
    finding = only(worker("self.x = None"))
    assert (finding.verdict, finding.rewrite.text) == ("always", "True")
    assert [(site.kind, site.value) for site in finding.sites] == [("init", "None")]


def test_a_property_may_hide_what_it_is_made_of():
    finding = only(worker("pass", more="@property\ndef x(self):\n    return self._x"))
    assert finding.verdict == "depends" and "property" in finding.reason


def test_helpers_that_init_calls_count_unless_they_can_be_replaced():
    setup = "def setup(self):\n    self.x = 1"
    assert only(worker("self.setup()", more=setup)).verdict == "always"
    assert only(worker("if n:\n    self.setup()", more=setup)).verdict == "depends"
    decorated = only(worker("self.setup()", more=f"@n\n{setup}"))
    assert (decorated.verdict, decorated.assumed) == ("depends", None)
    maybe = "if FLAG:\n" + textwrap.indent(setup, "    ")
    assert only(worker("self.setup()", more=maybe)).verdict == "depends"
    assert only(
        worker("self.setup()", more=setup.replace("    self.x = 1", "    yield\n    self.x = 1"))
    ).verdict == ("depends")
    assert only(worker("self.setup()", more=f"async {setup}")).verdict == "depends"
    assert only(worker("self.setup = n\nself.setup()", more=setup)).verdict == "depends"
    text = worker("self.setup()", more=setup) + "class D(W):\n    def setup(self):\n        pass\n"
    assert only(text).verdict == "depends"


def test_a_helper_may_be_replaced_under_a_computed_name_or_from_another_file():
    setup = "def setup(self):\n    self.x = 1"
    computed = f"{setup}\ndef put(self, k):\n    setattr(self, k, 1)"
    finding = only(worker("self.setup()", more=computed))
    assert (
        finding.verdict == "depends" and finding.assumed is not None and finding.assumed.verdict == "always"
    )
    assert only(worker("self.x = 1", more=computed)).verdict == "always"
    for patch in ("W.setup = print", "mock.patch.object(W, 'setup')", "mock.patch('app.w.W.setup')"):
        other = f"from app.w import W\n{patch}\n"
        assert only(worker("self.setup()", more=setup), app__d=other).verdict == "depends"
    assert (
        only(worker("self.setup()", more=setup), app__d="def go(v):\n    v.setup = 1\n").verdict == "always"
    )


def test_a_long_chain_of_helpers_is_cut_short():
    chain = "\n".join(f"def s{i}(self):\n    self.s{i + 1}()" for i in range(400))
    finding = only(worker("self.s0()", more=f"{chain}\ndef s400(self):\n    self.x = 1"))
    assert finding.verdict == "depends"


def test_a_helper_that_calls_itself_is_not_believed():
    helper = "def setup(self):\n    if self.x:\n        return\n    self.setup()"
    assert only(worker("self.setup()", more=helper), "W").verdict in ("depends", "always")
    looping = "def setup(self):\n    self.setup()"
    assert only(worker("self.setup()", more=looping)).verdict == "never"


# The test may run before __init__ has come that far


@pytest.mark.parametrize(
    "init",
    [
        "self.use()\nself.x = 1",
        "self.other()\nself.x = 1",
        "n(self.use)\nself.x = 1",
        "n(lambda: self.use())\nself.x = 1",
        "self.x = self.use()",
        "self.prop\nself.x = 1",
    ],
)
def test_a_method_that_init_may_run_too_early_depends(init: str):
    more = "def other(self):\n    self.use()\n@property\ndef prop(self):\n    return self.use()"
    finding = only(worker(init, more=more))
    assert finding.verdict == "depends" and "before __init__" in finding.reason


def test_passing_self_on_too_early_is_an_obstacle_and_later_is_none():
    finding = only(worker("n(self)\nself.x = 1"))
    assert (
        finding.verdict == "depends" and finding.assumed is not None and finding.assumed.verdict == "always"
    )
    assert only(worker("self.x = 1\nn(self)")).verdict == "always"
    assert only(worker("type(self)\nisinstance(self, int)\nself.x = 1")).verdict == "always"


def test_a_finalizer_runs_on_objects_whose_init_has_failed():
    more = "def __del__(self):\n    if hasattr(self, 'x'):\n        self.use()"
    findings = prove(worker("n()\nself.x = 1", more=more))
    assert [f.verdict for f in findings] == ["depends", "depends"]


def test_a_base_class_may_call_an_override_before_the_attribute_exists():
    base = "class B:\n    def __init__(self):\n        self.start()\n    def start(self):\n        pass\n"
    early = worker("super().__init__()\nself.x = 1", head=base, more="def start(self):\n    self.use()")
    late = worker("self.x = 1\nsuper().__init__()", head=base, more="def start(self):\n    self.use()")
    assert only(early.replace("class W:", "class W(B):")).verdict == "depends"
    assert only(late.replace("class W:", "class W(B):")).verdict == "always"


def test_what_a_base_class_makes_counts():
    base = "class B:\n    def __init__(self):\n        self.x = 1\n"
    inherited = base + "class W(B):\n    def use(self):\n        return hasattr(self, 'x')\n"
    assert only(inherited).verdict == "always"
    own = worker("super().__init__()", head=base).replace("class W:", "class W(B):")
    assert only(own).verdict == "always"
    assert only(worker("pass", head=base).replace("class W:", "class W(B):")).verdict == "depends"


def test_a_descriptor_or_decorator_may_run_anything():
    assert only(worker("self.d\nself.x = 1", more="d = descriptor()")).verdict == "depends"
    assert only(worker("self.d()\nself.x = 1", more="@wrap\ndef d(self): ...")).verdict == "depends"


def test_a_new_that_ends_in_init_bypasses_nothing():
    more = "def __new__(cls, n=0):\n    return super().__new__(cls)"
    assert only(worker("self.x = 1", more=more)).verdict == "always"


# Deletion, reflection and everything that cannot be seen


def test_what_the_class_has_survives_a_deletion_from_the_object():
    assert only(worker("pass", more="x = 1\ndef f(self):\n    del self.x")).verdict == "always"
    assert only(worker("pass", more="x = 1\ndef f(self):\n    del type(self).x")).verdict == "depends"
    assert only(worker("pass", more="x = 1"), app__d="from app.w import W\ndel W.x\n").verdict == "depends"
    assert only(worker("pass", more="x = 1\ndel x")).verdict == "depends"


def test_a_deleted_attribute_depends_and_the_place_is_named():
    finding = only(worker("self.x = 1", more="def free(self):\n    del self.x"))
    assert finding.verdict == "depends" and "free, line 7" in finding.reason
    assert finding.sites[-1].kind == "delete" and finding.rewrite.kind == "refused"
    assert only(worker("self.x = 1", more="def free(self):\n    delattr(self, 'x')")).verdict == "depends"


@pytest.mark.parametrize(
    ("more", "obstacle"),
    [
        ("def f(self, k):\n    delattr(self, k)", "computed name"),
        ("def f(self, k):\n    self.__dict__.pop(k)", "computed name"),
        ("def f(self, k):\n    self.__dict__.clear()", "computed name"),
        ("def f(self, k):\n    k(vars(self))", "computed name"),
        ("def f(self, k):\n    self.__dict__ = k", "computed name"),
        ("def f(self, k):\n    self.__class__ = k", "changes the class"),
        ("def f(self, k):\n    exec(k)", "computed name"),
        ("def f(self, k):\n    w = self\n    del w.x", "deletes it from some object"),
        ("def __getattribute__(self, k):\n    ...", "__getattribute__"),
        ("def __setattr__(self, k, v):\n    ...", "__setattr__"),
        ("def __getstate__(self):\n    ...", "copies"),
        ("@classmethod\ndef f(cls):\n    return cls.__new__(cls)", "__new__"),
    ],
)
def test_what_may_take_the_attribute_away_unseen_stands_against_always(more: str, obstacle: str):
    finding = only(worker("self.x = 1", more=more))
    assert finding.verdict == "depends" and obstacle in finding.reason
    assert finding.assumed is not None and finding.assumed.verdict == "always"
    assert finding.rewrite.kind == "refused" and finding.assumed.rewrite.text == "True"


@pytest.mark.parametrize(
    "more",
    [
        "def f(self, k):\n    setattr(self, k, 1)",
        "def f(self, k):\n    self.__dict__.update(k)",
        "def f(self, k):\n    vars(self)['x'] = 1",
        "def f(self, k):\n    k(self)",
        "def f(self, k):\n    k(self.__dict__)",
        "def __getattr__(self, k):\n    return 1",
        "def f(self, k):\n    super().__setattr__(k, 1)",
    ],
)
def test_what_may_make_the_attribute_unseen_stands_against_never(more: str):
    assert only(worker("pass")).verdict == "never"
    finding = only(worker("pass", more=more))
    assert finding.verdict == "depends" and finding.assumed is not None and finding.assumed.verdict == "never"


def test_reading_the_attribute_dictionary_takes_nothing_away():
    more = "def f(self):\n    return dict(self.__dict__), {**vars(self)}, 'x' in self.__dict__, self.__dict__.get('x')"
    assert only(worker("self.x = 1", more=more)).verdict == "always"
    assert only(worker("pass", more=more)).verdict == "never"


def test_class_level_writes_under_any_name_stand_against_never():
    for more in (
        "def f(self):\n    type(self).x = 1",
        "@classmethod\ndef f(cls):\n    cls.x = 1",
        "def f(self):\n    w = self\n    w.x = 1",
        "def f(self):\n    W.x = 1",
    ):
        assert only(worker("pass", more=more)).verdict == "depends"


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("from lib import B\n", "class W(B):"),
        ("from lib import d\n", "@d\nclass W:"),
        ("from lib import M\n", "class W(metaclass=M):"),
    ],
)
def test_what_makes_the_class_out_of_sight_stands_against_both(head: str, line: str):
    for init, likely in (("self.x = 1", "always"), ("pass", "never")):
        finding = only(worker(init, head=head).replace("class W:", line))
        assert finding.verdict == "depends"
        assert finding.assumed is not None and finding.assumed.verdict == likely


def test_a_class_that_gives_getattr_another_meaning_is_left_alone():
    finding = only("from lib import getattr\n" + worker("self.x = 1", "return getattr(self, 'x')"))
    assert (finding.verdict, finding.rewrite.kind) == ("depends", "refused")


def test_mangled_and_special_names_are_left_alone():
    assert only(worker("self.__x = 1", "return hasattr(self, '__x')")).verdict == "depends"
    assert only(worker("self.__x = 1", "return hasattr(self, '_W__x')")).verdict == "depends"
    assert only(worker("pass", "return hasattr(self, '__len__')")).verdict == "depends"


def test_a_rebound_self_proves_nothing():
    assert only(worker("self.x = 1", "self = None\nreturn hasattr(self, 'x')")).verdict == "depends"
    assert only(worker("self = n\nself.x = 1")).verdict == "depends"


# Within one method


@pytest.mark.parametrize(
    ("use", "verdicts"),
    [
        ("self.x = 1\nhasattr(self, 'x')", ["always"]),
        ("self.x\nhasattr(self, 'x')", ["always"]),
        ("getattr(self, 'x')\nhasattr(self, 'x')", ["depends", "always"]),
        ("if not hasattr(self, 'x'):\n    self.x = []\nhasattr(self, 'x')", ["depends", "always"]),
        ("if hasattr(self, 'x'):\n    hasattr(self, 'x')", ["depends", "always"]),
        ("if hasattr(self, 'x'):\n    pass\nhasattr(self, 'x')", ["depends", "depends"]),
        ("if getattr(self, 'x', None):\n    hasattr(self, 'x')", ["depends", "always"]),
        ("if getattr(self, 'x', 1):\n    hasattr(self, 'x')", ["depends", "depends"]),
        ("if getattr(self, 'x', None) is None:\n    return\nhasattr(self, 'x')", ["depends", "always"]),
        ("if 'x' not in self.__dict__:\n    return\nhasattr(self, 'x')", ["always"]),
        ("hasattr(self, 'x') and hasattr(self, 'x')", ["depends", "always"]),
        ("hasattr(self, 'x') or hasattr(self, 'x')", ["depends", "depends"]),
        ("f = lambda: self.x\nhasattr(self, 'x')", ["depends"]),
        ("self.x = 1\nreturn lambda: hasattr(self, 'x')", ["always"]),
        ("try:\n    self.x\nexcept AttributeError:\n    hasattr(self, 'x')", ["depends"]),
        ("try:\n    self.x = self.y\nfinally:\n    hasattr(self, 'x')", ["depends"]),
        ("self.y and self.x\nhasattr(self, 'x')", ["depends"]),
        ("0 < self.y < self.x\nhasattr(self, 'x')", ["depends"]),
        ("{1: hasattr(self, 'x'), self.x: 2}", ["depends"]),
        ("return\nhasattr(self, 'x')", ["depends"]),
    ],
)
def test_the_way_to_a_test_may_decide_it(use: str, verdicts: list[str]):
    more = "def make(self):\n    self.x = 1"
    assert [f.verdict for f in prove(worker("self.y = 1", use, more))] == verdicts


def test_a_lookup_hook_answers_reads_that_prove_nothing():
    use = "self.x\nreturn hasattr(self, 'x')"
    hook = "def make(self):\n    self.x = 1\ndef __getattr__(self, k):\n    return 1"
    assert only(worker("pass", use, hook)).verdict == "depends"


# Subclasses and other files


def test_a_subclass_that_does_not_call_super_init_stands_against_always():
    here = worker("self.x = 1")
    there = "from app.w import W\nclass D(W):\n    def __init__(self):\n        {}\n"
    assert only(here, app__d=there.format("super().__init__()")).verdict == "always"
    finding = only(here, app__d=there.format("pass"))
    assert finding.verdict == "depends" and "D.__init__ (app/d.py:3)" in finding.reason
    early = only(here, app__d=there.format("self.use(); super().__init__()"))
    assert early.verdict == "depends" and "before __init__" in early.reason
    renamed = there.replace("import W", "import W as V").replace("D(W)", "D(V)")
    assert only(here, app__d=renamed.format("pass")).verdict == "depends"
    doubtful = (
        "try:\n    from app.w import W\nexcept ImportError:\n    W = object\n" + there.partition("\n")[2]
    )
    assert only(here, app__d=doubtful.format("pass")).verdict == "depends"
    other = "class W:\n    pass\nclass D(W):\n    def __init__(self):\n        pass\n"
    assert only(here, app__d=other).verdict == "always"


def test_a_subclass_may_make_delete_or_hide_the_attribute():
    there = "from app.w import W\nclass D(W):\n{}\n"
    for body, kind in (
        ("    x = 1", "subclass"),
        ("    def go(self):\n        self.x = 1", "subclass"),
    ):
        finding = only(worker("pass"), app__d=there.format(body))
        assert finding.verdict == "depends" and [site.kind for site in finding.sites] == [kind]
    for body in ("    def go(self):\n        del self.x", "    x = property(lambda self: self.y)"):
        assert only(worker("self.x = 1"), app__d=there.format(body)).verdict == "depends"
    mixin = "from app.w import W\nclass M:\n    def go(self):\n        del self.x\nclass D(M, W):\n    pass\n"
    assert only(worker("self.x = 1"), app__d=mixin).verdict == "depends"


def test_other_files_may_touch_the_attribute_of_some_object():
    assert only(worker("pass"), app__d="def go(w):\n    w.x = 1\n").verdict == "depends"
    gone = only(worker("self.x = 1"), app__d="def go(w):\n    del w.x\n")
    assert gone.verdict == "depends" and "app/d.py:2" in gone.reason
    assert (
        only(worker("self.x = 1"), app__d="import app.w\nw = object.__new__(app.w.W)\n").verdict == "depends"
    )
    # A method of an unrelated class deletes from its own self.
    assert (
        only(worker("self.x = 1"), app__d="class Z:\n    def go(self):\n        del self.x\n").verdict
        == "always"
    )


def test_bases_are_followed_through_imports_and_packages():
    text = worker("super().__init__()", head="from .bases import B\n").replace("class W:", "class W(B):")
    base = "class B:\n    def __init__(self):\n        self.x = 1\n"
    package = {"app/bases/__init__.py": "from .core import B\n", "app/bases/core.py": base}
    finding = only(text, files=package)
    assert finding.verdict == "always" and finding.sites[0].path == "app/bases/core.py"
    package["app/bases/__init__.py"] = "try:\n    from .core import B\nexcept ImportError:\n    B = object\n"
    assert only(text, files=package).verdict == "depends"


def test_without_a_tree_the_finding_says_that_only_the_file_was_seen():
    source = Source("w.py", worker("self.x = 1").encode())
    (finding,) = prove_hasattr(source, outline(source))
    assert (finding.verdict, finding.scope) == ("always", "file")


# Rewrites


def rewrite_edits(source: Source, findings: Iterable[HasattrFinding]) -> list[Edit]:
    """Edits that carry out every rewrite; those of one lazy attribute are sound with its declaration only."""
    return [
        Edit(
            source.offset(finding.line, finding.column),
            source.offset(finding.end_line, finding.end_column),
            finding.rewrite.text.encode(),
        )
        for finding in findings
        if finding.rewrite.kind in EVERY_REWRITE and finding.rewrite.text is not None
    ]


def rewritten(text: str) -> str:
    source = Source("app/w.py", text.encode())
    return apply_edits(source.data, rewrite_edits(source, prove(text))).decode()


def test_getattr_becomes_the_attribute_or_its_default():
    text = worker(
        "self.x = 1", "return getattr(self, 'x', None), getattr(self, 'q', 1 or 2), getattr(self, 'any')"
    )
    assert "return self.x, (1 or 2), self.any\n" in rewritten(text)


def test_a_default_that_does_something_is_kept():
    finding = only(worker("self.x = 1", "return getattr(self, 'x', print())"))
    assert (finding.verdict, finding.rewrite.kind) == ("always", "refused")


def test_names_that_cannot_follow_a_dot_are_kept():
    finding = only(worker("pass", "return getattr(self, 'class')"))
    assert finding.rewrite.kind == "refused"


def test_a_closure_keeps_hold_of_self():
    finding = only(worker("self.x = 1", "return lambda: hasattr(self, 'x')"))
    assert (finding.verdict, finding.rewrite.kind) == ("always", "refused")
    both = only(worker("self.x = 1", "return lambda: hasattr(self, 'x') and self"))
    assert both.rewrite.kind == "constant"


LAZY = """
if not hasattr(self, 'x'):
    self.x = []
self.x.append(1)
return hasattr(self, 'x') == True
"""


def test_a_lazy_attribute_becomes_optional_when_nothing_can_tell():
    findings = prove(worker("pass", LAZY))
    assert [f.rewrite.kind for f in findings] == ["optional", "constant"]
    assert (
        findings[0].rewrite.text == "self.x is not None" and findings[0].rewrite.declares == "self.x = None"
    )
    bare = only(worker("pass", "return hasattr(self, 'x') == True", "def make(self):\n    self.x = 1"))
    assert bare.rewrite.text == "(self.x is not None)"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("def f(self):\n    self.x = None", "assigns None"),
        ("def f(self, v):\n    self.x = v", "may assign None"),
        ("def f(self, v):\n    self.x, _ = v", "may assign None"),
        ("def f(self):\n    return self.x", "without a test"),
        ("def f(self):\n    return getattr(self, 'x', 0)", "in another way"),
        ("def f(self):\n    return getattr(self, 'x')", "in another way"),
        ("def f(self):\n    del self.x", "deleted"),
        ("def f(self, w):\n    return w.x", "outside the class"),
        ("def __del__(self):\n    self.use()", "before __init__"),
    ],
)
def test_a_lazy_attribute_stays_lazy_when_none_would_be_seen(more: str, why: str):
    first = prove(worker("pass", LAZY, more))[0]
    assert first.rewrite.kind == "refused" and why in first.rewrite.why


def test_unseen_lookups_stand_against_optional():
    for more in (
        "def f(self):\n    return dict(self.__dict__)",
        "def f(self, k):\n    return getattr(self, k)",
    ):
        first = prove(worker("pass", LAZY, more))[0]
        assert first.rewrite.kind == "refused"
        assert first.assumed is not None and first.assumed.rewrite.kind == "optional"


def test_one_test_that_must_stay_keeps_all_of_them():
    # The getattr in `f` cannot be rewritten: declaring x would change what it returns.
    findings = prove(worker("pass", LAZY, "def f(self, v):\n    return getattr(self, 'x', [])"))
    assert [f.rewrite.kind for f in findings] == ["refused", "constant", "refused"]


def test_a_test_that_runs_before_init_keeps_all_of_them():
    findings = prove(worker("pass", LAZY, "def __del__(self):\n    return hasattr(self, 'x')"))
    assert [f.rewrite.kind for f in findings] == ["refused", "constant", "refused"]
    assert "line 10" in findings[0].rewrite.why


def test_obstacles_may_be_accepted_one_by_one():
    text = worker("self.x = 1", more="def f(self, k):\n    delattr(self, k)\ndef __getstate__(self): ...")
    (finding,) = findings = prove(text)
    assert finding.assumed is not None and len(finding.assumed.obstacles) == 2
    assert accept(findings, finding.assumed.obstacles[:1]) == tuple(findings)
    assert [obstacle_name(text) for text in finding.assumed.obstacles] == [
        "W.f may delete attributes under a computed name",
        "W has __getstate__: copies are made without __init__",
    ]
    (settled,) = accept(findings, list(map(obstacle_name, finding.assumed.obstacles)))
    assert (settled.verdict, settled.rewrite.text, settled.assumed) == ("always", "True", None)


SUBCLASS = "from app.w import W\nclass D(W):\n    "


@pytest.mark.parametrize(
    ("more", "other", "lines"),
    [
        ("def reset(self):\n    self.__init__()", "", ["app/w.py:8"]),
        ("def reset(self):\n    W.__init__(self)", "", ["app/w.py:8"]),
        ("", "from app.w import W\ndef reset(w):\n    w.__init__()", ["app/o.py:3"]),
        (
            "",
            "from app.w import W\nclass D(W):\n    def reset(self):\n        super().__init__()",
            ["app/o.py:4"],
        ),
        ("", "from app.w import W\nclass D(W):\n    def __init__(self):\n        super().__init__()", []),
        ("", "from app.w import W\nclass D(W):\n    def __init__(self):\n        W.__init__(self)", []),
    ],
)
def test_an_init_that_may_run_again_stands_against_a_declaration(more: str, other: str, lines: list[str]):
    finding = prove(worker("pass", "if not hasattr(self, 'x'):\n    self.x = []", more), app__o=other)[0]
    said = [f"{line} may run __init__ again" for line in lines]
    obstacles = finding.assumed.obstacles if finding.assumed is not None else ()
    assert [text for text in obstacles if "again" in text] == said


def test_a_common_default_is_declared_whatever_is_assigned():
    more = "def make(self, v):\n    self.x = v"
    finding = only(worker("pass", "return getattr(self, 'x', 0.0)", more))
    assert (finding.rewrite.kind, finding.rewrite.text) == ("declared", "self.x")
    assert finding.rewrite.declares == "self.x = 0.0"
    none = only(worker("pass", "return getattr(self, 'x', None) or 0", more))
    assert (none.rewrite.kind, none.rewrite.text) == ("optional", "self.x")
    shared = only(worker("pass", "return getattr(self, 'x', [])", more))
    assert shared.rewrite.kind == "refused"


def test_a_method_of_some_subclasses_is_a_capability():
    there = "from app.w import W\nclass D(W):\n    def x(self, a: int, *, b=None):\n        pass\n"
    finding = only(worker("pass"), app__d=there)
    assert (finding.rewrite.kind, finding.rewrite.text) == ("capability", "isinstance(self, HasX)")
    assert finding.rewrite.declares is not None
    assert "class HasX(Protocol):\n    def x(self, *args: Any, **kwargs: Any)" in finding.rewrite.declares
    attribute = there.replace("def x(self, a: int, *, b=None):\n        pass", "x = 1")
    assert only(worker("pass"), app__d=attribute).rewrite.kind == "refused"


def test_positions_are_those_of_the_call_in_bytes():
    text = worker("self.x = 1", "é = 'é'; return not hasattr(self, 'x')")
    finding = only(text)
    line = text.encode().splitlines()[finding.line - 1]
    assert line[finding.column : finding.end_column] == b"hasattr(self, 'x')"
    assert finding.context == "not"


@pytest.mark.parametrize(
    "use",
    [
        "return f\"é {hasattr(self, 'x')}\"",
        "return f'''é\n  {n} {hasattr(self, 'x')!r:>{5}}'''",
        "return f\"{'é' f'{hasattr(self, str())}' } {hasattr(self, 'x')}\"",
    ],
)
def test_a_call_inside_an_f_string_is_replaced_exactly_or_not_at_all(use: str):
    text = worker("self.x = 1", use)
    assert [f.verdict for f in prove(text)][-1] == "always"
    assert rewritten(text) in (text, text.replace("hasattr(self, 'x')", "True"))


# The worker of this repository


def test_the_worker_of_this_repository():
    path = "batchgen/batchgen_worker.py"
    tree = tree_before(ROOT)
    source = Source(path, tree.read(path) or b"")
    findings = prove_hasattr(source, outline(source, "BatchGenWorker"), tree)
    assert len(findings) >= 10
    deleted = [f for f in findings if f.attribute == "model"]
    assert deleted and all("deleted" in f.reason and f.rewrite.kind == "refused" for f in deleted)
    # hot_reload swaps the class: nothing is proven, and what would hold otherwise is said.
    assert Counter(f.verdict for f in findings) == {"depends": len(findings)}
    likely = {f.attribute: f.assumed.rewrite.kind for f in findings if f.assumed is not None}
    assert likely["_watermark_check_counter"] == "optional"
    assert likely["_cuda_graph_adapter"] == "attribute"


# Properties


@settings(derandomize=True, max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), wild=st.booleans())
def test_no_run_contradicts_a_claim(seed: int, wild: bool):
    text = Writer(random.Random(seed), wild=wild).module()
    source = Source("m.py", text.encode())
    claims = {
        f.line: f.verdict for f in prove_hasattr(source, outline(source, "C")) if f.verdict != "depends"
    }
    for schedule in range(4):
        for line, found in Run(text, schedule).seen:
            if line in claims:
                assert claims[line] == ("always" if found else "never"), f"line {line} of\n{text}"


@settings(derandomize=True, max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_a_rewritten_class_shows_the_same(seed: int):
    text = Writer(random.Random(seed), wild=seed % 5 == 0).module()
    source = Source("m.py", text.encode())
    shape = outline(source, "C")
    findings = prove_hasattr(source, shape)
    edits = rewrite_edits(source, findings)
    for declared in sorted({f.rewrite.declares for f in findings if f.rewrite.declares is not None}):
        at = source.offset(shape.definitions("__init__")[-1].node.body[0].lineno)
        edits.append(Edit(at, at, f"        {declared}\n".encode()))
    changed = apply_edits(source.data, edits).decode()
    for schedule in range(4 if edits else 0):
        before, after = Run(text, schedule, spy=False), Run(changed, schedule, spy=False)
        # Where the stack ends depends on frames, not on meaning: a builtin call takes none.
        if "RecursionError" not in (*before.shown, *after.shown):
            assert before.shown == after.shown, f"{text}\n----\n{changed}"
