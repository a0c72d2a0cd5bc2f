"""Sides of one tree fork from a process that has their model: loaded once, shared, and never out of date."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shadow.messages import Hello, Setup
from shadow.nursery import Shared, shared
from shadow.observation import Event
from shadow.pair import compare_sides
from shadow.side import Lost, Side
from shadow.verdict import exit_code

ROOT = Path(__file__).parents[2]
TINY: dict[str, object] = {
    "model": "tiny",
    "device": "cpu",
    "page_size": 16,
    "gpu_kv_pages": 8,
    "host_kv_pages": 16,
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "batchgen", tmp_path / "tree" / "batchgen", ignore=skip)
    return tmp_path / "tree"


@pytest.fixture
def requests(tmp_path: Path) -> str:
    path = tmp_path / "requests.jsonl"
    body = {"prompt": [40, 41, 42], "max_tokens": 40, "ignore_eos": True}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}
    path.write_text(json.dumps(line) + "\n")
    return str(path)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def megabytes(what: str, pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{what}:"))


@contextmanager
def two(tree: Path, requests: str, what: Shared | None) -> Iterator[tuple[Side, Side, Hello]]:
    setup = Setup(str(tree), (requests,), 1, TINY)
    with Side("one", setup, 60, what) as one, Side("other", setup, 60, what) as other:
        hello = one.receive()
        assert isinstance(hello, Hello), hello
        assert isinstance(other.receive(), Hello)
        yield one, other, hello


def test_two_sides_fork_from_the_process_that_has_their_model(tree: Path, requests: str) -> None:
    what = shared(str(tree), TINY, {})
    assert what is not None
    with two(tree, requests, what) as (one, other, _):
        nursery, zygote = parent(one._pid), one._zygote._process.pid
        assert parent(other._pid) == nursery != zygote == parent(nursery)
        assert isinstance(one.receive(), Event)
    with two(tree, requests, None) as (one, other, _):
        assert parent(one._pid) == parent(other._pid) == zygote


def test_a_model_is_loaded_once_for_many_runs_of_a_tree(tree: Path, requests: str) -> None:
    what = shared(str(tree), TINY, {})
    with two(tree, requests, what) as (one, _, _):
        first = parent(one._pid)
    with two(tree, requests, what) as (one, _, _):
        assert parent(one._pid) == first


def test_a_tree_that_was_edited_meanwhile_is_loaded_anew(tree: Path, requests: str) -> None:
    before = shared(str(tree), TINY, {})
    with two(tree, requests, before):
        pass
    tiny = tree / "batchgen" / "models" / "tiny.py"
    tiny.write_text(tiny.read_text().replace("max_position_embeddings=12288", "max_position_embeddings=32"))
    after = shared(str(tree), TINY, {})
    assert before != after
    with two(tree, requests, after) as (_, _, hello):
        assert hello.refused_lines == 1, "43 tokens no longer fit the context"


def test_the_first_side_of_a_nursery_is_missed_as_soon_as_it_is_killed(tree: Path, requests: str) -> None:
    with two(tree, requests, shared(str(tree), TINY, {})) as (one, _, _):
        os.kill(one._pid, signal.SIGKILL)
        while not isinstance(message := one.receive(), Lost):
            pass
        assert message.reason == "was killed by SIGKILL"


@pytest.mark.parametrize("broken", ["raise ImportError('no models here')", "import os; os._exit(7)"])
def test_a_model_that_cannot_be_loaded_is_reported_by_its_side(
    tree: Path, requests: str, broken: str
) -> None:
    (tree / "batchgen" / "models" / "loader.py").write_text(broken + "\n")
    setup = Setup(str(tree), (requests,), 1, TINY)
    tally, outcome = compare_sides(setup, setup, timeout=60)
    assert exit_code(tally, outcome) == 2 and outcome.trouble is not None
    assert "legacy side" in outcome.trouble.message


_LOADER_THAT_FREES = """
import torch

del_me = torch.ones(7 << 20)  # of 28 MiB: glibc, left to itself, maps no smaller block from now on
del del_me
freed, kept = [], []
for _ in range(64):
    freed.append(torch.ones(1 << 20))
    kept.append(torch.ones(1 << 14))
del freed
"""


def test_what_loading_frees_between_what_it_keeps_is_given_back(tree: Path, requests: str) -> None:
    loader = tree / "batchgen" / "models" / "loader.py"
    loader.write_text(loader.read_text() + _LOADER_THAT_FREES)
    with two(tree, requests, shared(str(tree), TINY, {})) as (one, _, _):
        loaded, empty = (megabytes("Anonymous", p) for p in (parent(one._pid), one._zygote._process.pid))
    assert loaded - empty < 128, "256 MB were freed"


def test_collecting_in_a_side_copies_no_page_of_what_all_start_with(tree: Path, requests: str) -> None:
    with two(tree, requests, shared(str(tree), TINY, {})) as (one, _, _):
        mine = megabytes("Private_Dirty", one._zygote._process.pid)
    assert mine < 25, "of the 40 MB of its objects nobody else has a page left"


def test_sides_share_only_what_is_the_same(tree: Path) -> None:
    same = shared(str(tree), TINY, {"A": "1"})
    assert same == shared(str(tree), {**TINY, "page_size": 4}, {"A": "1"}), "no matter for the model"
    assert same != shared(str(tree), TINY, {"A": "2"})
    assert same != shared(str(tree), {**TINY, "dtype": "bfloat16"}, {"A": "1"})
    assert same != shared(str(tree), {**TINY, "seed": 1}, {"A": "1"})
    assert shared(str(tree), {**TINY, "device": "cuda"}, {}) is None
    assert shared(str(Path(__file__).parent / "fake_tree"), TINY, {}) is None


def test_what_is_shared_gives_what_is_not(tree: Path, requests: str) -> None:
    """One side with the shared model against one that loads its own."""
    from shadow.lockstep import run_lockstep
    from shadow.tally import Tally

    setup, tally = Setup(str(tree), (requests,), 1, TINY), Tally()
    with Side("one", setup, 60, shared(str(tree), TINY, {})) as one, Side("other", setup, 60) as other:
        assert parent(one._pid) != parent(other._pid)
        outcome = run_lockstep(one, other, tally)
    assert exit_code(tally, outcome) == 0
