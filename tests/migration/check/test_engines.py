"""What an expression stands for, what has happened on every way, and which collectives a way makes."""

from __future__ import annotations

import ast
import textwrap

import pytest

from migration.check.objects import HandlerObjects, as_way
from migration.check.order import Event, follow
from migration.check.ranks import Collectives, partings
from migration.check.rules.calls import called
from migration.code.module_names import module_names
from migration.code.source import Source
from migration.code.structure import outline

from .support import RECIPE


def function(text: str) -> ast.FunctionDef:
    node = ast.parse(textwrap.dedent(text)).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


VIEW = as_way("self.core_engine.host_paged_kv_worker_view")


@pytest.mark.parametrize(
    "body",
    [
        "return self._state.core_engine.host_paged_kv_worker_view",
        "e = self._state.core_engine\nreturn e.host_paged_kv_worker_view",
        "a = b = self._state\nc = b.core_engine\nreturn c.host_paged_kv_worker_view",
        "x, e = 1, self._state.core_engine\nreturn e.host_paged_kv_worker_view",
        "return (e := self._state.core_engine).host_paged_kv_worker_view",
        "e: object = self._state.core_engine\nreturn e.host_paged_kv_worker_view",
        "e = self._state.core_engine if u else None\nreturn e.host_paged_kv_worker_view",
        "e = u or self._state.core_engine\nreturn e.host_paged_kv_worker_view",
        "e = cast('Engine', self._state.core_engine)\nreturn e.host_paged_kv_worker_view",
        "return getattr(self._state.core_engine, 'host_paged_kv_worker_view', None)",
        "return getattr(getattr(self._state, 'core_engine'), 'host_paged_kv_worker_view')",
        "return hasattr(self._state.core_engine, 'host_paged_kv_worker_view')",
        "return vars(self._state.core_engine)['host_paged_kv_worker_view']",
        "return self._state.core_engine.__dict__['host_paged_kv_worker_view']",
        "return 'host_paged_kv_worker_view' in vars(self._state.core_engine)",
        "e = self._state.core_engine\ndef f():\n    return e.host_paged_kv_worker_view\nreturn f",
        "return [e.host_paged_kv_worker_view for e in (1,) if (e := self._state.core_engine)]",
        "return lambda: self._state.core_engine.host_paged_kv_worker_view",
        "return self.engine().host_paged_kv_worker_view",
        "return self.also.host_paged_kv_worker_view",
        "with self._state.core_engine as e:\n    return e.host_paged_kv_worker_view",
        "del self._state.core_engine.host_paged_kv_worker_view",
        "setattr(self._state.core_engine, 'host_paged_kv_worker_view', u)",
    ],
)
def test_an_object_is_known_by_every_spelling(body: str):
    text = f"""
class KVCacheManager:
    def engine(self):
        return self._state.core_engine

    @property
    def also(self):
        e = self.engine()
        return e

    def read(self, u):
{textwrap.indent(body, "        ")}
"""
    shape = outline(Source("h.py", text.encode()), "KVCacheManager")
    objects = HandlerObjects(RECIPE, shape.methods)
    (read,) = shape.definitions("read")
    assert any(VIEW in access.ways for access in objects.accesses(read.node))


@pytest.mark.parametrize(
    "body",
    [
        "return self._host_kv.free_pages()",
        "e = self._state.core_engine\nreturn lambda e: e.host_paged_kv_worker_view",
        "def f(self):\n    return self._state.core_engine.host_paged_kv_worker_view\nreturn f",
        "return u.host_paged_kv_worker_view",
        "return self._executor.core_engine.host_paged_kv_worker_view",
        "return 'self._state.core_engine.host_paged_kv_worker_view'",
    ],
)
def test_another_object_is_not_taken_for_it(body: str):
    text = f"class KVCacheManager:\n    def read(self, u):\n{textwrap.indent(body, '        ')}\n"
    shape = outline(Source("h.py", text.encode()), "KVCacheManager")
    objects = HandlerObjects(RECIPE, shape.methods)
    assert not any(VIEW in access.ways for access in objects.accesses(shape.methods[0].node))


def order_event(node: ast.AST) -> Event | None:
    return {"a": Event(does="a"), "b": Event(needs="a")}.get(called(node))


@pytest.mark.parametrize(
    ("body", "holds"),
    [
        ("a()\nb()", True),
        ("b()\na()", False),
        ("if x:\n    a()\nb()", False),
        ("if x:\n    a()\nelse:\n    a()\nb()", True),
        ("if x:\n    return\na()\nb()", True),
        ("for x in y:\n    a()\nb()", False),
        ("while True:\n    a()\n    break\nb()", True),
        ("while True:\n    if x:\n        break\n    a()\nb()", False),
        ("x and a()\nb()", False),
        ("b(a())", True),
        ("a() if x else c()\nb()", False),
        ("[a() for _ in x]\nb()", False),
        ("try:\n    a()\nexcept E:\n    pass\nb()", False),
        ("try:\n    a()\nexcept E:\n    raise\nb()", True),
        ("try:\n    c()\nfinally:\n    a()\nb()", True),
        ("try:\n    a()\nfinally:\n    b()", True),
        ("try:\n    c()\n    a()\nexcept E:\n    b()", False),
        ("with m():\n    a()\nb()", True),
        ("match x:\n    case 1:\n        a()\n    case _:\n        a()\nb()", True),
        ("match x:\n    case 1:\n        a()\nb()", False),
        ("def f():\n    a()\nb()", False),
        ("f = lambda: a()\nb()", False),
        ("for x in y:\n    if x:\n        continue\n    a()\n    b()", True),
        ("raise E(a())\nb()", True),
    ],
)
def test_one_call_is_before_the_other_on_every_way(body: str, holds: bool):
    found = follow(function(f"def f():\n{textwrap.indent(body, '    ')}\n"), order_event)
    assert (not found.early) == holds


