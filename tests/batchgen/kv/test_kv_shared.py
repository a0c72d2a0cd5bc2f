"""Real processes that share the host pool of a node, also when some of them die."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from batchgen.kv import HostPagedKVWorkerView, KVExhausted, KVPoolConfig, KVStats, open_host_pool
from batchgen.kv.rendezvous import rendezvous_path

CONFIG = KVPoolConfig("primary", num_layers=1, num_pages=32, page_size=4, num_kv_heads=1, head_dim=2)


def join(config: KVPoolConfig, session: str, local_rank: int, world: int = 2) -> HostPagedKVWorkerView:
    return open_host_pool(
        config, node_id=0, local_rank=local_rank, local_world=world, session=session, attach_timeout=20.0
    )


def serve(connection: Connection, session: str, local_rank: int, world: int) -> None:
    """A rank that does what it is told: (method, *args) -> result or exception; "die" and "churn" as well."""
    torch.set_num_threads(1)
    view = join(CONFIG, session, local_rank, world)
    connection.send("ready")
    while True:
        name, *args = connection.recv()
        if name == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "die holding the lock":
            with view._segment.locked():
                os.kill(os.getpid(), signal.SIGKILL)
        try:
            connection.send(churn(view, *args) if name == "churn" else getattr(view, name)(*args))
        except Exception as error:
            connection.send(error)
        if name == "close":
            return


def churn(view: HostPagedKVWorkerView, rounds: int, seed: int) -> int:
    """Allocate, mark, verify and release at random; returns the pages seen to be overwritten by others."""
    generator = torch.Generator().manual_seed(seed)
    spoiled, held = 0, dict[int, float]()
    for number in range(rounds):
        gid, tokens = seed * 1_000_000 + number, int(torch.randint(1, 24, (1,), generator=generator))
        view.register_sequences([gid])
        try:
            view.allocate_pages_for_sequences([(gid, tokens)])
        except KVExhausted:
            view.unregister_sequences([gid])
        else:
            held[gid] = float(gid % 9973)
            mark = torch.full((1, view.page_count(gid) * 4, 1, 2), held[gid])
            view.write_sequence_kv_from_cpu(gid, mark, -mark)
        if held and (len(held) > 3 or number == rounds - 1):
            oldest = next(iter(held))
            k, v = view.read_sequence_kv_to_cpu(oldest, view.page_count(oldest) * 4)
            assert v is not None
            spoiled += int((k != held[oldest]).sum() + (v != -held[oldest]).sum())
            view.release_sequence_pages([oldest])
            del held[oldest]
        view.check_invariants()
    return spoiled


class Rank:
    def __init__(self, session: str, local_rank: int, world: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, session, local_rank, world), daemon=True)
        self.process.start()
        theirs.close()

    def ready(self) -> None:
        assert self.connection.poll(60) and self.connection.recv() == "ready"

    def start(self, *call: Any) -> None:
        self.connection.send(call)

    def result(self) -> Any:
        assert self.connection.poll(60), "the rank does not answer"
        answer = self.connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask(self, *call: Any) -> Any:
        self.start(*call)
        return self.result()

    def kill(self, how: str = "die") -> None:
        self.start(how)
        self.process.join(30)
        assert self.process.exitcode == -signal.SIGKILL


@pytest.fixture
def session() -> Iterator[str]:
    session = f"pytest-{secrets.token_hex(4)}"
    yield session
    assert leftovers(session) == []


def leftovers(session: str) -> list[Path]:
    folder = rendezvous_path(session, 0, "primary").parent
    return [path for path in folder.iterdir() if session in path.name]


@pytest.fixture
def start_rank(session: str) -> Iterator[Callable[..., Rank]]:
    started: list[Rank] = []

    def start(local_rank: int, world: int = 2) -> Rank:
        started.append(Rank(session, local_rank, world))
        return started[-1]

    yield start
    for rank in started:
        rank.process.kill()
        rank.process.join(30)


def test_two_processes_see_one_pool_and_live_counters(session: str, start_rank: Callable[..., Rank]) -> None:
    other = start_rank(1)
    with_file = join(CONFIG, session, 0)
    other.ready()
    assert leftovers(session) == []  # once all have attached there is nothing left to find, or to leak
    other.ask("register_sequences", [1, 2])
    other.ask("allocate_pages_for_sequences", [(1, 8), (2, 4)])
    assert with_file.get_stats() == other.ask("get_stats") == KVStats(29, 3, 32)
    with_file.register_sequences([1])
    with_file.allocate_pages_for_sequences([(1, 80)])
    assert other.ask("get_stats") == KVStats(9, 23, 32)
    theirs = other.ask("build_page_table", [1, 2])
    assert not set(theirs.flatten().tolist()) & set(with_file.build_page_table([1]).flatten().tolist())
    with pytest.raises(KVExhausted, match="10 pages needed, 9 free"):
        other.ask("grow_pages_for_sequences", [(2, 10)])
    with_file.check_invariants()
    other.ask("check_invariants")
    other.ask("close")
    assert with_file.get_stats() == KVStats(12, 20, 32)
    with_file.close()


def test_no_page_is_given_twice_under_contention(session: str, start_rank: Callable[..., Rank]) -> None:
    ranks = [start_rank(local_rank, 3) for local_rank in range(3)]
    for rank in ranks:
        rank.ready()
    for seed, rank in enumerate(ranks):
        rank.start("churn", 150, seed + 1)
    assert [rank.result() for rank in ranks] == [0, 0, 0]
    for rank in ranks:
        rank.ask("close")


@pytest.mark.parametrize("how", ["die", "die holding the lock"])
def test_a_rank_that_dies_leaves_the_others_working(
    session: str, start_rank: Callable[..., Rank], how: str
) -> None:
    other = start_rank(1)
    view = join(CONFIG, session, 0)
    other.ready()
    other.ask("register_sequences", [5])
    other.ask("allocate_pages_for_sequences", [(5, 8)])
    other.kill(how)
    view.register_sequences([6])
    view.allocate_pages_for_sequences([(6, 30 * 4)])
    view.check_invariants()
    assert view.get_stats() == KVStats(0, 32, 32)
    view.close()


def test_the_pool_outlives_the_rank_that_made_it(session: str, start_rank: Callable[..., Rank]) -> None:
    creator = start_rank(0)
    view = join(CONFIG, session, 1)
    creator.ready()
    creator.kill()
    view.register_sequences([6])
    view.allocate_pages_for_sequences([(6, 8)])
    k = torch.ones(1, 8, 1, 2)
    view.write_sequence_kv_from_cpu(6, k, k)
    assert torch.equal(view.read_sequence_kv_to_cpu(6, 8)[0], k)
    view.close()


def test_a_file_left_behind_by_a_dead_run_is_passed_over(
    session: str, start_rank: Callable[..., Rank]
) -> None:
    dead = start_rank(0)
    dead.ready()
    dead.kill()
    assert len(leftovers(session)) == 1
    with pytest.raises(TimeoutError, match=r"did not offer its memory within 0\.1 s .*cannot be opened"):
        open_host_pool(CONFIG, node_id=0, local_rank=1, local_world=2, session=session, attach_timeout=0.1)
    attached: list[HostPagedKVWorkerView] = []
    waiting = threading.Thread(target=lambda: attached.append(join(CONFIG, session, 1)))
    waiting.start()
    view = join(CONFIG, session, 0)
    waiting.join(30)
    view.register_sequences([1])
    view.allocate_pages_for_sequences([(1, 8)])
    assert attached[0].get_stats() == KVStats(30, 2, 32)
    attached[0].close()
    view.close()


def test_a_file_that_names_a_recycled_process_is_passed_over(session: str) -> None:
    view = join(CONFIG, session, 0)
    path = rendezvous_path(session, 0, "primary")
    card = json.loads(path.read_text())
    card["token"] = "0" * 16  # another run's: this process and descriptor are not what they were
    path.write_text(json.dumps(card))
    with pytest.raises(TimeoutError, match="is from a run that has ended"):
        open_host_pool(CONFIG, node_id=0, local_rank=1, local_world=2, session=session, attach_timeout=0.1)
    view.close()
    path.unlink()


def test_closing_before_all_have_attached_removes_the_file(session: str) -> None:
    view = join(CONFIG, session, 0)
    assert len(leftovers(session)) == 1
    view.close()
    assert leftovers(session) == []
    with pytest.raises(TimeoutError, match="does not exist"):
        open_host_pool(CONFIG, node_id=0, local_rank=1, local_world=2, session=session, attach_timeout=0.1)


def raise_at_once(session: str) -> None:
    join(CONFIG, session, 0)
    raise SystemExit(3)


def test_an_exception_removes_the_file(session: str) -> None:
    process = multiprocessing.get_context("spawn").Process(target=raise_at_once, args=(session,))
    process.start()
    process.join(60)
    assert process.exitcode == 3
    assert leftovers(session) == []


@pytest.mark.parametrize(
    ("change", "world"), [({"num_pages": 33}, 2), ({"dtype": torch.bfloat16}, 2), ({}, 3)]
)
def test_ranks_that_disagree_are_told(session: str, change: dict[str, Any], world: int) -> None:
    view = join(CONFIG, session, 0)
    with pytest.raises(ValueError, match="start all ranks with the same options"):
        join(dataclasses.replace(CONFIG, **change), session, 1, world)
    view.close()


def test_nodes_and_pools_of_one_session_are_apart(session: str) -> None:
    auxiliary = dataclasses.replace(CONFIG, name="auxiliary")
    views = [
        open_host_pool(config, node_id=node, local_rank=0, local_world=2, session=session)
        for config in (CONFIG, auxiliary)
        for node in (0, 1)
    ]
    assert len(leftovers(session)) == 4
    views[0].register_sequences([1])
    views[0].allocate_pages_for_sequences([(1, 4)])
    assert [view.get_stats().num_used_pages for view in views] == [1, 0, 0, 0]
    for view in views:
        view.close()


def test_a_session_name_of_any_characters_is_a_file_name(session: str) -> None:
    view = join(CONFIG, f"127.0.0.1:29500/{session}", 0)
    assert len(leftovers(session)) == 1
    view.close()


def test_freeing_what_belongs_to_another_rank_is_refused(session: str) -> None:
    views = [join(CONFIG, session, rank) for rank in (0, 1)]
    for rank, view in enumerate(views):
        view.register_sequences([rank])
        view.allocate_pages_for_sequences([(rank, 8)])
    page = views[0]._pages[0][1]
    views[1]._pages[1].append(page)
    with pytest.raises(RuntimeError, match=f"local rank 1 frees page {page}, which belongs to another rank"):
        views[1].release_sequence_pages([1])
    with pytest.raises(AssertionError, match="local rank 1 holds pages"):
        views[1].check_invariants()
    views[1]._pages[1].pop()
    views[0].release_sequence_pages([0])
    views[1]._pages[1].append(page)
    with pytest.raises(RuntimeError, match=f"frees page {page}, which is free already"):
        views[1].release_sequence_pages([1])
    views[1]._pages[1].pop()
    assert views[0].get_stats() == KVStats(30, 2, 32)
    for view in views:
        view.close()


def test_the_memory_of_a_run_that_is_complete_takes_no_further_rank(session: str) -> None:
    views = [join(CONFIG, session, 0)]
    path = rendezvous_path(session, 0, "primary")
    card = path.read_text()
    views.append(join(CONFIG, session, 1))
    path.write_text(card)  # as a run that hangs at its end would have left it
    with pytest.raises(TimeoutError, match="from a run whose 2 ranks have all attached"):
        open_host_pool(CONFIG, node_id=0, local_rank=1, local_world=2, session=session, attach_timeout=0.1)
    for view in views:
        view.close()
