"""`migrate declare`: where the declaration stands, what is refused, what the verification finds, the command."""

from __future__ import annotations

import json
import shlex
import textwrap
from pathlib import Path

import pytest

from migration.code.source import Edit, Source, apply_edits
from migration.code.structure import outline
from migration.declare.plan import (
    DeclareClean,
    DeclareOutcome,
    DeclarePlan,
    DeclareRefused,
    Wanted,
    plan_declare,
)
from migration.declare.proof import DeclareProof, prove
from migration.errors import MigrationError

from .support import DictTree
from .test_cli import git, migrate

LAZY = """
    def use(self):
        if not hasattr(self, "x"):
            self.x = []
        return self.x
"""


def declared(text: str, *wanted: Wanted, accept: tuple[str, ...] = (), **more: str) -> DeclareOutcome:
    """The outcome for class `W` of app/w.py; other files by keyword with `__` for `/`."""
    data = textwrap.dedent(text).encode()
    tree = {
        "app/w.py": data,
        **{f"{name.replace('__', '/')}.py": other.encode() for name, other in more.items()},
    }
    return plan_declare(Source("app/w.py", data), "W", DictTree(tree), wanted or None, accept)


def init_of(outcome: DeclareOutcome) -> list[str]:
    """The statements of `__init__` afterwards."""
    assert isinstance(outcome, DeclarePlan), outcome
    lines = (outcome.change.after or b"").decode().partition("__init__")[2].partition("def use")[0]
    return [line.strip() for line in lines.splitlines()[1:] if line.strip()]


def opening(*statements: str, bases: str = "", head: str = "", **more: str) -> list[str]:
    """`__init__` with these statements once x is declared; x is written `X`."""
    body = "\n".join(f"        {statement}" for statement in statements)
    text = f"{head}class W{bases}:\n    def __init__(self, n=0):\n{body}\n{LAZY}"
    return ["X" if line == "self.x = None" else line for line in init_of(declared(text, **more))]


@pytest.mark.parametrize(
    "quiet",
    [
        "self.a = n",
        "self.a: int = n",
        "self.a = self.b = n  # both",
        "self.a = make(n, key=n.y)",
        "self.a = lambda: n",
        "self.a = [self.b for b in n]",
    ],
)
def test_it_stands_behind_the_assignments_that_init_opens_with(quiet: str):
    assert opening(quiet, "self.use()", "self.c = 1") == [quiet, "X", "self.use()", "self.c = 1"]


@pytest.mark.parametrize(
    "loud",
    [
        "self.a = self.use()",
        "self.use()",
        "self.a = self.use",
        "self.a = make(self)",
        "self.a = n.of(self.use)",
        "self.a = lambda: self.use()",
        "self.a = locals()",
        "self.a = vars()['self'].use()",
        "self.a = super().use()",
        "self.a = self.__class__",
        "self.a = hasattr(self, 'y')",
        "self.p = n",
        "self.a = self.p",
        "self.a += n",
        "self.a[n] = 1",
        "self.a.b = n",
        "del self.a",
        "if n: self.use()",
        "me = self",
        "self.a = (yielded := self)",
    ],
)
def test_nothing_that_may_reach_a_method_is_passed(loud: str):
    prop = ("@property", "def p(self): return self.use()", "@p.setter", "def p(self, v): self.use()")
    head = "class P:\n" + "".join(f"    {line}\n" for line in prop)
    assert opening("self.z = n", loud, "self.c = 1", bases="(P)", head=head) == [
        "self.z = n",
        "X",
        loud,
        "self.c = 1",
    ]


def test_statements_that_assign_nothing_are_passed_only_on_the_way_to_an_assignment():
    assert opening("log(n)", "k = n", "self.a = k", "log(k)") == [
        "log(n)",
        "k = n",
        "self.a = k",
        "X",
        "log(k)",
    ]
    assert opening("log(n)", "self.use()") == ["X", "log(n)", "self.use()"]
    assert opening("self.a = n", "self.b = n; self.use()") == ["self.a = n", "X", "self.b = n; self.use()"]
    assert opening('"""Doc."""', "self.use()") == ['"""Doc."""', "X", "self.use()"]


