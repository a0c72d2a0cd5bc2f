"""What `migrate inventory` finds in a worker with the habits of the real one."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from migration.presence.findings import HasattrFinding
from migration.survey import reports
from migration.survey.duplicates import near_duplicates
from migration.survey.inventory import take_inventory
from migration.survey.reports import Inventory, MethodReport
from migration.survey.selection import NotFound, select_method, select_section

ROOT = Path(__file__).resolve().parents[2]
WORKER = '''
import os
import torch.distributed as dist


class Other:
    pass


class Worker:
    LIMIT = 3

    def __init__(self):
        self.model = None
        self.rank = dist.get_rank()

    # ============ Admission ============

    def poll(self):
        if not hasattr(self, "_queue"):
            self._queue: list = []
        self._queue.extend(self.take(self.LIMIT))
    # ============ Not a banner: inside a method ============
        dist.broadcast_object_list(self._queue, src=0)
        dist.get_world_size()
        return getattr(self, "name", None) or self.rank

    # ============ End Admission ============

    def take(self, count):
        callback = self.poll
        return [callback for _ in range(count)]

    # ------------------------------
    # Phases
    # ------------------------------

    def switch(self, key):
        del self.model
        setattr(self, key, 1)
        setattr(self, "mode", 2)
        os.environ["PHASE"] = key

        def later():
            return self.mode

        return sorted([later()], key=lambda item: self.rank)

    @staticmethod
    def flag():
        """# ============ Not a banner ============"""
        return os.getenv("FLAG"), os.environ.get("OTHER", "0")

    def take(self, count, *extra):
        self.count += count
        return consume(self)
