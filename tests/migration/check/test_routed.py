"""A handler that is bound to a request, and a class written by hand between it and the worker."""

from __future__ import annotations

import pytest

from migration.check.model import Report
from migration.recipe import parse_recipe
from migration.recipe_checklist import PHASES

from ..request_slice import TEXT
from ..support import worker_source
from .support import Phases, edited, in_phases, report

CHECKED = (
    TEXT
    + """
[gate]
route = "app.native:Native"

[checklist.flag]
owner = "KV"
introduced = 2026-06-01

[[checklist.items]]
title = "Constructor exactly (*, gpu_kv, host_kv)."
rule = "constructor"
signature = "(self, *, gpu_kv: GpuKvBackend, host_kv: HostKvBackend)"
"""
)
HANDLER = "app/parts/cache.py"
METHODS = """
def admit(self, uuid: str, wanted: int) -> list[int]:
    if self.room() < wanted:
        return self.host.allocate_pages(uuid, wanted)
    return self._take_pages(uuid, wanted)

def room(self) -> int:
    return self.pool.free_pages() - self.watermark
"""
HEAD = """
from app.backends import Pool
"""
TAIL = """
    # ============ Rest ============

    def attach(self, pool, host):
        self.pool = pool
        self.host = host
        self.watermark = 2

    def _take_pages(self, uuid, n):
        return [0] * n
"""
BACKENDS = """
class Pool:
    pass


class PoolBackend:
    def __init__(self, read):
        self._read = read

    def allocate_pages(self, uuid, n):
        return self._read().take(uuid, n)

    def release_pages(self, uuid):
        self._read().give_back(uuid)

    def free_pages(self):
        return self._read().left


class HostBackend:
    def __init__(self, read):
        self._read = read

    def allocate_pages(self, uuid, n):
        return self._read().take(uuid, n)
"""
NATIVE = """
from app.parts.cache import CacheManager


class Native:
    def __init__(self, worker):
        self.handler = CacheManager.for_worker(worker)

    @classmethod
    def for_worker(cls, worker):
        return cls(worker)

    def admit(self, uuid: str, wanted: int):
        return self.handler.admit(uuid, wanted)

    def room(self):
        return self.handler.room()
"""


@pytest.fixture(scope="module")
def routed() -> Phases:
    files = {
        "app/__init__.py": b"",
        "app/worker.py": worker_source(METHODS, HEAD, TAIL),
        "app/backends.py": BACKENDS.encode(),
        "app/native.py": NATIVE.encode(),
    }
    return in_phases(parse_recipe(CHECKED, "cache.toml"), files)


def checked(routed: Phases, phase: str, files: dict[str, bytes] | None = None) -> Report:
    there, proof = routed[phase]
    return report(files or there, phase, text=CHECKED, proof=proof)


@pytest.mark.parametrize("phase", PHASES)
def test_what_on_binds_is_wiring_and_the_route_is_what_is_wired(routed: Phases, phase: str):
    found = checked(routed, phase)
    assert found.phase == phase and not found.errors
    assert not found.findings, [finding.message for finding in found.findings]


def test_on_that_binds_otherwise_is_a_finding(routed: Phases):
    files = edited(routed["port"][0], HANDLER, "        bound = copy.copy(self)\n", "        bound = self\n")
    assert "MG621" in {one.code for one in checked(routed, "port", files).findings}


def test_a_method_that_only_the_route_calls_is_alive_and_dies_with_the_call(routed: Phases):
    files = edited(
        routed["cleanup"][0],
        HANDLER,
        "    def room(self)",
        "    def plan(self):\n        return 1\n\n    def room(self)",
    )
    dead = [one for one in checked(routed, "cleanup", files).findings if one.code == "MG635"]
    assert [one.symbol for one in dead] == ["plan"]
    call = "        return self.handler.room()\n"
    files = edited(
        files, "app/native.py", call, call + "\n    def plan(self):\n        return self.handler.plan()\n"
    )
    assert not [one for one in checked(routed, "cleanup", files).findings if one.code == "MG635"]


def test_a_route_that_is_used_before_the_gate_is_a_finding(routed: Phases):
    files = edited(
        routed["port"][0],
        "app/worker.py",
        "from app.backends import Pool\n",
        "from app.native import Native\n",
    )
    found = report(files, "port", text=CHECKED, proof=routed["port"][1], asked=True)
    assert "Native" in {one.symbol for one in found.findings if one.code == "MG631"}


def test_an_item_gives_the_constructor_to_the_letter(routed: Phases):
    old, new = "host_kv: HostKvBackend", "host_kv: GpuKvBackend"
    files = dict(routed["port"][0])
    text = files[HANDLER].decode()
    files[HANDLER] = text.replace(
        f"self, *, gpu_kv: GpuKvBackend, {old}", f"self, *, gpu_kv: GpuKvBackend, {new}"
    ).encode()
    assert files[HANDLER].decode() != text
    assert "MG621" in {one.code for one in checked(routed, "port", files).findings}