def test_the_last_line_of_a_file_needs_no_end_to_get_another_behind_it():
    text = f"class W:{LAZY}\n    def __init__(self, n):\n        self.a = n"
    outcome = declared(text, Wanted("x"))
    assert isinstance(outcome, DeclarePlan)
    assert (outcome.change.after or b"").endswith(b"\n        self.a = n\n        self.x = None")


def test_a_not_over_several_lines_stays_with_its_comments():
    use = "    def f(self):\n        return not (  # is it\n            hasattr(self, 'x'))\n"
    outcome = declared(f"class W:\n    def __init__(self):\n        pass\n{LAZY}{use}", Wanted("x"))
    assert isinstance(outcome, DeclarePlan)
    assert b"return not (  # is it\n            self.x is not None)\n" in (outcome.change.after or b"")


def test_a_class_in_the_class_has_attributes_of_its_own():
    inner = "    class In:\n        def f(self):\n            return hasattr(self, 'x')\n"
    outcome = declared(f"class W:\n    def __init__(self):\n        pass\n{LAZY}{inner}", Wanted("x"))
    assert isinstance(outcome, DeclarePlan), outcome
    assert b"            return hasattr(self, 'x')\n" in (outcome.change.after or b"")


BASE = "class B:\n    def __init__(self): {}\n    def make(self): {}\n"


@pytest.mark.parametrize(
    ("start", "make", "passed"),
    [
        ("self.z = 1", "pass", True),
        ("self.make()", "pass", True),
        ("self.make()", "self.use()", False),
        ("self.use()", "pass", False),
        ("register(self)", "pass", False),
        ("locals()['self'].use()", "pass", False),
        ("flag() and setattr(self, 'x', 1)", "pass", False),
    ],
)
def test_super_init_is_passed_where_no_base_can_ask(start: str, make: str, passed: bool):
    text = (
        f"from app.b import B\nclass W(B):\n    def __init__(self, n=0):\n        super().__init__()\n{LAZY}"
    )
    outcome = declared(text, Wanted("x"), app__b=BASE.format(start, make))
    wanted = ["super().__init__()", "self.x = None"]
    assert init_of(outcome) == (wanted if passed else wanted[::-1])


def test_a_base_from_elsewhere_is_an_obstacle_and_super_init_is_not_passed():
    text = f"import nn\nclass W(nn.Module):\n    def __init__(self):\n        super().__init__()\n{LAZY}"
    outcome = declared(text, Wanted("x"))
    assert isinstance(outcome, DeclareRefused)
    assert [(r.code, r.line, r.message) for r in outcome.refusals] == [
        ("MG539", 7, "base class nn.Module is not in the tree")
    ]
    accepted = declared(text, Wanted("x"), accept=("base class nn.Module is not in the tree",))
    assert init_of(accepted) == ["self.x = None", "super().__init__()"]
    assert isinstance(accepted, DeclarePlan)
    assert accepted.declarations[0].accepted == ("base class nn.Module is not in the tree",)


def test_with_a_base_from_elsewhere_any_name_may_be_one_of_its_properties():
    text = f"import nn\nclass W(nn.Module):\n    def __init__(self):\n        self.a = 1\n{LAZY}"
    accepted = declared(text, Wanted("x"), accept=("base class nn.Module is not in the tree",))
    assert init_of(accepted) == ["self.x = None", "self.a = 1"]


def test_an_object_that_changes_its_class_is_not_followed():
    text = f"class W:\n    def __init__(self, n):\n        self.__class__ = n\n        self.a = 1\n{LAZY}"
    accepted = declared(text, Wanted("x"), accept=("W.__init__ changes the class of the object",))
    assert init_of(accepted) == ["self.x = None", "self.__class__ = n", "self.a = 1"]