def settle_event(node: ast.AST) -> Event | None:
    return {"begin": Event(begins=True), "settle": Event(settles=True)}.get(called(node))


@pytest.mark.parametrize(
    ("body", "holds"),
    [
        ("begin()\nsettle()", True),
        ("settle()\nbegin()", False),
        ("begin()\nif x:\n    return\nsettle()", False),
        ("begin()\nif x:\n    raise E\nsettle()", True),
        ("if x:\n    begin()\nsettle()", True),
        ("begin()\nfor x in y:\n    settle()", False),
        ("for x in y:\n    settle()\n    begin()", False),
        ("for x in y:\n    begin()\n    settle()", True),
        ("for x in y:\n    begin()\n    if x:\n        continue\n    settle()", False),
        ("for x in y:\n    begin()\n    break\nsettle()", True),
        ("try:\n    begin()\n    return\nfinally:\n    settle()", True),
        ("try:\n    begin()\nexcept E:\n    return\nsettle()", False),
        ("try:\n    begin()\n    settle()\nexcept E:\n    pass", False),
        ("while True:\n    try:\n        begin()\n        break\n    finally:\n        settle()", True),
        ("with begin():\n    settle()", True),
        ("x or begin()\nsettle()", True),
        ("x or begin()", False),
        ("return begin()", False),
    ],
)
def test_what_is_begun_is_settled_on_every_way(body: str, holds: bool):
    found = follow(function(f"def f():\n{textwrap.indent(body, '    ')}\n"), settle_event)
    assert (not found.unsettled) == holds


MODULE = """
import os
import torch.distributed as dist

def group(self):
    if self.g is None:
        self.g = dist.new_group()
    return self.g

def agree(self):
    dist.barrier()
"""


@pytest.mark.parametrize(
    ("body", "holds"),
    [
        ("dist.barrier()", True),
        ("if self.rank == 0:\n    dist.barrier()", False),
        ("if self.rank == 0:\n    print()\ndist.barrier()", True),
        ("if self.rank == 0:\n    dist.broadcast(x, 0)\nelse:\n    dist.broadcast(y, 0)", True),
        ("if self.rank == 0:\n    dist.broadcast(x, 0)\nelse:\n    dist.barrier()", False),
        ("if self.world_size == 1:\n    return\ndist.barrier()", True),
        ("if not local_ids:\n    return\ndist.barrier()", False),
        ("if not local_ids:\n    raise E\ndist.barrier()", True),
        ("if dist.get_rank():\n    dist.barrier()", False),
        ("lead = self.rank == 0\nif lead:\n    dist.barrier()", False),
        ("n = dist.all_reduce(self.rank)\nif n:\n    dist.barrier()", True),
        ("if self.rank == src:\n    dist.send(x, 1)\nelse:\n    dist.recv(x, 0)", True),
        ("for i in local_ids:\n    dist.barrier()", False),
        ("for i in self.world:\n    dist.barrier()", True),
        ("for i in self.world:\n    if i == self.local_rank:\n        continue\n    dist.barrier()", False),
        ("while self.rank < x:\n    dist.barrier()", False),
        ("if self.rank == 0:\n    self.agree()", False),
        ("self.group()\nif self.rank in x:\n    self.group()", True),
        ("if self.rank in x:\n    self.group()", False),
        ("with m():\n    if self.rank:\n        dist.barrier()", False),
        ("try:\n    if self.rank:\n        dist.barrier()\nfinally:\n    pass", False),
        ("if os.environ.get('DEBUG'):\n    dist.barrier()", False),
        ("if os.environ.get('AGREED'):\n    dist.barrier()", True),
        ("if self.free > 1:\n    dist.barrier()", False),
        ("if self.other > 1:\n    dist.barrier()", True),
        ("if self.rank == 0:\n    if x:\n        return\ndist.barrier()", False),
    ],
)
def test_ranks_make_the_same_collectives(body: str, holds: bool):
    module = ast.parse(MODULE)
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    names = module_names(module, MODULE.encode())
    known = Collectives((names,), functions, frozenset({"free"}), frozenset({"AGREED"}))
    node = function(f"def f(self, local_ids, x):\n{textwrap.indent(body, '    ')}\n")
    found, looked = partings(node, known)
    assert (not found) == holds
    assert looked or "send" in body
