"""`stacklevel=2` in a method that moves: the warning still names the line that called it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from migration.code.tree import OverlayTree
from migration.inverse.inline import InlinePlan, plan_inline
from migration.move.cut import CutPlan, CutRefused, plan_cut
from migration.phases.port import PortRefused, plan_port
from migration.proofs.record import dumps, loads, record
from migration.proofs.verify import Broken, Verified, verify
from migration.recipe import Recipe

from .support import RECIPE as SUPPORTED
from .support import DictTree, tree_of, worker_source

RECIPE = dataclasses.replace(SUPPORTED, siblings="worker")
HEAD = "import functools\nimport warnings\n\ndef traced(f):\n    @functools.wraps(f)\n    def run(*a, **k):\n"
HEAD += "        return f(*a, **k)\n    return run\n"
METHODS = '''
def plain(self, n=1):
    """Ältere."""
    warnings.warn("ä plain", stacklevel=2)
    if n:
        warnings.warn("again", DeprecationWarning, stacklevel=2)
    return n

def inner(self):
    return self.plain(0)

def here(self):
    warnings.warn("here", stacklevel=1)

def many(self, n):
    for i in range(n):
        warnings.warn(
            f"many {i}",
            stacklevel=2,
        )
        yield i

async def later(self):
    warnings.warn("later", category=UserWarning, stacklevel=2)

async def both(self):
    await self.later()

@property
def size(self):
    warnings.warn("size", stacklevel=2)
    return 1

@size.setter
def size(self, value):
    warnings.warn("set size", stacklevel=2)

@staticmethod
def free(n):
    warnings.warn("free", stacklevel=2)
    return n

@classmethod
def made(cls):
    warnings.warn("made", stacklevel=2)
    return cls

@traced
def wrapped(self):
    warnings.warn("wrapped", stacklevel=2)

def __len__(self):
    warnings.warn("len", stacklevel=2)
    return 3

def noted(self):
    self.warn = print

def quick(self, run=lambda: 0): warnings.warn("quick", stacklevel=2); return run()
'''
# What each warning says, and the text of the line that it names: lines of the class move, their text does not.
PROGRAM = """
import asyncio, linecache, threading, warnings
from app.worker import Worker

class Sub(Worker):
    def plain(self, n=1):
        return super().plain(n)  # of the subclass

async def main(w):
    await w.later()  # from a coroutine
    await w.both()
    await asyncio.gather(w.later(), w.later())

def consume(w):
    found = w.many(3)
    next(found)  # first
    for _ in found: pass  # the rest

warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for w in (Worker(), Sub()):
        w.plain()  # from outside
        w.inner()
        w.here()
        consume(w)
        list(w.many(1))  # by a builtin
        asyncio.run(main(w))
        w.size  # read
        w.size = 3  # set
        w.free(1); Worker.free(2)  # static
        w.made(); Sub.made()  # of the class
        w.wrapped()
        len(w)  # special
        w.quick()
        thread = threading.Thread(target=w.plain)
        thread.start(); thread.join()
        sorted([2, 1], key=w.plain)  # from C
        [w.plain() for _ in range(1)]  # in a comprehension
        functions = [lambda: w.plain()]  # in a lambda
        functions[0]()
    Worker.plain(Worker())  # by the class
for one in seen:
    print(one.category.__name__, one.message, linecache.getline(one.filename, one.lineno).strip())
with warnings.catch_warnings():
    warnings.simplefilter("default")
    for _ in range(3):
        Worker().plain(0)  # shown once for the line
