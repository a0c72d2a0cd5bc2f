"""Random workers: cut or refused with a code, and what was cut behaves exactly as before."""

from __future__ import annotations

import contextlib
import random
import sys
import types
from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migration.move.cut import CutPlan, CutRefused, plan_cut

from .support import RECIPE, tree_of

ATTRIBUTES = ("a", "b", "_lazy", "PAGE")
METHODS = ("first", "second", "third", "fourth")
HEAD = """\
import json
from math import floor, ceil as up
SCALE = 3


def helper(value):
\treturn value + SCALE


def keep(value):
\treturn value if len(repr(value)) < 80 else "much"


class Worker:
\tPAGE = 4

\tdef __init__(self):
\t\tself.a = 1
\t\tself.b = [2]
\t\tself.log = []
\t\tself.depth = 0

\t# ============ Cache ============

"""

attribute = st.sampled_from(ATTRIBUTES)
method = st.sampled_from(METHODS)
literal = st.sampled_from(
    ["0", "1", "'x'", "[1, 2]", "None", "f'{self.a!r}-{self.b}'", '"""two\n\t\tlines"""']
)

expression = st.recursive(
    st.one_of(
        literal,
        st.sampled_from(
            ["x", "y", "helper(2)", "floor(2.5)", "up(1.5)", "json.dumps(keep(self.a), default=str)"]
        ),
        attribute.map(lambda name: f"self.{name}"),
        attribute.map(lambda name: f'getattr(self, "{name}", None)'),
        attribute.map(lambda name: f'hasattr(self, "{name}")'),
        method.map(lambda name: f"self.{name}(1)"),
        method.map(lambda name: f"self.{name}(x=2, y=3)"),
        method.map(lambda name: f"callable(self.{name})"),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"[{two[0]},\n\t\t\t   {two[1]}]"),
        inner.map(lambda one: f"(lambda x: ({one}, x))(7)"),
        inner.map(lambda one: f"[{one} for y in range(2)]"),
        inner.map(lambda one: f"f'<{{{one}!r:>4}}>'" if not set("'\"\n{\\") & set(one) else one),
        inner.map(lambda one: f"str({one})"),
    ),
    max_leaves=4,
)
statement = st.one_of(
    expression.map(lambda e: [f"self.log.append(keep(({e})))"]),
    st.tuples(attribute, expression).map(lambda two: [f"self.{two[0]} = keep({two[1]})"]),
    attribute.map(lambda name: [f"self.{name} += 1  # grows"]),
    attribute.map(lambda name: [f'if hasattr(self, "{name}"):', f"\tdel self.{name}"]),
    st.tuples(attribute, expression).map(lambda two: [f'setattr(self, "{two[0]}", keep({two[1]}))']),
    expression.map(
        lambda e: [
            "def inner(x=self.a):",
            "\t# nested",
            f"\treturn keep(({e}, x, self.a))",
            "self.log.append(inner())",
        ]
    ),
    expression.map(
        lambda e: [
            "try:",
            f"\tself.log.append(keep({e}))",
            "except TypeError:",
            "\tself.a = 0",
            "finally:",
            "\tself.b = 1",
        ]
    ),
    expression.map(lambda e: [f"if {e}:", "\treturn self.a", "else:", "\t# nothing", "\tpass"]),
    st.sampled_from(
        [
            ["x, self.a = 5, keep(y)"],
            ["# a comment", "", "y = 1"],
            ["self.extra: int = 3"],
            ["for self.a in range(3): pass"],
            ["self.log.append(self)"],
            ["global SCALE", "SCALE = 4"],
            ["self.__hidden = 1"],
            ["from math import floor", "x = floor(y or 0)"],
        ]
    ),
)


@st.composite
def workers(draw: st.DrawFn) -> str:
    parts = [HEAD]
    for name in METHODS:
        parameters = draw(
            st.sampled_from(["x=0, y=None", "x, y=1", "x=0, *, y=2", "x=0, *rest, y='k', **more"])
        )
        body = [line for lines in draw(st.lists(statement, min_size=1, max_size=4)) for line in lines]
        guard = ["self.depth += 1", "if self.depth > 6: return 'deep'"]
        comment = draw(st.sampled_from(["", "\t# owned\n", "\t# free\n\n"]))
        lines = "".join(f"\t\t{line}\n" for line in [*guard, *body])
        parts.append(f"{comment}\tdef {name}(self, {parameters}):\n{lines}")
        parts.append(draw(st.sampled_from(["\n", "", "\n\t# ---- between\n\n", "\n\tX = 1\n\n"])))
    return "".join(parts)


@contextlib.contextmanager
def loaded(files: dict[str, bytes]) -> Iterator[types.ModuleType]:
    """The worker module with the handler module that goes with it, without touching the disk."""
    names = ("app", "app.parts", "app.worker", "app.parts.cache")
    modules = {name: types.ModuleType(name) for name in names}
    sys.modules.update(modules)
    try:
        for name, path in (("app.parts.cache", RECIPE.target_file), ("app.worker", RECIPE.source_file)):
            if path in files:
                exec(compile(files[path], path, "exec", dont_inherit=True), modules[name].__dict__)
        yield modules["app.worker"]
    finally:
        for name in names:
            del sys.modules[name]


def trace(files: dict[str, bytes], seed: int) -> list[str]:
    """What a fixed sequence of calls returns, raises and leaves behind."""
    seen: list[str] = []
    with loaded(files) as module:
        worker = module.Worker()
        for name in random.Random(seed).choices(METHODS, k=8):
            worker.depth = 0
            try:
                outcome = repr(getattr(worker, name)(1))
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            seen.append(f"{name} {outcome} {sorted(vars(worker).items())!r} {module.SCALE}")
    return [line.replace(hex(id(worker))[2:], "@") for line in seen]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(source=workers(), seed=st.integers(0, 9))
def test_a_cut_worker_behaves_as_the_whole_one(source: str, seed: int):
    try:
        compile(source, "worker", "exec")
    except SyntaxError:
        return
    outcome = plan_cut(RECIPE, tree_of(source.encode()))
    if isinstance(outcome, CutRefused):
        # Only the hazards planted above may be refused; never the verification.
        assert {refusal.code for refusal in outcome.refusals} <= {"MG003", "MG014"}
        return
    assert isinstance(outcome, CutPlan)
    before = {RECIPE.source_file: source.encode()}
    after = {change.path: change.after for change in outcome.changes}
    assert trace(after, seed) == trace(before, seed)
