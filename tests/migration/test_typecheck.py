"""What is generated type-checks: handler modules, fakes and adapters, by mypy; a fault in them does not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from migration.code.source import Source
from migration.code.structure import outline
from migration.move.adapters import Adapter, AdapterSpec, MemberMap, adapter_text
from migration.move.cut import CutPlan, plan_cut
from migration.move.fakes import fake_text
from migration.move.protocol_classes import ProtocolModule
from migration.move.wrapped_class import WrappedClass
from migration.slices import load_recipe
from pipeline.copies import copy_before, tree_before

from .golden_cases import GOLDEN

ROOT = Path(__file__).parents[2]
HANDLER = "app/parts/cache.py"
STRICT = "[mypy]\nstrict = True\n"
#: The engine's own settings, without the packages that would take minutes to read.
ENGINE = """
[mypy]
check_untyped_defs = True
strict_equality = True
disallow_untyped_defs = True
disallow_incomplete_defs = True
[mypy-torch.*,numpy.*,transformers.*,tokenizers.*,safetensors.*,gguf.*,jinja2.*,msgspec.*,flashinfer.*,triton.*]
follow_imports = skip
ignore_missing_imports = True
"""
_ERROR = re.compile(r"(?P<path>[^:\n]+):(?P<line>\d+): error: (?P<message>.*)")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by all runs: the standard library is read once."""
    return tmp_path_factory.mktemp("mypy")


def errors(root: Path, cache: Path, settings: str, *files: str) -> list[tuple[str, int, str]]:
    """(file, line, message) of every error that mypy reports for some files below `root`."""
    (root / "mypy.ini").write_text(settings)
    options = ["--config-file", "mypy.ini", "--cache-dir", str(cache), "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, "--explicit-package-bases", *files]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [match for match in map(_ERROR.match, done.stdout.splitlines()) if match]
    return [(match["path"], int(match["line"]), match["message"]) for match in found]


def is_ours(top: str) -> bool:
    return top in ("app", "batchgen")


def with_fakes_and_adapter(root: Path, module: str, spec: AdapterSpec, wrapped: str) -> None:
    """Writes fakes.py and adapter.py for a handler module below `root`; `wrapped` is the module of the class."""
    path = f"{module.replace('.', '/')}.py"
    protocols = ProtocolModule(Source(path, (root / path).read_bytes()), module)
    (root / "fakes.py").write_text(fake_text(protocols, is_ours))
    path = f"{wrapped.replace('.', '/')}.py"
    source = WrappedClass(Source(path, (root / path).read_bytes()), wrapped, spec.wrapped_class)
    adapter = adapter_text(spec, protocols, source, is_ours)
    assert isinstance(adapter, Adapter), adapter
    (root / "adapter.py").write_text(adapter.text)


@pytest.fixture
def handles(tmp_path: Path) -> Path:
    """The fully annotated golden case after its cut, with fakes and an adapter of its worker."""
    shutil.copytree(GOLDEN / "handles/after", tmp_path / "tree", ignore=shutil.ignore_patterns("__pycache__"))
    spec = AdapterSpec("WorkerView", "WorkerAdapter", "Worker")
    with_fakes_and_adapter(tmp_path / "tree", "app.parts.cache", spec, "app.worker")
    return tmp_path / "tree"


def test_a_handler_its_fakes_and_its_adapter_pass_the_strict_checks(handles: Path, cache: Path):
    assert errors(handles, cache, STRICT, HANDLER, "fakes.py", "adapter.py") == []


def test_a_handler_with_base_and_request_passes_the_strict_checks(tmp_path: Path, cache: Path):
    """And so does what is written by hand around it."""
    root = tmp_path / "tree"
    shutil.copytree(GOLDEN / "request/after", root, ignore=shutil.ignore_patterns("__pycache__"))
    spec = AdapterSpec("PageRequest", "WorkerRequest", "Worker")
    with_fakes_and_adapter(root, "app.parts.pages", spec, "app.worker")
    assert errors(root, cache, STRICT, "app", "fakes.py", "adapter.py") == []
    handler = root / "app/parts/pages.py"
    handler.write_text(handler.read_text().replace("-> Self:", "-> PageRequest:"))
    assert {path for path, *_ in errors(root, cache, STRICT, "app")} >= {"app/parts/pages.py"}


def test_a_handler_has_no_error_that_its_worker_did_not_have(tmp_path: Path, cache: Path):
    """The golden case that lacks annotations: the gaps move with the code, and nothing is added to them."""
    for side in ("before", "after"):
        shutil.copytree(
            GOLDEN / "imports" / side, tmp_path / side, ignore=shutil.ignore_patterns("__pycache__")
        )
    with_fakes_and_adapter(
        tmp_path / "after",
        "app.parts.cache",
        AdapterSpec("WorkerView", "WorkerAdapter", "Worker"),
        "app.worker",
    )
    # What the worker imported itself the handler takes from there: strict mypy wants that said in the worker.
    settings = STRICT + "implicit_reexport = True\n"
    before = errors(tmp_path / "before", cache, settings, "app/worker.py")
    after = errors(tmp_path / "after", cache, settings, HANDLER, "fakes.py", "adapter.py")
    assert not [error for error in after if error[0] in ("fakes.py", "adapter.py")]
    assert {message for path, _, message in after if path == HANDLER} <= {message for *_, message in before}


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("fakes.py", "    grown: int\n", "", "Incompatible return value type"),
        (
            "fakes.py",
            "def report(self, what: str)",
            "def report(self, what: int)",
            "Incompatible return value type",
        ),
        ("fakes.py", "    rank: int\n", "    rank: str\n", "Incompatible return value type"),
        ("adapter.py", "what: str", "what: int", "Incompatible return value type"),
        ("adapter.py", ".report(what)", ".report()", "Missing positional argument"),
        (HANDLER, "def PAGE_SIZE(self) -> int", "def PAGE_SIZE(self) -> str", "Unsupported operand types"),
    ],
)
def test_a_fault_is_seen_by_the_type_checker(
    name: str, old: str, new: str, message: str, handles: Path, cache: Path
):
    text = (handles / name).read_text()
    assert old in text
    (handles / name).write_text(text.replace(old, new, 1))
    found = errors(handles, cache, STRICT, HANDLER, "fakes.py", "adapter.py")
    assert any(message in got for *_, got in found), found