'''


@pytest.fixture(scope="module")
def found() -> Inventory:
    return take_inventory("worker.py", WORKER.encode())


def method(found: Inventory, name: str, index: int = 0) -> MethodReport:
    return [m for m in found.methods if m.name == name][index]


def inventory_of(body: str, head: str = "", **options: Any) -> Inventory:
    """Inventory of a class W with that body."""
    text = f"{textwrap.dedent(head)}\nclass W:\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
    return take_inventory("w.py", text.encode(), "W", **options)


def one(body: str, head: str = "", parameters: str = "self") -> MethodReport:
    """Report of a method `go` with that body."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return method(inventory_of(f"def go({parameters}):\n{lines}", head), "go")


# Sections


def test_the_longest_class_is_taken_and_the_others_named(found: Inventory):
    assert (found.class_name, found.other_classes) == ("Worker", ("Other",))
    assert take_inventory("worker.py", WORKER.encode(), "Other").methods == ()


def test_sections_cover_every_line_and_gaps_show_as_gaps(found: Inventory):
    assert [(s.title, s.methods) for s in found.sections] == [
        (None, 1),
        ("Admission", 1),
        (None, 1),
        ("Phases", 3),
    ]
    ends = [(s.first_line, s.last_line) for s in found.sections]
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(ends))
    assert ends[0][0] == found.first_line and ends[-1][1] == found.last_line == len(WORKER.splitlines())


def test_every_section_has_a_label_of_its_own():
    found = inventory_of(
        "# ===== A =====\ndef a(self): ...\n# ===== End A =====\ndef b(self): ...\n# ===== A =====\ndef c(self): ..."
    )
    labels = [section.label for section in found.sections]
    assert len(set(labels)) == len(labels) == 4
    assert [m.group for m in found.methods] == labels[1:]
    assert [m.section for m in found.methods] == ["A", None, "A"]


def test_code_in_comments_and_strings_is_not_counted():
    report = one('# self.a = 1; dist.barrier()\n"""self.b = os.getenv("X")"""\nif self.c:\n    "self.d = 1"')
    assert (report.reads, report.writes, report.environment, report.collectives) == (("c",), (), (), ())


def test_layout_names_tabs_mixed_lines_and_line_ends():
    text = b"class W:\r\n\tdef a(self):\r\n\t\treturn (1,\r\n\t\t        2)\r\n"
    layout = take_inventory("w.py", text).layout
    assert (layout.indentation, layout.mixed_lines, layout.line_end, layout.size) == (
        "tabs",
        1,
        "CRLF",
        len(text),
    )


# Attributes


def test_reads_writes_and_calls(found: Inventory):
    poll = method(found, "poll")
    assert poll.reads == ("LIMIT", "_queue", "name", "rank")
    assert poll.writes == ("_queue",) and poll.calls == ("take",) and poll.mutates == ("_queue",)
    assert method(found, "take", 1).writes == ("count",)


def test_lazy_attributes_are_those_that_init_does_not_make(found: Inventory):
    assert found.lazy_attributes == ("_queue", "count", "mode")
    assert method(found, "poll").creates_lazily == ("_queue",)
    made = {attribute.name: attribute.made for attribute in found.attributes}
    assert made == {
        "LIMIT": "class body",
        "_queue": "lazily",
        "count": "lazily",
        "mode": "lazily",
        "model": "init",
        "name": "elsewhere",
        "rank": "init",
    }


def test_what_a_helper_of_init_makes_is_not_lazy_unless_it_is_conditional():
    found = inventory_of(
        """
        def __init__(self, n):
            self.setup()
            if n:
                self.extra = 1
        def setup(self):
            self.ready = True
        """
    )
    made = {attribute.name: attribute.made for attribute in found.attributes}
    assert made == {"ready": "init", "extra": "init, some ways"}
    assert method(found, "setup").creates_lazily == ()


@pytest.mark.parametrize(
    ("body", "writes"),
    [
        ("self.a: dict = {}", ("a",)),
        ("self.a: dict", ()),
        ("self.a, (self.b, *self.c) = x", ("a", "b", "c")),
        ("self.a += 1", ("a",)),
        ("for self.a in x: pass", ("a",)),
        ("with x as self.a: pass", ("a",)),
        ("setattr(self, 'a', 1)", ("a",)),
        ("worker = self\nworker.a = 1", ("a",)),
        ("self.a.b = 1", ()),
        ("self.__class__ = x", ()),
    ],
)
def test_every_way_to_assign_an_attribute_is_a_write(body: str, writes: tuple[str, ...]):
    assert one(body).writes == writes


def test_changes_in_place_are_told_from_assignments():
    report = one(
        "self.a[1] = 2\nself.b.append(1)\ntasks = self.c\ntasks.clear()\nself.d.e.pop()\ndel self.f[0]"
    )
    assert (report.writes, report.mutates) == ((), ("a", "b", "c", "f"))
    assert [(w.holder, w.target, w.attribute, w.how) for w in report.state_writes] == [
        ("object", "self.d", "e", "call")
    ]


def test_the_attribute_table_names_the_methods():
    found = inventory_of(
        "def a(self):\n    self.x = 1\ndef b(self):\n    return self.x\ndef c(self):\n    del self.x"
    )
    (attribute,) = found.attributes
    assert (attribute.writers, attribute.readers, attribute.deleters) == (("a",), ("b",), ("c",))


# Reflection


def test_reflection_with_and_without_a_name(found: Inventory):
    assert [(r.kind, r.attribute) for r in method(found, "poll").reflection] == [
        ("hasattr", "_queue"),
        ("getattr", "name"),
    ]
    assert [(r.kind, r.attribute) for r in method(found, "switch").reflection] == [
        ("delete", "model"),
        ("dynamic", None),
        ("setattr", "mode"),
    ]
    assert method(found, "switch").deletes == ("model",)


def test_reflection_on_other_objects_is_listed_apart():
    report = one(
        "getattr(getattr(self, 'a', None), 'b', None)\nhasattr(self.c, 'd')\nsetattr(self.c.e, k, 1)"
    )
    assert [(r.kind, r.attribute) for r in report.reflection] == [("getattr", "a")]
    assert [(r.kind, r.on, r.attribute) for r in report.reflection_elsewhere] == [
        ("getattr", "getattr(self, 'a', None)", "b"),
        ("hasattr", "self.c", "d"),
        ("setattr", "self.c.e", None),
    ]
    assert [(w.target, w.attribute) for w in report.state_writes] == [("self.c.e", "<k>")]


# Closures and escapes


def test_closures_escapes_collectives_environment(found: Inventory):
    switch = method(found, "switch")
    assert [name.split(":")[0] for name in switch.nested_over_self] == ["later", "lambda"]
    assert [c.name for c in method(found, "poll").collectives] == ["dist.broadcast_object_list"]
    assert [(use.variable, use.how) for use in switch.environment] == [("PHASE", "write")]
    assert [use.variable for use in method(found, "flag").environment] == ["FLAG", "OTHER"]


@pytest.mark.parametrize(
    ("body", "what", "how"),
    [
        ("consume(self)", "self", "argument of consume"),
        ("x.y(key=self)", "self", "argument of x.y"),
        ("return self", "self", "returned"),
        ("self.parts = [self]", "self", "stored in self.parts"),
        ("cache[1] = self", "self", "stored in cache[...]"),
        ("worker = self", "self", "stored in worker"),
        ("return {1: self.other}", "other", "returned"),
        ("Attn.callback = self.other", "other", "stored in Attn.callback"),
        ("f(key=lambda: self.other)", "other", "result of a lambda"),
        ("def g(x=self.other): ...", "other", "a default"),
        ("return self == 1", "self", "compared"),
        ("return f'{self}'", "self", "formatted"),
        ("yield self", "self", "yielded"),
    ],
)
def test_an_escape_says_where_self_or_the_method_goes(body: str, what: str, how: str):
    lines = textwrap.indent(body, "    ")
    found = inventory_of(f"def go(self):\n{lines}\ndef other(self): ...")
    assert [(e.what, e.how) for e in method(found, "go").escapes] == [(what, how)]


@pytest.mark.parametrize(
    "body",
    ["type(self)", "isinstance(self, int)", "hasattr(self, 'a')", "self.other()", "super(W, self).go()"],
)
def test_looking_at_self_is_no_escape(body: str):
    found = inventory_of(f"def go(self):\n    {body}\ndef other(self): ...")
    assert method(found, "go").escapes == ()


def test_a_parameter_of_that_name_is_another_self():
    report = one("consume(self)\nf(lambda self: other(self))")
    assert [escape.how for escape in report.escapes] == ["argument of consume"]


def test_a_nested_class_over_an_alias_of_self_is_a_closure():
    report = one(
        "worker = self\nclass Backend:\n    def stats(self):\n        return worker.pages\nreturn Backend()"
    )
    assert report.self_aliases == ("worker",) and report.reads == ("pages",)
    assert report.nested_over_self == ("stats", "Backend")


def test_a_property_is_run_not_passed():
    found = inventory_of("@property\ndef p(self): ...\ndef go(self):\n    return self.p")
    go = method(found, "go")
    assert (go.properties, go.escapes, go.reads) == (("p",), (), ())


# Collectives and the environment


@pytest.mark.parametrize(
    ("head", "body", "origin"),
    [
        ("import torch.distributed as dist", "dist.all_reduce(x)", "torch.distributed.all_reduce"),
        ("import torch", "torch.distributed.barrier()", "torch.distributed.barrier"),
        ("from torch import distributed", "distributed.new_group()", "torch.distributed.new_group"),
        ("from torch.distributed import all_gather as ag", "ag(x)", "torch.distributed.all_gather"),
        ("", "import torch.distributed as d\nd.send(x)", "torch.distributed.send"),
        ("import torch.distributed as dist", "d = dist\nd.recv(x)", "torch.distributed.recv"),
        ("", "self.group.all_reduce(x)", None),
        ("", "get_group().broadcast_tensor_dict(x)", None),
        (
            "from lib import tensor_model_parallel_all_reduce as r",
            "r(x)",
            "lib.tensor_model_parallel_all_reduce",
        ),
    ],
)
def test_collectives_are_found_through_aliases_and_groups(head: str, body: str, origin: str | None):
    assert [c.origin for c in one(body, head).collectives] == [origin]


def test_calls_of_one_rank_and_names_that_mean_something_else_are_no_collectives():
    head = "import torch.distributed as dist\nfrom torch.distributed import ReduceOp\nimport numpy as np"
    body = "dist.get_rank()\ndist.is_initialized()\ndist.TCPStore()\nnp.broadcast(a)\nself.send(x)"
    assert one(body, head).collectives == ()
    assert one("dist.all(x)", head, "self, dist").collectives == ()


@pytest.mark.parametrize(
    ("body", "conditional"),
    [
        ("dist.barrier()", False),
        ("with x:\n    dist.barrier()", False),
        ("try:\n    dist.barrier()\nfinally:\n    pass", False),
        ("def inner():\n    return 1\ndist.barrier()", False),
        ("if self.a:\n    dist.barrier()", True),
        ("if self.a:\n    return\ndist.barrier()", True),
        ("while self.a:\n    dist.barrier()", True),
        ("self.a and dist.barrier()", True),
        ("f(lambda: dist.barrier())", True),
        ("try:\n    pass\nexcept E:\n    dist.barrier()", True),
    ],
)
def test_a_collective_that_not_every_call_reaches_is_conditional(body: str, conditional: bool):
    (found,) = one(body, "import torch.distributed as dist").collectives
    assert found.conditional is conditional


@pytest.mark.parametrize(
    ("head", "body", "variable", "how"),
    [
        ("import os as _os", "_os.getenv('A')", "A", "read"),
        ("from os import environ, getenv", "getenv('A')", "A", "read"),
        ("from os import environ, getenv", "environ['A']", "A", "read"),
        ("from os import environ as e", "e.get('A')", "A", "read"),
        ("import os", "'A' in os.environ", "A", "read"),
        ("import os", "os.environ['A'] = '1'", "A", "write"),
        ("import os", "os.environ.setdefault('A', '1')", "A", "write"),
        ("import os", "del os.environ['A']", "A", "write"),
        ("import os", "dict(os.environ)", "*", "read"),
        ("import os", "os.getenv(f'A_{n}')", "f'A_{n}'", "read"),
        ("", "import os as _os\n_os.environ.get('A')", "A", "read"),
        ("import vllm.envs as envs", "envs.A", "A", "read"),
    ],
)
def test_the_environment_is_found_through_aliases(head: str, body: str, variable: str, how: str):
    assert [(use.variable, use.how) for use in one(body, head).environment] == [(variable, how)]


def test_the_environment_under_another_name():
    uses = one("env = os.environ\nreturn env['A']", "import os").environment
    assert [(use.variable, use.line) for use in uses] == [("*", 4), ("A", 5)]


def test_a_local_variable_hides_an_import():
    assert one("os = self.system\nos.getenv('A')", "import os").environment == ()
    assert one("os.getenv('A')", "import os", "self, os").environment == ()


def test_what_runs_at_import_reads_the_environment_too():
    head = "import os\nDEBUG = os.getenv('DEBUG')\ndef f():\n    os.getenv('NOT_THIS')\n"
    found = inventory_of("SIZE = int(os.environ.get('SIZE', '1'))\ndef go(self): ...", head)
    assert [use.variable for use in found.module.environment] == ["DEBUG", "SIZE"]


# State of classes and modules


@pytest.mark.parametrize(
    ("body", "holder", "target", "attribute", "how"),
    [
        ("W.LIMIT = 1", "class", "W", "LIMIT", "set"),
        ("type(self).LIMIT += 1", "class", "W", "LIMIT", "augment"),
        ("self.__class__.LIMIT = 1", "class", "W", "LIMIT", "set"),
        ("klass = type(self)\nklass.LIMIT = 1", "class", "W", "LIMIT", "set"),
        ("del W.LIMIT", "class", "W", "LIMIT", "delete"),
        ("setattr(W, 'LIMIT', 1)", "class", "W", "LIMIT", "set"),
        ("W.TABLE[1] = 2", "class", "W", "TABLE", "item"),
        ("self.TABLE[1] = 2", "class", "W", "TABLE", "item"),
        ("Helper.x = 1", "class", "Helper", "x", "set"),
        ("global COUNT\nCOUNT = 1", "global", "", "COUNT", "set"),
        ("global COUNT\nCOUNT += 1", "global", "", "COUNT", "augment"),
        ("CACHE['a'] = 1", "global", "", "CACHE", "item"),
        ("CACHE['a']['b'] = 1", "global", "", "CACHE", "item"),
        ("CACHE.update(a=1)", "global", "", "CACHE", "call"),
        ("globals()['COUNT'] = 1", "global", "", "COUNT", "set"),
        ("Attn.x = 1", "imported", "lib.attention.Wrapper", "x", "set"),
        ("Attn_Alias.x = 1", "imported", "lib.attention.Wrapper", "x", "set"),
        (
            "A = Attn\ndef g():\n    nonlocal A\n    A.x = 1\n    A = None",
            "imported",
            "lib.attention.Wrapper",
            "x",
            "set",
        ),
        ("A = Attn\nA.x = 1", "imported", "lib.attention.Wrapper", "x", "set"),
        ("from lib.attention import Wrapper as V\nV.x = 1", "imported", "lib.attention.Wrapper", "x", "set"),
        ("lib.attention.Wrapper.x = 1", "imported", "lib.attention.Wrapper", "x", "set"),
        ("Attn.tasks.append(1)", "imported", "lib.attention.Wrapper", "tasks", "call"),
        ("lib.switch = 1", "imported", "lib", "switch", "set"),
        ("self.engine.kv = 1", "object", "self.engine", "kv", "set"),
        ("engine = self.engine\nengine.kv = 1", "object", "self.engine", "kv", "set"),
        ("self.__class__ = x", "object", "self", "__class__", "set"),
    ],
)
def test_writes_that_an_analysis_of_self_does_not_see(
    body: str, holder: str, target: str, attribute: str, how: str
):
    head = """
    import lib.attention
    from lib.attention import Wrapper as Attn
    Attn_Alias = Attn
    COUNT = 0
    CACHE = {}
    class Helper: ...
    """
    found = inventory_of(f"TABLE = {{}}\ndef go(self):\n{textwrap.indent(body, '    ')}", head)
    writes = [(w.holder, w.target, w.attribute, w.how) for w in method(found, "go").state_writes]
    assert writes == [(holder, target, attribute, how)]


def test_several_class_attributes_in_one_statement():
    report = one("Attn.a, Attn.b = 1, 2", "from lib import Attn")
    assert [w.attribute for w in report.state_writes] == ["a", "b"]


def test_a_class_method_writes_to_the_class_not_to_an_object():
    found = inventory_of("@classmethod\ndef go(cls):\n    cls.x = cls.y")
    go = method(found, "go")
    assert (go.writes, go.reads, found.lazy_attributes) == ((), ("y",), ())
    assert [(w.holder, w.attribute) for w in go.state_writes] == [("class", "x")]


@pytest.mark.parametrize(
    "body",
    [
        "Attn = self.attn\nAttn.x = 1",
        "for Attn in x:\n    Attn.x = 1",
        "np.append(a, b)",
        "torch.add(a)",
        "seq.x = 1",
    ],
)
def test_writes_to_locals_and_plain_calls_are_not_reported(body: str):
    report = one(body, "import numpy as np, torch\nfrom lib import Attn", "self, seq")
    assert [w for w in report.state_writes if w.holder != "object"] == []


# Definitions


def test_duplicate_definitions_point_at_each_other(found: Inventory):
    first, second = method(found, "take"), method(found, "take", 1)
    assert first.other_definitions == (second.first_line,) and second.other_definitions == (first.first_line,)
    assert found.duplicates == ("take",)


def test_accessors_and_overloads_are_no_duplicates():
    found = inventory_of(
        """
        @property
        def p(self): ...
        @p.setter
        def p(self, value): ...
        @overload
        def f(self, a: int): ...
        @overload
        def f(self, a: str): ...
        def f(self, a): ...
        """
    )
    assert found.duplicates == ()
    assert [m.kind for m in found.methods] == ["property", "accessor", "overload", "overload", "method"]


def test_names_that_are_hard_to_tell_apart():
    found = inventory_of(
        "def put_onhold(self): ...\ndef put_on_hold(self): ...\ndef get(self): ...\ndef set(self): ..."
    )
    assert [(d.first, d.second, d.difference) for d in found.near_duplicates] == [
        ("put_on_hold", "put_onhold", "underscores")
    ]
    differences = {d.difference for d in near_duplicates(["_take", "take", "release_page", "release_pages"])}
    assert differences == {"leading underscore", "one letter"}
    assert near_duplicates(["get_state", "set_state", "page", "pages", "__enter__", "enter"]) == ()


def test_kinds_of_definitions():
    found = inventory_of(
        """
        def __len__(self): ...
        @staticmethod
        def s(): ...
        @functools.cached_property
        def c(self): ...
        async def a(self): ...
        def g(self):
            yield 1
        def not_g(self):
            def inner():
                yield 1
        if FLAG:
            def maybe(self): ...
        @contextmanager
        def d(self, x, /, *, y=1):
            yield
        """
    )
    kinds = {m.name: (m.kind, m.asynchronous, m.generator, m.conditional) for m in found.methods}
    assert kinds == {
        "__len__": ("special method", False, False, False),
        "s": ("static method", False, False, False),
        "c": ("property", False, False, False),
        "a": ("method", True, False, False),
        "g": ("method", False, True, False),
        "not_g": ("method", False, False, False),
        "maybe": ("method", False, False, True),
        "d": ("method", False, True, False),
    }
    assert method(found, "d").decorators == ("contextmanager",)
    assert method(found, "d").signature == "(self, x, /, *, y=1)"


def test_super_private_names_and_the_end_of_the_process():
    report = one("super().go()\nself.__secret = self.__dunder__\nos._exit(1)\nsys.exit()", "import os, sys")
    assert report.super_calls == ("go",) and report.private_names == ("__secret",)
    assert [name for name, _ in report.exits] == ["os._exit", "sys.exit"]


# Names and imports


def test_local_imports_and_those_that_may_fail():
    report = one(
        "from lib.sequence import SIZE\ntry:\n    import kda as k\nexcept ImportError:\n    k = None"
    )
    assert [(i.origin, i.name, i.guarded) for i in report.local_imports] == [
        ("lib.sequence.SIZE", "SIZE", False),
        ("kda", "k", True),
    ]


def test_names_of_the_module_and_those_that_functions_rebind():
    head = "SIZE = 1\nlogger = get()\ndef helper(): ...\ndef configure():\n    global SIZE\n    SIZE = 2\nimport late\n"
    found = inventory_of("def go(self, helper):\n    return SIZE, logger, helper, late", head)
    assert method(found, "go").module_names == ("SIZE", "logger")
    assert found.module.rebound_globals == ("SIZE",)
    assert found.module.imports_after_code == (7,)


# Selection, JSON, the command


def test_one_section_keeps_the_users_of_its_attributes_everywhere(found: Inventory):
    chosen = select_section(found, "phases")
    assert [m.name for m in chosen.methods] == ["switch", "flag", "take"]
    (rank,) = [attribute for attribute in chosen.attributes if attribute.name == "rank"]
    assert rank.readers == ("poll", "switch")
    assert all("Phases" in (pair.source, pair.target) for pair in chosen.coupling.pairs)
    with pytest.raises(NotFound, match="did you mean 'Phases'"):
        select_section(found, "Phase")


def test_one_method_in_every_definition(found: Inventory):
    assert [m.first_line for m in select_method(found, "take").methods] == [
        m.first_line for m in found.methods if m.name == "take"
    ]
    with pytest.raises(NotFound, match="did you mean 'switch'"):
        select_method(found, "swich")


def migrate(*arguments: str | Path, columns: int = 200) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from migration.cli import main; main()", "inventory", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": str(columns)},
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "worker.py"
    path.write_text(WORKER, encoding="utf-8")
    return path


def test_tables_and_json_say_the_same(found: Inventory, file: Path):
    tables, values = migrate(file), migrate(file, "--json")
    data = json.loads(values.stdout)
    assert (data["schema"], data["class"]) == (1, "Worker")
    assert [m["name"] for m in data["methods"]] == [m.name for m in found.methods]
    for name in (
        "Admission",
        "Phases",
        "(no banner)",
        "6 methods",
        "3 created outside __init__",
        "1 defined more",
        "collective dist.broadcast_object_list",
        "env PHASE",
        "passes poll (stored in callback)",
    ):
        assert name in tables.stdout, tables.stdout


def test_the_tables_fit_into_80_columns():
    long = "x" * 40
    path = ROOT / "batchgen" / "batchgen_worker.py"
    for arguments in ((path,), (path, "--section", "Phase Configuration"), (path, "--clusters")):
        shown = migrate(*arguments, columns=80).stdout
        tables = shown[shown.index("Sections") :].split("methods, ")[0].splitlines()
        assert tables and max(map(len, tables)) <= 80, max(tables, key=len)
        assert "…" not in shown
    assert long not in shown


def test_a_section_a_method_and_the_prover_from_the_shell(file: Path):
    section = migrate(file, "--section", "Admission").stdout
    assert "poll" in section and "switch" not in section and "Ways in and out" in section
    details = migrate(file, "--method", "switch").stdout
    assert "Worker.switch(self, key)" in details and "env: PHASE" in details and "poll" not in details
    proofs = migrate(file, "--hasattr").stdout
    assert "hasattr(self, '_queue')" in proofs and "2 tests: 0 always, 0 never, 2 depends" in proofs
    data = json.loads(migrate(file, "--hasattr", "--json", "--method", "poll").stdout)
    assert [finding["attribute"] for finding in data["hasattr"]] == ["_queue", "name"]


def test_an_unknown_section_or_method_is_wrong_usage(file: Path):
    for option, value in (("--section", "Fases"), ("--method", "swich")):
        run = migrate(file, option, value)
        assert run.returncode == 64 and "did you mean" in run.stderr and not run.stdout


def test_the_prover_searches_the_repository_around_the_file(tmp_path: Path):
    package = tmp_path / "app"
    package.mkdir()
    (tmp_path / "pyproject.toml").touch()
    worker = package / "w.py"
    worker.write_text(
        "class W:\n    def __init__(self):\n        self.x = 1\n    def f(self):\n        hasattr(self, 'x')\n"
    )
    assert "1 always" in migrate(worker, "--hasattr").stdout
    (tmp_path / "d.py").write_text("from app.w import W\nclass D(W):\n    def g(self):\n        del self.x\n")
    assert "0 always" in migrate(worker, "--hasattr").stdout
    assert "1 always" in migrate(worker, "--hasattr", "--repo", package).stdout
    assert migrate(worker, "--hasattr", "--repo", tmp_path / "d.py").returncode == 3


def test_the_inventory_loads_neither_libcst_nor_rich_for_json(file: Path):
    code = (
        "import sys; sys.argv[1:] = ['inventory', sys.argv[1], '--json']\n"
        "from migration.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    print({m.split('.')[0] for m in sys.modules}, file=sys.stderr)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "'libcst'" not in run.stderr and "'rich'" not in run.stderr and "'torch'" not in run.stderr


def test_every_field_of_the_json_is_documented():
    page = (ROOT / "docs" / "inventory.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+)`", page))
    seen: set[type] = set()

    def visit(kind: Any) -> None:
        for part in get_args(kind):
            visit(part)
        if is_dataclass(kind) and isinstance(kind, type) and kind not in seen:
            seen.add(kind)
            hints = get_type_hints(kind)
            for field in fields(kind):
                name = "class" if field.name == "class_name" else field.name
                assert name in named, f"{kind.__name__}.{field.name} is not in docs/inventory.md"
                visit(hints[field.name])

    visit(reports.Inventory)
    visit(HasattrFinding)
    assert len(seen) > 15


def test_the_worker_of_this_repository_shows_its_habits():
    found = take_inventory("w.py", (ROOT / "batchgen" / "batchgen_worker.py").read_bytes(), "BatchGenWorker")
    assert found.layout.indentation == "tabs"
    assert ("_put_sequences_on_hold", "_put_sequences_onhold") in [
        (d.first, d.second) for d in found.near_duplicates
    ]
    singletons = [w for m in found.methods for w in m.state_writes if w.target.endswith("AttnWrapperBase")]
    assert len(singletons) > 30
    assert any(
        w.attribute == "DECISION_INTERVAL" and w.holder == "class"
        for m in found.methods
        for w in m.state_writes
    )