def test_an_obstacle_that_nothing_has_is_an_error():
    text = f"import nn\nclass W(nn.Module):\n    def __init__(self):\n        pass\n{LAZY}"
    with pytest.raises(MigrationError) as error:
        declared(text, Wanted("x"), accept=("base class nn.Modul is not in the tree",))
    assert error.value.code == "MG541"
    assert "did you mean base class nn.Module is not in the tree?" in str(error.value)


def test_the_recipe_says_where():
    body = "".join(f"        {line}\n" for line in ("self.a = n", "self.b = n", "self.use()", "self.c = n"))
    text = f"class W:\n    def __init__(self, n):\n{body}{LAZY}"
    assert init_of(declared(text, Wanted("x", "a"))) == [
        "self.a = n",
        "self.x = None",
        "self.b = n",
        "self.use()",
        "self.c = n",
    ]
    late = declared(text, Wanted("x", "c"))
    assert isinstance(late, DeclareRefused)
    assert [(r.code, r.where, r.line) for r in late.refusals] == [("MG540", "x", 6)]
    assert "may ask for it" in late.refusals[0].message
    missing = declared(text, Wanted("x", "bb"))
    assert isinstance(missing, DeclareRefused)
    assert "no statement of __init__ itself assigns self.bb, did you mean b?" in missing.refusals[0].message


def test_what_init_makes_needs_no_declaration_only_its_tests_go():
    text = """
    class W:
        def __init__(self, n):
            self.x = n
        def use(self):
            return hasattr(self, "x"), getattr(self, "x", None), getattr(self, "x")
    """
    outcome = declared(text, Wanted("x"))
    assert isinstance(outcome, DeclarePlan)
    assert b"return True, self.x, self.x\n" in (outcome.change.after or b"")
    assert outcome.declarations[0].value is None and outcome.proof.declarations == 0


def test_an_attribute_may_be_asked_for_before_init_assigns_it():
    text = f"class W:\n    def __init__(self, n):\n        self.use()\n        self.x = 3\n{LAZY}"
    assert init_of(declared(text, Wanted("x"))) == ["self.x = None", "self.use()", "self.x = 3"]


def test_a_test_that_is_always_true_where_it_stands_changes_with_the_others():
    late = "    def late(self):\n        self.x = 1\n        return hasattr(self, 'x')\n"
    outcome = declared(f"class W:\n    def __init__(self):\n        pass\n{LAZY}{late}", Wanted("x"))
    assert isinstance(outcome, DeclarePlan)
    assert b"        return self.x is not None\n" in (outcome.change.after or b"")


@pytest.mark.parametrize(
    ("more", "code", "why"),
    [
        ("def f(self):\n        return self.x", "MG538", "reads it without a test"),
        ("def f(self):\n        self.x = None", "MG538", "assigns None"),
        ("def f(self):\n        self.__init__()", "MG539", "app/w.py:10 may run __init__ again"),
        ("def f(self, k):\n        return getattr(self, k)", "MG539", "asks for a computed name"),
        ("def f(self):\n        return hasattr(self, # why\n 'x')", "MG204", "# why"),
    ],
)
def test_a_refusal_has_its_reason(more: str, code: str, why: str):
    outcome = declared(f"class W:\n    def __init__(self):\n        pass\n{LAZY}    {more}\n", Wanted("x"))
    assert isinstance(outcome, DeclareRefused)
    assert (outcome.refusals[0].code, why in outcome.refusals[0].message) == (code, True)


def test_an_init_that_binds_self_again_declares_nothing():
    outcome = declared(f"class W:\n    def __init__(self, n):\n        self = n\n{LAZY}", Wanted("x"))
    assert isinstance(outcome, DeclareRefused)
    assert outcome.refusals[0].message == "__init__ gives self another meaning"