def test_the_protocol_of_the_first_seed_on_a_pool_with_more_parameters(tmp_path: Path, cache: Path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app/__init__.py").touch()
    (tmp_path / "app/backends.py").write_text(
        "from typing import Protocol\n\n\nclass GpuKvBackend(Protocol):\n"
        "    def allocate_pages(self, uuid: str, n: int) -> list[int]: ...\n"
        "    def release_pages(self, uuid: str) -> None: ...\n"
        "    def free_pages(self) -> int: ...\n"
    )
    (tmp_path / "app/pool.py").write_text(
        "class Order:\n    pass\n\n\nDEFAULT = Order()\n\n\nclass Pool:\n    free: int = 0\n\n"
        "    def allocate(self, seq: str, count: int = 1, *, order: Order = DEFAULT, pin: bool = False)"
        " -> list[int]:\n        return []\n\n"
        "    def release(self, seq: str, *rest: int, **more: str) -> None: ...\n"
    )
    maps = (
        MemberMap("allocate_pages", "allocate", {"uuid": "seq", "n": "count"}),
        MemberMap("release_pages", "release", {"uuid": "seq"}),
        MemberMap("free_pages", "free"),
    )
    with_fakes_and_adapter(
        tmp_path, "app.backends", AdapterSpec("GpuKvBackend", "PoolBackend", "Pool", maps), "app.pool"
    )
    assert errors(tmp_path, cache, STRICT, "app/backends.py", "fakes.py", "adapter.py") == []


POOL_VIEW = """
from collections.abc import Sequence
from typing import Protocol

class PoolView(Protocol):
    @property
    def is_initialized(self) -> bool: ...

    def free(self, uuids: Sequence[int]) -> None: ...
"""


def test_the_kv_handler_of_the_engine_adds_no_error(tmp_path: Path, cache: Path):
    recipe = load_recipe("kv")
    plan = plan_cut(recipe, tree_before(ROOT))
    assert isinstance(plan, CutPlan), plan
    before, after = (copy_before(ROOT, tmp_path / side) for side in ("before", "after"))
    for change in plan.changes:
        (after / change.path).parent.mkdir(exist_ok=True)
        (after / change.path).write_bytes(change.after)
    (after / "batchgen/worker/pool_view.py").write_text(POOL_VIEW)
    maps = (MemberMap("free", "free_pages_for_sequences", {"uuids": "sequence_ids"}),)
    spec = AdapterSpec("PoolView", "PoolAdapter", "GPUPagedKVCacheManager", maps)
    with_fakes_and_adapter(after, "batchgen.worker.pool_view", spec, "batchgen.kv.gpu")
    handler = Source(recipe.target_file, (after / recipe.target_file).read_bytes())
    (after / "fakes_kv.py").write_text(fake_text(ProtocolModule(handler, recipe.target_module), is_ours))
    old = errors(before, cache, ENGINE, recipe.source_file)
    new = errors(after, cache, ENGINE, recipe.target_file, "fakes.py", "fakes_kv.py", "adapter.py")
    assert not {path for path, *_ in new} & {"fakes.py", "fakes_kv.py", "adapter.py"}
    worker = by_method(before / recipe.source_file, recipe.source_class, old, recipe.source_file)
    moved = by_method(after / recipe.target_file, recipe.handler_class, new, recipe.target_file)
    assert moved and moved.keys() <= set(plan.methods) and moved <= worker


def by_method(file: Path, class_name: str, found: list[tuple[str, int, str]], path: str) -> Counter[str]:
    """How many errors each method of a class has; those outside of its methods count as "elsewhere"."""
    methods = outline(Source(path, file.read_bytes()), class_name).methods
    counts: Counter[str] = Counter()
    for where, line, _ in found:
        if where == path:
            inside = [method.name for method in methods if method.first_line <= line <= method.last_line]
            counts[inside[0] if inside else "elsewhere"] += 1
    return counts
