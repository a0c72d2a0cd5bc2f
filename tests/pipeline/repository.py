"""A small repository with two slices, as a user has one: a class, its tests, two recipes, a pipeline.toml."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.migration.status.lives import commit, git

ROOT = Path(__file__).resolve().parents[2]

WORKER = '''"""The worker."""

import time


class Worker:
	def __init__(self):
		self.held = {}
		self.limit = 4
		self.ticks = 0

	# ===== Cache =====

	def _grow(self, uuid, count):
		"""Room for `count` more pages."""
		if self._room() < count:
			raise ValueError(f"no room for {count} pages of {uuid}")
		self.held[uuid] = self.held.get(uuid, 0) + count
		return self.held[uuid]

	def _evict(self, uuids):
		"""What these held is free again."""
		freed = 0
		for uuid in uuids:
			freed += self.held.pop(uuid, 0)
		return freed

	def _room(self):
		"""Pages that nobody holds."""
		return self.limit - sum(self.held.values())

	# ===== Clock =====

	def _tick(self):
		self.ticks += 1
		return self.ticks

	def _elapsed(self, since):
		return time.monotonic() - since

	# ===== Serving =====

	def serve(self, uuid):
		since = time.monotonic()
		self._tick()
		pages = self._grow(uuid, 1)
		self._evict([uuid])
		return pages, self._elapsed(since) >= 0
'''
RECIPE = """schema = 1
name = "{name}"

[source]
file = "app/worker.py"
class = "Worker"
section = "{section}"

[target]
file = "app/parts/{name}.py"
class = "{handler}"
siblings = "handler"

[gate]
prefix = "APP_{section}"

[checklist.flag]
owner = "the cache team"
introduced = 2026-05-27
max_age_days = 36500
"""
CACHE = RECIPE.format(name="cache", section="Cache", handler="CacheManager").replace("APP_Cache", "APP_CACHE")
CLOCK = RECIPE.format(name="clock", section="Clock", handler="ClockKeeper").replace("APP_Clock", "APP_CLOCK")
TESTS = """
[checklist.tests]
port = ["tests/test_worker.py"]
gate = ["tests/test_worker.py"]
cleanup = ["tests/test_worker.py"]
"""
PIPELINE = """schema = 1
worker = "app/worker.py"
kept = "kept/worker.py.txt"
golden = "golden"

[[slices]]
number = 1
recipe = "slices/cache.toml"
golden = true

[[slices]]
number = 2
recipe = "slices/clock.toml"
"""
TEST = """from app.worker import Worker


def test_serving():
    assert Worker().serve("a") == (1, True)
"""
FILES = {
    "app/__init__.py": "",
    "app/parts/__init__.py": "",
    "app/worker.py": WORKER,
    "slices/cache.toml": CACHE,
    "slices/clock.toml": CLOCK,
    "pipeline.toml": PIPELINE,
    "tests/test_worker.py": TEST,
}


def repository(root: Path, files: Mapping[str, str] = MappingProxyType({})) -> Path:
    """The files above, some of them replaced, committed."""
    for path, text in {**FILES, **files}.items():
        write(root, path, text)
    git(root, "init", "-q", "-b", "main")
    commit(root, "start", days_ago=3)
    return root


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


def command(root: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """(command line, environment) of the pipeline as a user starts it, under a git that knows no user."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "GIT_CONFIG_GLOBAL": os.devnull}
    return [sys.executable, "-P", "-m", "pipeline", *arguments, "--repo", str(root)], environment


def pipeline(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv, environment = command(root, *arguments)
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def branches(root: Path) -> dict[str, str]:
    """Scratch branch -> commit."""
    listed = git(root, "for-each-ref", "--format=%(refname:lstrip=3) %(objectname)", "refs/heads/migrate/")
    return dict(line.split() for line in listed.splitlines())


def user_state(root: Path) -> tuple[str, ...]:
    """What no run may change: HEAD, its branch, the index, what is not committed, the files."""
    files = sorted(
        p for p in root.rglob("*") if p.is_file() and not {".git", "out"} & set(p.relative_to(root).parts)
    )
    return (
        git(root, "rev-parse", "HEAD"),
        git(root, "symbolic-ref", "HEAD"),
        git(root, "ls-files", "--stage"),
        git(root, "status", "--porcelain"),
        "".join(f"{p} {p.read_bytes()!r}" for p in files if "__pycache__" not in p.parts),
    )
