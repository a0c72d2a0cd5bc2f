"""The host pool as one rank sees it: what goes in comes out, and nobody writes where he does not belong."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator

import pytest
import torch

from batchgen.kv import (
    GPUPagedKVCacheManager,
    HostPagedKVWorkerView,
    KVExhausted,
    KVPoolConfig,
    KVStats,
    PagePointers,
    open_host_pool,
)

CPU = torch.device("cpu")
CONFIG = KVPoolConfig("host", num_layers=3, num_pages=8, page_size=4, num_kv_heads=2, head_dim=3)
KEYS_ONLY = dataclasses.replace(CONFIG, has_value=False, dtype=torch.bfloat16)


def view_of(config: KVPoolConfig) -> HostPagedKVWorkerView:
    return open_host_pool(config, node_id=0, local_rank=0, local_world=1, session="test")


@pytest.fixture
def view() -> Iterator[HostPagedKVWorkerView]:
    view = view_of(CONFIG)
    yield view
    view.close()


@pytest.fixture
def gate(view: HostPagedKVWorkerView) -> Iterator[threading.Event]:
    """Holds back all copies of the view until it is set."""
    gate = threading.Event()

    def hold() -> None:
        gate.wait(60)

    view._tasks.submit(hold)
    yield gate
    gate.set()


def kv(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, CONFIG.num_kv_heads, CONFIG.head_dim)


def start(view: HostPagedKVWorkerView, sizes: dict[int, int]) -> None:
    view.register_sequences(list(sizes))
    view.allocate_pages_for_sequences(list(sizes.items()))


def state(view: HostPagedKVWorkerView) -> object:
    return {gid: view.build_page_table([gid]).tolist() for gid in view.sequence_ids()}, view.get_stats()


def test_pages_come_from_a_lifo_free_list(view: HostPagedKVWorkerView) -> None:
    start(view, {10: 5, 11: 4})
    assert view.build_page_table([11, 10]).tolist() == [[5, -1], [7, 6]]
    assert view.build_page_table([10]).dtype == torch.int32
    view.release_sequence_pages([10])
    view.grow_pages_for_sequences([(11, 2)])
    assert view.build_page_table([11]).tolist() == [[5, 6, 7]]
    assert view.page_count(11) == 3
    assert view.has_sequence(11) and not view.has_sequence(10)
    assert view.sequence_ids() == [11]
    assert view.get_stats() == KVStats(num_free_pages=5, num_used_pages=3, num_total_pages=8)
    view.check_invariants()


def test_prefill_then_decode_then_load_gives_the_same_bytes(view: HostPagedKVWorkerView) -> None:
    lengths = {1: 5, 2: 8, 3: 1}
    start(view, {gid: length + 4 for gid, length in lengths.items()})
    ids, cu_seqlens = list(lengths), [0, 5, 13, 14]
    expected = {gid: (kv(3, length + 3), kv(3, length + 3)) for gid, length in lengths.items()}
    tasks = []
    for layer in range(3):
        k, v = (torch.cat([expected[gid][which][layer, : lengths[gid]] for gid in ids]) for which in (0, 1))
        tasks.append(
            view.async_offload_layer_kv_range_to_host(
                layer, torch.tensor(ids), k, v, torch.tensor(cu_seqlens, dtype=torch.int32), [0, 0, 0]
            )
        )
    for step in range(3):
        order = ids if step != 1 else [3, 1]  # a batch that shrinks, reorders and grows again
        positions = [lengths[gid] for gid in order]
        rows = [
            tuple(torch.stack([expected[gid][w][layer, lengths[gid]] for gid in order]) for w in (0, 1))
            for layer in range(3)
        ]
        if step == 0:
            entries = [(layer, k, v) for layer, (k, v) in enumerate(rows)]
            tasks.append(view.async_append_decode_kv_to_host_batched_kernel(entries, order, positions))
        else:
            tasks += [
                view.async_append_decode_kv_to_host(layer, torch.tensor(order), k, v, torch.tensor(positions))
                for layer, (k, v) in enumerate(rows)
            ]
        for gid in order:
            lengths[gid] += 1

    manager = GPUPagedKVCacheManager(dataclasses.replace(CONFIG, num_pages=12), CPU)
    manager.initialize()
    manager.allocate_pages_for_sequences([2, 1, 3], [lengths[2], lengths[1], lengths[3]])
    manager.rebuild_page_table([2, 1, 3])
    tasks.append(
        view.async_load_layer_paged_kv_to_device(
            torch.tensor([2, 1, 3]),
            manager.export_active_sequence_page_counts(),
            *manager.get_page_pointers(),
        )
    )
    for task in tasks:
        task.wait()
    assert manager.v_cache is not None
    for gid, length in lengths.items():
        pages = manager._sequences[gid]
        for cache, truth in zip((manager.k_cache, manager.v_cache), expected[gid], strict=True):
            assert torch.equal(cache[:, pages].flatten(1, 2)[:, :length], truth[:, :length])
        for read, truth in zip(view.read_sequence_kv_to_cpu(gid, length), expected[gid], strict=True):
            assert read is not None and torch.equal(read, truth[:, :length])
    owned = {page for pages in manager._sequences.values() for page in pages}
    others = [page for page in range(13) if page not in owned]
    assert manager.k_cache[:, others].eq(0).all() and manager.v_cache[:, others].eq(0).all()


def test_a_later_chunk_of_a_prompt_starts_in_the_middle_of_a_page(view: HostPagedKVWorkerView) -> None:
    start(view, {1: 8, 2: 8})
    k, v = kv(3, 8), kv(3, 8)
    view.write_sequence_kv_from_cpu(2, k, v)
    for layer in range(3):
        view.async_offload_layer_kv_range_to_host(layer, [1], k[layer, :3], v[layer, :3], [0, 3], [0])
        view.async_offload_layer_kv_range_to_host(
            layer, [1, 2], k[layer, 3:], v[layer, 3:], [0, 5, 5], [3, 0]
        )
    for gid in (1, 2):
        read_k, read_v = view.read_sequence_kv_to_cpu(gid, 8)
        assert torch.equal(read_k, k) and torch.equal(read_v, v)


def test_only_the_pages_asked_for_are_loaded(view: HostPagedKVWorkerView) -> None:
    start(view, {1: 12})
    k, v = kv(3, 12), kv(3, 12)
    view.write_sequence_kv_from_cpu(1, k, v)
    target = torch.full((3, 4, 4, 2, 3), 9.0)
    pointers = PagePointers(target, torch.tensor([[3, 0, 2]], dtype=torch.int32))
    view.async_load_layer_paged_kv_to_device(
        [1], [2], pointers, PagePointers(target, pointers.page_ids)
    ).wait()
    assert torch.equal(target[:, 3], v[:, :4]) and torch.equal(target[:, 0], v[:, 4:8])
    assert target[:, [1, 2]].eq(9.0).all()


def test_a_keys_only_bfloat16_pool_takes_rows_without_a_head_axis() -> None:
    config = dataclasses.replace(KEYS_ONLY, num_kv_heads=1)
    view = view_of(config)
    start(view, {1: 4, 2: 4})
    rows = [torch.randn(2, 3).to(torch.bfloat16) for _ in range(3)]
    view.async_append_decode_kv_to_host_batched_kernel(
        [(layer, row, None) for layer, row in enumerate(rows)], [2, 1], [3, 0]
    ).wait()
    k, v = view.read_sequence_kv_to_cpu(2, 4)
    assert v is None and k.dtype == torch.bfloat16
    assert torch.equal(k[:, 3, 0], torch.stack([row[0] for row in rows]))
    assert torch.equal(view.read_sequence_kv_to_cpu(1, 1)[0][:, 0, 0], torch.stack([row[1] for row in rows]))
    view.close()


def row_entry() -> list[tuple[int, torch.Tensor, torch.Tensor | None]]:
    return [(0, kv(1), kv(1))]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda v: v.register_sequences([3, 1]), ValueError, "registered already"),
        (lambda v: v.register_sequences([3, 3]), ValueError, "registered already"),
        (lambda v: v.unregister_sequences([2, 9]), KeyError, "9 is not registered"),
        (lambda v: v.unregister_sequences([2, 1]), RuntimeError, r"\[1\] still hold pages"),
        (lambda v: v.allocate_pages_for_sequences([(2, 4), (9, 4)]), KeyError, "9 is not registered"),
        (lambda v: v.allocate_pages_for_sequences([(2, 4), (2, 4)]), KeyError, "twice"),
        (lambda v: v.allocate_pages_for_sequences([(2, 4), (1, 4)]), ValueError, r"\[1\] already have pages"),
        (lambda v: v.allocate_pages_for_sequences([(2, 25)]), KVExhausted, "7 pages needed, 6 free"),
        (lambda v: v.grow_pages_for_sequences([(1, 1), (2, 6)]), KVExhausted, "7 pages needed, 6 free"),
        (lambda v: v.grow_pages_for_sequences([(1, -1)]), ValueError, "negative"),
        (lambda v: v.grow_pages_for_sequences([(9, 1)]), KeyError, "9 is not registered"),
        (lambda v: v.release_sequence_pages([1, 9]), KeyError, "9 is not registered"),
        (lambda v: v.release_sequence_pages([1, 1]), KeyError, "twice"),
        (lambda v: v.page_count(9), KeyError, "9 is not registered"),
        (lambda v: v.build_page_table([9]), KeyError, "9 is not registered"),
    ],
)
def test_a_refused_page_operation_changes_nothing(view, call, error, message: str) -> None:
    start(view, {1: 8})
    view.register_sequences([2])
    before = state(view)
    with pytest.raises(error, match=message):
        call(view)
    assert state(view) == before
    view.check_invariants()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda v, e: v.async_append_decode_kv_to_host_batched_kernel(e, [9], [0]), RuntimeError, "9 is not"),
        (lambda v, e: v.async_append_decode_kv_to_host_batched_kernel(e, [1], [-1]), RuntimeError, "-1"),
        (lambda v, e: v.async_append_decode_kv_to_host_batched_kernel(e, [1], [8]), RuntimeError, "8..8"),
        (lambda v, e: v.async_append_decode_kv_to_host_batched_kernel(e, [1], [0, 1]), ValueError, "2 write"),
        (
            lambda v, e: v.async_append_decode_kv_to_host(0, [1, 1], kv(2), kv(2), [0, 1]),
            RuntimeError,
            "twice",
        ),
        (lambda v, e: v.async_append_decode_kv_to_host(3, [1], kv(1), kv(1), [0]), ValueError, "layer 3"),
        (lambda v, e: v.async_append_decode_kv_to_host(0, [1], kv(1), None, [0]), ValueError, "needs values"),
        (lambda v, e: v.async_append_decode_kv_to_host(0, [1], kv(2), kv(2), [0]), ValueError, "must be"),
        (
            lambda v, e: v.async_append_decode_kv_to_host(0, [1], kv(1).double(), kv(1), [0]),
            ValueError,
            "float64",
        ),
        (
            lambda v, e: v.async_offload_layer_kv_range_to_host(0, [1], kv(5), kv(5), [0, 5], [4]),
            RuntimeError,
            r"4\.\.8",
        ),
        (
            lambda v, e: v.async_offload_layer_kv_range_to_host(0, [1], kv(5), kv(5), [0, 2, 5], [4]),
            ValueError,
            "cu_seqlens",
        ),
        (lambda v, e: v.read_sequence_kv_to_cpu(1, 9), RuntimeError, r"0\.\.8"),
        (lambda v, e: v.write_sequence_kv_from_cpu(1, kv(3, 9), kv(3, 9)), RuntimeError, r"0\.\.8"),
        (lambda v, e: v.write_sequence_kv_from_cpu(1, kv(2, 3), kv(2, 3)), ValueError, "2 layers"),
    ],
)
def test_a_refused_copy_is_refused_in_the_calling_thread(view, call, error, message: str) -> None:
    start(view, {1: 8})
    k, v = kv(3, 8), kv(3, 8)
    view.write_sequence_kv_from_cpu(1, k, v)
    with pytest.raises(error, match=message):
        call(view, row_entry())
    read_k, read_v = view.read_sequence_kv_to_cpu(1, 8)
    assert torch.equal(read_k, k) and torch.equal(read_v, v)


def pointers(rows: list[list[int]], pages: int = 4, heads: int = 2) -> PagePointers:
    return PagePointers(torch.zeros(3, pages, 4, heads, 3), torch.tensor(rows, dtype=torch.int32))


@pytest.mark.parametrize(
    ("ids", "counts", "target", "error", "message"),
    [
        ([9], [1], pointers([[0]]), RuntimeError, "9, it is not registered"),
        ([1], [3], pointers([[0, 1, 2]]), RuntimeError, "3 pages of sequence 1, it has 2 on the host"),
        ([1], [2], pointers([[0]]), RuntimeError, r"2 pages to load, its target row is \[0\]"),
        ([1], [2], pointers([[0, -1]]), RuntimeError, r"target row is \[0, -1\]"),
        ([1], [2], pointers([[0, 4]]), RuntimeError, r"target row is \[0, 4\]"),
        ([1], [2], pointers([[0, 1], [2, 3]]), RuntimeError, "1 sequences but load targets for 2"),
        ([1], [2, 2], pointers([[0, 1]]), ValueError, "1 sequences but 2 page counts"),
        ([1], [2], pointers([[0, 1]], heads=1), ValueError, "cannot be loaded into"),
        ([1], [2], None, ValueError, "needs values"),
    ],
)
def test_a_load_that_does_not_fit_is_refused_before_it_starts(
    view: HostPagedKVWorkerView, ids, counts, target: PagePointers | None, error: type, message: str
) -> None:
    start(view, {1: 8})
    keys = target if target is not None else pointers([[0, 1]])
    with pytest.raises(error, match=message):
        view.async_load_layer_paged_kv_to_device(ids, counts, keys, target)
    assert keys.storage.eq(0).all()


def test_a_release_waits_for_the_appends_so_that_the_next_owner_is_not_overwritten(
    view: HostPagedKVWorkerView, gate: threading.Event
) -> None:
    start(view, {1: 32})
    stale = view.async_append_decode_kv_to_host(0, [1], kv(1), kv(1), [0])
    releaser = threading.Thread(target=view.release_sequence_pages, args=([1],))
    releaser.start()
    releaser.join(0.1)
    assert releaser.is_alive() and view.get_stats().num_free_pages == 0
    gate.set()
    releaser.join()
    assert stale.done() and view.get_stats().num_free_pages == 8
    start(view, {2: 32})
    k, v = kv(3, 32), kv(3, 32)
    view.write_sequence_kv_from_cpu(2, k, v)
    assert torch.equal(view.read_sequence_kv_to_cpu(2, 32)[0], k)


def test_positions_are_resolved_when_the_append_is_called(
    view: HostPagedKVWorkerView, gate: threading.Event
) -> None:
    start(view, {1: 4})
    k, v = kv(1), kv(1)
    with pytest.raises(RuntimeError, match="grow it first"):
        view.async_append_decode_kv_to_host(0, [1], k, v, [4])
    view.grow_pages_for_sequences([(1, 1)])
    view.async_append_decode_kv_to_host(0, [1], k, v, [4])
    gate.set()
    assert torch.equal(view.read_sequence_kv_to_cpu(1, 5)[0][0, 4], k[0])


def test_a_failing_copy_raises_at_wait_and_the_view_goes_on(
    view: HostPagedKVWorkerView, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(view, {1: 8})

    def broken(*args: object) -> None:
        raise OSError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(view._transfers, "to_host", lambda *args: broken)
        task = view.async_append_decode_kv_to_host(0, [1], kv(1), kv(1), [0])
    with pytest.raises(OSError, match="planted"):
        task.wait()
    k, v = kv(3, 8), kv(3, 8)
    view.write_sequence_kv_from_cpu(1, k, v)
    assert torch.equal(view.read_sequence_kv_to_cpu(1, 8)[0], k)


def test_closing_ends_everything(view: HostPagedKVWorkerView) -> None:
    start(view, {1: 8})
    task = view.async_append_decode_kv_to_host(0, [1], kv(1), kv(1), [0])
    view.close()
    view.close()
    assert task.done()
    for call in (
        view.get_stats,
        lambda: view.register_sequences([4]) or view.grow_pages_for_sequences([(4, 1)]),
    ):
        with pytest.raises(RuntimeError, match="is closed"):
            call()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda v: v._pages[2].append(v._pages[1][0]), "page 7 is held by sequences 1 and 2"),
        (lambda v: v._pages[2].pop(), r"holds pages \[6, 7\], the owner list says \[5, 6, 7\]"),
        (
            lambda v: v._segment._words.__setitem__(2, 7),
            "page 7 is in the free list and owned by local rank 0",
        ),
        (lambda v: v._segment._words.__setitem__(2, 1), "page 1 is in the free list twice"),
        (lambda v: v._segment._words.__setitem__(0, 4), r"pages \[4\] are neither free nor owned"),
    ],
)
def test_damage_is_named(view: HostPagedKVWorkerView, damage, message: str) -> None:
    start(view, {1: 8, 2: 4})
    view.check_invariants()
    damage(view)
    with pytest.raises(AssertionError, match=message):
        view.check_invariants()
    view._open_segment = None  # its books are beyond repair: do not let close() balance them


def test_an_impossible_rank_is_refused() -> None:
    with pytest.raises(ValueError, match=r"local rank 2 is not in 0\.\.1"):
        open_host_pool(CONFIG, node_id=0, local_rank=2, local_world=2, session="test")


def test_a_page_that_is_free_and_owned_is_not_given_out(view: HostPagedKVWorkerView) -> None:
    start(view, {1: 4})
    view._segment._words[8] = 7  # the top of the free list: what a rank that died half-way must not cause
    view.register_sequences([2])
    with pytest.raises(RuntimeError, match="page 7 is free but belongs to local rank 0"):
        view.allocate_pages_for_sequences([(2, 4)])
    assert view.page_count(2) == 0 and view.get_stats().num_free_pages == 7