print(len(globals().get("__warningregistry__", ())))
"""


def shown(root: Path, files: dict[str, bytes]) -> list[str]:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    (root / "use.py").write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "use.py"], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.replace("self._worker.", "self.")  # a line that has moved is the same line
    return [*said.splitlines(), *(line.partition(": ")[2] for line in done.stderr.splitlines()[::2])]


def cut_of(methods: str = METHODS, recipe: Recipe = RECIPE, head: str = HEAD) -> CutPlan | CutRefused:
    outcome = plan_cut(recipe, tree_of(worker_source(methods, head=head)))
    assert isinstance(outcome, CutPlan | CutRefused)
    return outcome


def test_every_warning_names_the_same_line_before_and_after(tmp_path: Path):
    tree = tree_of(worker_source(METHODS, head=HEAD))
    plan = cut_of()
    assert isinstance(plan, CutPlan), plan
    before = shown(tmp_path / "before", dict(tree.files))
    after = {c.path: c.after for c in plan.changes if c.after is not None}
    assert shown(tmp_path / "after", {**tree.files, **after}) == before
    assert len(before) > 60
    assert "UserWarning ä plain w.plain()  # from outside" in before
    assert "UserWarning len len(w)  # special" in before
    assert sum("of the subclass" in line for line in before) > 3
    wrong = {path: data.replace(b"stacklevel=3", b"stacklevel=2") for path, data in after.items()}
    assert shown(tmp_path / "wrong", {**tree.files, **wrong}) != before


def test_it_is_declared_in_the_proof_verified_and_folded_back_to_the_byte():
    tree = tree_of(worker_source(METHODS, head=HEAD))
    plan = cut_of()
    assert isinstance(plan, CutPlan)
    said = {d.name: dict(d.rewrites).get("stacklevel counts the stub", 0) for d in plan.proof.details}
    assert said["plain"] == 2 and said["many"] == said["free"] == said["quick"] == 1
    assert said["inner"] == said["here"] == said["both"] == 0
    proof = loads(dumps(record(plan)), "x")
    after = OverlayTree(tree, {c.path: c.after for c in plan.changes})
    (verdict,) = verify(after, [proof])
    assert isinstance(verdict, Verified), verdict
    handler = after.read(RECIPE.target_file)
    assert handler is not None
    for old, new in ((b"stacklevel=3", b"stacklevel=4"), (b"stacklevel=3", b"stacklevel=2")):
        edited = OverlayTree(after, {RECIPE.target_file: handler.replace(old, new, 1)})
        (verdict,) = verify(edited, [proof])
        assert isinstance(verdict, Broken)
    folded = plan_inline(after, proof)
    assert isinstance(folded, InlinePlan) and folded.exact


def test_an_edit_of_the_handler_keeps_its_meaning_when_it_is_folded_back():
    tree = tree_of(worker_source(METHODS, head=HEAD))
    plan = cut_of()
    assert isinstance(plan, CutPlan)
    after = OverlayTree(tree, {c.path: c.after for c in plan.changes})
    handler = after.read(RECIPE.target_file)
    assert handler is not None
    edited = handler.replace(b'warnings.warn("len", stacklevel=3)', b'warnings.warn("length", stacklevel=3)')
    assert edited != handler
    folded = plan_inline(OverlayTree(after, {RECIPE.target_file: edited}), record(plan))
    assert isinstance(folded, InlinePlan)
    (worker,) = (c.after for c in folded.changes if c.path == RECIPE.source_file)
    assert worker is not None and b'warnings.warn("length", stacklevel=2)' in worker


REFUSED = {
    "further up": "def m(self):\n    warnings.warn('x', stacklevel=3)\n",
    "a variable": "def m(self, n):\n    warnings.warn('x', stacklevel=n)\n",
    "no whole number": "def m(self):\n    warnings.warn('x', stacklevel=2.0)\n",
    "spelled otherwise": "def m(self):\n    warnings.warn('x', stacklevel=0x2)\n",
    "of a logger": "def m(self):\n    self.log.warning('x', stacklevel=2)\n",
    "in a function inside": "def m(self):\n    def f():\n        warnings.warn('x', stacklevel=2)\n    f()\n",
    "in a lambda": "def m(self):\n    return lambda: warnings.warn('x', stacklevel=2)\n",
    "in a comprehension": "def m(self):\n    return [warnings.warn('x', stacklevel=2) for _ in 'a']\n",
    "in a class inside": "def m(self):\n    class A:\n        warnings.warn('x', stacklevel=2)\n",
    "asynchronous generator": "async def m(self):\n    warnings.warn('x', stacklevel=2)\n    yield 1\n",
    "a context manager": "@contextlib.contextmanager\ndef m(self):\n"
    "    warnings.warn('x', stacklevel=2)\n    yield\n",
    "hidden by **": "def m(self, **k):\n    warnings.warn('x', stacklevel=2, **k)\n",
    "hidden by *": "def m(self, *a):\n    warnings.warn(*a, stacklevel=2)\n",
    "frames of files skipped": "def m(self):\n"
    "    warnings.warn('x', stacklevel=2, skip_file_prefixes=('a',))\n",
    "a local of that name": "def m(self, warnings):\n    warnings.warn('x', stacklevel=2)\n",
    "by another name": "def m(self):\n    warn('x', stacklevel=2)\n",
}
IMPORTS = "import contextlib\nimport warnings\nfrom warnings import warn\n"


@pytest.mark.parametrize("methods", REFUSED.values(), ids=REFUSED)
def test_all_else_stays_refused(methods: str):
    outcome = cut_of(methods, head=IMPORTS)
    assert isinstance(outcome, CutRefused)
    assert "MG011" in [refusal.code for refusal in outcome.refusals]


@pytest.mark.parametrize(
    "head",
    [
        "from app import warnings\n",
        "import warnings as other\nwarnings = other\n",
        "try:\n    import warnings\nexcept ImportError:\n    pass\n",
        "import warnings\ndef warnings(): ...\n",
        "import warnings\ndef f():\n    global warnings\n    warnings = 1\n",
        "import warnings\nwarnings.warn = print\n",
        "import warnings\nfrom os.path import *\n",
        "",
    ],
)
def test_another_thing_called_warnings_is_refused(head: str):
    outcome = cut_of("def m(self):\n    warnings.warn('x', stacklevel=2)\n", head=head)
    assert isinstance(outcome, CutRefused)
    assert "MG011" in [refusal.code for refusal in outcome.refusals]


def test_a_call_on_the_handler_itself_has_no_stub_between():
    recipe = dataclasses.replace(RECIPE, siblings="handler")
    methods = "def m(self):\n    warnings.warn('x', stacklevel=2)\n\ndef n(self):\n    self.m()\n"
    outcome = cut_of(methods, recipe, "import warnings\n")
    assert isinstance(outcome, CutRefused) and outcome.refusals[0].where == "m"
    alone = cut_of(methods.replace("self.m()", "self.name"), recipe, "import warnings\n")
    assert isinstance(alone, CutPlan), "nobody in the file calls it"
    late = cut_of(methods, dataclasses.replace(recipe, late_bound=("m",)), "import warnings\n")
    assert isinstance(late, CutPlan)


def test_a_decorator_that_moves_stands_between():
    recipe = dataclasses.replace(RECIPE, decorators=("traced",))
    head = "import warnings\nfrom app.tools import traced\n"
    outcome = plan_cut(
        recipe,
        tree_of(
            worker_source(
                "@traced\ndef m(self):\n    warnings.warn('x', stacklevel=2)\n",
                head=head,
            ),
            app__tools="def traced(f):\n    return f\n",
        ),
    )
    assert isinstance(outcome, CutRefused) and [r.code for r in outcome.refusals] == ["MG011"]


def test_behind_gates_there_are_more_frames():
    tree = tree_of(
        worker_source("def m(self):\n    warnings.warn('x', stacklevel=2)\n", head="import warnings\n")
    )
    outcome = plan_port(RECIPE, DictTree(tree.files))
    assert isinstance(outcome, PortRefused)
    assert [(r.code, r.where) for r in outcome.refusals] == [("MG116", "m")]