def test_the_kinds_that_are_not_optional_are_named():
    use = "def use(self): return hasattr(self, 'drain'), hasattr(self, 'no')"
    text = f"class W:\n    def __init__(self): pass\n    {use}\n"
    sub = "from app.w import W\nclass D(W):\n    def drain(self): pass\n"
    outcome = declared(text, Wanted("drain"), Wanted("no"), app__d=sub)
    assert isinstance(outcome, DeclareRefused)
    assert ["it is a " + r.message.rpartition("it is a ")[2] for r in outcome.refusals] == [
        "it is a capability",
        "it is a constant",
    ]


def test_an_attribute_that_nobody_knows_is_an_error_and_one_that_is_made_is_done():
    text = f"class W:\n    kind = 1\n    def __init__(self):\n        self.name = 1\n{LAZY}"
    with pytest.raises(MigrationError) as error:
        declared(text, Wanted("nam"))
    assert error.value.code == "MG541" and "nam, did you mean name?" in str(error.value)
    done = declared(text, Wanted("name"), Wanted("kind"))
    assert isinstance(done, DeclareClean) and done.already == ("name", "kind")


# The verification stands on its own: it is told what was edited, and believes nothing of it.

BEFORE = b"""class Other:
    def use(self):
        return hasattr(self, "x")

class W:
    def __init__(self):
        self.a = 1  # one

    def use(self):
        return hasattr(self, "x") and not hasattr(self, "x")

    def see(self, other):
        return hasattr(other, "x")
"""
AFTER = b"""class Other:
    def use(self):
        return hasattr(self, "x")

class W:
    def __init__(self):
        self.a = 1  # one
        self.x = None

    def use(self):
        return self.x is not None and self.x is None

    def see(self, other):
        return hasattr(other, "x")
"""


def verified(after: bytes, edits: list[Edit] | None = None) -> set[str]:
    source = Source("w.py", BEFORE)
    at = BEFORE.index(b'\n    def use(self):\n        return hasattr(self, "x") and')
    test = b'hasattr(self, "x")'
    one = BEFORE.index(test, at)
    other = BEFORE.index(b"not " + test)
    made = [
        Edit(at, at, b"        self.x = None\n"),
        Edit(one, one + len(test), b"self.x is not None"),
        Edit(other, other + len(test) + 4, b"self.x is None"),
    ]
    assert apply_edits(BEFORE, made) == AFTER
    found = prove(source, outline(source, "W").node, {"x": "None"}, made if edits is None else edits, after)
    return set() if isinstance(found, DeclareProof) else {refusal.code for refusal in found}


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (b"self.x is None", b"self.x is not None", "MG202"),
        (b"self.x is not None", b'hasattr(self, "x")', "MG202"),
        (b"self.x is not None", b"other.x is not None", "MG202"),
        (b"        self.x = None\n", b"", "MG202"),
        (b"        self.x = None\n", b"        self.x = 0\n", "MG202"),
        (b"        self.x = None\n", b"        self.x = None\n        self.x = None\n", "MG202"),
        (b'return hasattr(self, "x")', b"return self.x is not None", "MG202"),
        (b"self.a = 1  # one", b"self.a = 1", "MG204"),
        (b"self.a = 1  # one", b"self.a  = 1  # one", "MG205"),
        (b"self.a = 1", b"self.a = undefined", "MG203"),
        (b"self.a = 1", b"self.a = ", "MG201"),
    ],
)
def test_every_fault_is_found(old: bytes, new: bytes, code: str):
    assert verified(AFTER) == set()
    assert old in AFTER
    assert code in verified(AFTER.replace(old, new, 1))


def test_edits_that_are_not_of_tests_are_found():
    assert verified(AFTER, [Edit(0, len(BEFORE), AFTER)]) == {"MG205"}


# The command

WORKER = '''class Worker:
    """Moves things."""

    def __init__(self, size):
        self.size = size
        self.start()

    def start(self):
        self.state = "on"

    # ============ Counts ============

    def count(self):
        if not hasattr(self, "_counter"):
            self._counter = 0
        self._counter += 1
        return self._counter

    # ============ Rest ============

    def report(self):
        return getattr(self, "_error", None), hasattr(self, "_counter")

    def fail(self, error):
        self._error = error
'''
SLICE = """schema = 1
name = "counts"
[source]
file = "app/worker.py"
class = "Worker"
section = "Counts"
[target]
file = "app/counts.py"
class = "Counts"
[hasattr.attributes]
_counter = "optional"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "app").mkdir(parents=True)
    (root / "app" / "__init__.py").write_text("")
    (root / "app" / "worker.py").write_text(WORKER)
    (root / "counts.toml").write_text(SLICE)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "start")
    return root


def commit(root: Path, what: str) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-qm", what)


def text_of(root: Path) -> str:
    return (root / "app" / "worker.py").read_text()


def test_a_recipe_is_declared_then_there_is_nothing_to_do(repository: Path):
    slice_ = str(repository / "counts.toml")
    assert migrate("declare", slice_, "--repo", repository, "--check").returncode == 1
    assert text_of(repository) == WORKER
    run = migrate("declare", slice_, "--repo", repository)
    assert run.returncode == 0, run.stderr
    assert "_counter = None; tests rewritten in lines 14, 22" in run.stdout
    assert "self.size = size\n        self._counter = None\n        self.start()" in text_of(repository)
    assert 'getattr(self, "_error", None), self._counter is not None' in text_of(repository)
    again = migrate("declare", slice_, "--repo", repository)
    assert (again.returncode, "already declared: _counter" in again.stdout) == (0, True)
    assert migrate("declare", slice_, "--repo", repository, "--check").returncode == 0


def test_a_patch_for_git_is_the_same(repository: Path, tmp_path: Path):
    slice_ = str(repository / "counts.toml")
    (tmp_path / "x.patch").write_text(migrate("declare", slice_, "--repo", repository, "--diff").stdout)
    migrate("declare", slice_, "--repo", repository)
    written = text_of(repository)
    git(repository, "checkout", "app")
    git(repository, "apply", str(tmp_path / "x.patch"))
    assert text_of(repository) == written != WORKER


def test_undo_takes_it_back_and_a_dirty_tree_is_left_alone(repository: Path):
    slice_ = str(repository / "counts.toml")
    (repository / "app" / "worker.py").write_text(WORKER + "\n")
    dirty = migrate("declare", slice_, "--repo", repository)
    assert dirty.returncode == 3 and "MG304" in dirty.stderr and text_of(repository) == WORKER + "\n"
    assert migrate("declare", slice_, "--repo", repository, "--allow-dirty").returncode == 0
    listed = migrate("undo", "--repo", repository, "--list")
    assert "declare" in listed.stdout
    assert migrate("undo", "--repo", repository).returncode == 0
    assert text_of(repository) == WORKER + "\n"


def test_a_file_declares_all_that_may_be_or_what_is_named(repository: Path):
    run = migrate("declare", "app/worker.py", "--repo", repository, "--json", "--check")
    found = json.loads(run.stdout)
    assert (run.returncode, found["outcome"]) == (1, "planned")
    assert [(d["attribute"], d["value"]) for d in found["declarations"]] == [
        ("_counter", "None"),
        ("_error", "None"),
    ]
    assert found["proof"]["tests"] == 3 and found["diff"].startswith("diff --git a/app/worker.py")
    one = migrate("declare", "app/worker.py", "--attribute", "_error", "--repo", repository)
    assert one.returncode == 0 and "hasattr" in text_of(repository) and "_error = None" in text_of(repository)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("counts.toml", "--attribute", "_conter"),
            "MG541",
            'not "optional" in the recipe: _conter, did you mean _counter?',
        ),
        (("app/worker.py", "--attribute", "_eror"), "MG541", "_eror, did you mean _error?"),
        (("app/worker.py", "--accept", "x"), "MG541", "nothing in Worker has it: x"),
        (("app/none.py",), "MG303", "no such file"),
        (("../x.py",), "MG313", "is not under"),
        (("none",), "MG402", "no slice none"),
    ],
)
def test_mistakes_are_errors(repository: Path, arguments: tuple[str, ...], code: str, said: str):
    run = migrate("declare", *arguments, cwd=repository)
    assert (run.returncode, code in run.stderr, said in run.stderr) == (3, True, True), run.stderr
    assert migrate("declare", "counts.toml", "--class", "Worker", cwd=repository).returncode == 64
    assert text_of(repository) == WORKER


def test_a_refusal_says_where_why_and_the_way_out(repository: Path):
    (repository / "app" / "worker.py").write_text(
        WORKER.replace("self._error = error", "print(self._counter)")
    )
    run = migrate("declare", "counts.toml", "--allow-dirty", cwd=repository)
    assert run.returncode == 2
    assert (
        "MG538 app/worker.py:14: _counter cannot be declared: Worker.fail reads it without a test (line 25)"
        in run.stdout
    )
    assert run.stdout.count("way out: ") == 1
    shown = migrate("declare", "counts.toml", "--json", "--allow-dirty", cwd=repository)
    assert json.loads(shown.stdout)["refusals"][0]["way_out"]


def test_the_encoding_of_the_file_stays(repository: Path):
    text = "# -*- coding: latin-1 -*-\n# é\n" + WORKER
    (repository / "app" / "worker.py").write_bytes(text.encode("latin-1"))
    commit(repository, "é")
    assert migrate("declare", "counts.toml", cwd=repository).returncode == 0
    assert (repository / "app" / "worker.py").read_bytes().startswith(text[:30].encode("latin-1"))


def test_the_slice_moves_once_its_attribute_is_declared(repository: Path):
    early = migrate("port", "counts.toml", "--json", cwd=repository)
    (refusal,) = json.loads(early.stdout)["refusals"]
    assert early.returncode == 2 and (refusal["code"], refusal["line"]) == ("MG122", 14)
    assert "migrate declare counts" in refusal["message"]
    assert migrate("declare", "counts.toml", cwd=repository).returncode == 0
    commit(repository, "declared")
    declared_text = text_of(repository)
    for step in ("port", "gate", "cleanup"):
        run = migrate(step, "counts.toml", cwd=repository)
        assert run.returncode == 0, run.stdout + run.stderr
        commit(repository, step)
        checked = migrate("verify", cwd=repository)
        assert checked.returncode == 0, checked.stdout
    handler = (repository / "app" / "counts.py").read_text()
    assert "if self._host._counter is None:\n            self._host._counter = 0\n" in handler
    assert "hasattr" not in handler.partition("class Counts:")[2].partition('"""')[2].partition('"""')[2]
    for _ in ("cleanup", "gate", "port"):
        migrate("undo", cwd=repository)
    assert text_of(repository) == declared_text


def test_the_inventory_names_the_command_that_declares(repository: Path):
    shown = migrate("inventory", "app/worker.py", "--hasattr", cwd=repository).stdout
    assert shown.count("migrate declare app/worker.py --attribute _counter\n") == 2
    path = repository / "app" / "worker.py"
    path.write_text(WORKER + "\n    def put(self, key):\n        setattr(self, key, 1)\n")
    found = json.loads(migrate("inventory", str(path), "--hasattr", "--json", cwd=repository.parent).stdout)
    (command,) = {f["declare"] for f in found["hasattr"] if f["attribute"] == "_counter"}
    assert command.startswith(
        f"migrate declare app/worker.py --repo {repository} --attribute _counter --accept '"
    )
    again = migrate(*shlex.split(command)[1:], "--allow-dirty", cwd=repository.parent)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "accepted: Worker.put sets attributes under a computed name" in again.stdout
    rest = json.loads(migrate("inventory", str(path), "--hasattr", "--json", cwd=repository.parent).stdout)
    assert [f["attribute"] for f in rest["hasattr"]] == ["_error"]
