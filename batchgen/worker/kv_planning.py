"""Plans from moved code: its methods run in a world made of a snapshot, which writes down what they would do.

The world has the names that the methods know from the worker. Reads are answered from the snapshot and from what the
plan has done so far; nothing outside of it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType, SimpleNamespace
from typing import Any

from batchgen.kv import KVExhausted, KVStats
from batchgen.kv.page_table import check_rows
from batchgen.sequence import SequenceBatch, SequenceEntry, SequenceStatus
from batchgen.worker.kv_plans import (
    AllocateGpu,
    AllocateHost,
    Allocation,
    AllocPlan,
    AllocRequest,
    Count,
    Eviction,
    EvictionPlan,
    EvictionRequest,
    GpuPool,
    HostPool,
    KvSnapshot,
    Load,
    LoadPages,
    MigrationPlan,
    MigrationRequest,
    Operation,
    RebuildTable,
    ReleaseGpu,
    ReleaseStateSlots,
    Reserve,
    SequenceState,
    SetField,
    SetStatus,
)
from batchgen.worker.protocols import AsyncHandle, GpuKvBackend, HostKvBackend


class KvPlanner:
    """The three questions of `KVCacheManager`, answered by its own methods on a snapshot."""

    def plan_allocation(self, req: AllocRequest) -> AllocPlan:
        """Pages for sequences, all or nothing. KVExhausted, KeyError and ValueError as the worker raises them."""
        world = World(req.snapshot)
        steps = self._in(world)
        granted = True
        match req.kind:
            case Allocation.WHOLE_BUDGET:
                steps._reserve_whole_budget(req.local_ids, req.tokens)
            case Allocation.TWO_PAGE_BUFFER:
                granted = steps._allocate_gpu_kv_two_page_buffer(req.local_ids, req.load_from_host)
            case Allocation.EXTENSION:
                granted = steps._extend_gpu_kv_allocation(req.uuids)
            case Allocation.HOST_GROWTH:
                steps._grow_host_kv(req.uuids, req.pages)
        return AllocPlan(req.snapshot, world.operations(), granted)

    def plan_eviction(self, req: EvictionRequest) -> EvictionPlan:
        """Pages given back, whether to pause for it, or how many are kept back. KeyError where one has no pages."""
        world = World(
            req.snapshot, _has_queued_work=lambda: req.work_is_queued, some_are_evicted=req.some_are_evicted
        )
        steps, pause = self._in(world), False
        kept_back: dict[int, int] = {}
        match req.kind:
            case Eviction.RELEASE:
                steps._release_gpu_kv_pages(req.local_ids)
            case Eviction.HOLD:
                steps._put_sequences_onhold(req.uuids)
            case Eviction.WATERMARK:
                by_node = {node.node_id: {"free_percent": node.free_percent} for node in req.nodes}
                pause = steps._decide_watermark_trigger(by_node)
            case Eviction.KEEP_BACK:
                kept_back = steps._host_pages_kept_back(req.stats)
        return EvictionPlan(req.snapshot, world.operations(), pause, tuple(kept_back.items()))

    def plan_migration(self, req: MigrationRequest) -> MigrationPlan:
        """Which waiting sequences change their node."""
        world = World(req.snapshot)
        steps = self._in(world)
        gathered = [
            (
                {
                    "node_id": share.node_id,
                    "num_used_pages": share.num_used_pages,
                    "num_total_pages": share.num_total_pages,
                },
                dict(share.movable),
            )
            for share in req.shares
        ]
        return MigrationPlan(req.snapshot, tuple(steps._plan_moves(gathered)))

    def _in(self, world: World) -> Any:
        """The moved methods, in a world: their handles are its pools, and their request is the world itself."""
        steps: Any = type(self)(gpu_kv=world.gpu_kv, host_kv=world.host_kv).on(world)  # type: ignore[call-arg,attr-defined]
        world._release_gpu_kv_pages = (
            steps._release_gpu_kv_pages
        )  # called through the worker, where tests replace it
        return steps


class World:
    """What moved code sees in place of the worker. `more`: what only some requests bring."""

    def __init__(self, snapshot: KvSnapshot, *, some_are_evicted: bool = False, **more: Any) -> None:
        self._tape = _Tape()
        self.args = snapshot.config
        self.PAGE_SIZE = snapshot.config.page_size
        self.rank, self.world_size = snapshot.rank, snapshot.world_size
        self._uuid_to_local_map: Mapping[str, int] = MappingProxyType(dict(snapshot.local))
        self._uuid_of_local = {local: uuid for uuid, local in snapshot.local}
        self.global_batch = _Batch(self._tape, snapshot.sequences, some_are_evicted)
        self._global_to_uuid: Mapping[int, str] = MappingProxyType(
            {state.global_idx: state.uuid for state in snapshot.sequences}
        )
        self._sequences_with_gpu_kv = _Reserved(self._tape, snapshot.reserved)
        self.counters = _Counters(self._tape)
        pool = None if snapshot.gpu is None else _GpuPool(self._tape, snapshot.gpu)
        self.gpu_paged_kv_cache_manager = pool
        self._host = None if snapshot.host is None else _HostPool(snapshot.host)
        self.core_engine = SimpleNamespace(state_slot_pool=_StateSlots(self._tape, snapshot.with_state_slot))
        self._release_gpu_kv_pages: Callable[[Sequence[int]], None]
        self.gpu_kv: GpuKvBackend = _GpuPages(self._tape, pool, self.global_batch)
        self.host_kv: HostKvBackend = _HostPages(self._tape, self._host, self.global_batch)
        self.__dict__.update(more)

    def operations(self) -> tuple[Operation, ...]:
        return tuple(self._tape.operations)

    def _get_sequence_by_local(self, local_idx: int) -> SequenceEntry:
        return self.global_batch.get_sequence(self._uuid_of_local[local_idx])

    def _local_to_global_id(self, local_idx: int) -> int:
        return self._get_sequence_by_local(local_idx).global_idx

    def _read_host_kv_stats(self) -> KVStats | None:
        return None if self._host is None else self._host.get_stats()

    def _host_pages_held(self, global_id: int) -> int:
        if self._host is None or global_id not in self._host.held:
            raise KeyError(f"sequence {global_id} is not registered")
        return self._host.held[global_id]

    def _load_host_kv_to_gpu(self, manager: Any, global_ids: Sequence[int]) -> None:
        self._tape.add(Load(tuple(global_ids)))


class _Tape:
    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._silent = False

    def add(self, operation: Operation) -> None:
        if not self._silent:
            self.operations.append(operation)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """While something is done that was written down as a whole."""
        self._silent = True
        try:
            yield
        finally:
            self._silent = False


class _Sequence(SequenceEntry):
    """A sequence of the snapshot, with the methods of a real one; what is written to it is written down."""

    __slots__ = ("_tape",)
    _tape: _Tape

    def __init__(self, tape: _Tape, state: SequenceState) -> None:
        for name in state.__dataclass_fields__:
            object.__setattr__(self, name, getattr(state, name))
        object.__setattr__(self, "_lifespan_log", None)
        object.__setattr__(self, "_tape", tape)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        self._tape.add(SetField(self.uuid, name, value))


class _Batch(SequenceBatch):
    def __init__(self, tape: _Tape, states: Sequence[SequenceState], some_are_evicted: bool) -> None:
        super().__init__()
        self._tape, self._some_are_evicted = tape, some_are_evicted
        for state in states:
            self.add_sequence(_Sequence(tape, state))

    def has_status(self, status: SequenceStatus) -> bool:
        return super().has_status(status) or (status is SequenceStatus.EVICTED and self._some_are_evicted)

    def update_status(self, uuid: str, status: SequenceStatus) -> None:
        with self._tape.silent():
            super().update_status(uuid, status)
        self._tape.add(SetStatus(uuid, status))


class _Reserved(set[int]):
    def __init__(self, tape: _Tape, indices: frozenset[int]) -> None:
        super().__init__(indices)
        self._tape = tape

    def add(self, element: int) -> None:
        super().add(element)
        self._tape.add(Reserve(element, True))

    def discard(self, element: object) -> None:
        super().discard(element)
        assert isinstance(element, int)
        self._tape.add(Reserve(element, False))


class _Counters:
    """`counters[name] += n`."""

    def __init__(self, tape: _Tape) -> None:
        self._tape = tape

    def __getitem__(self, name: str) -> int:
        return 0

    def __setitem__(self, name: str, value: int) -> None:
        self._tape.add(Count(name, value))


class _GpuPool:
    """The pool manager of the worker, as far as plans look at it: a ledger of its own, made from the snapshot."""

    is_initialized = True

    def __init__(self, tape: _Tape, pool: GpuPool) -> None:
        self._tape = tape
        self.config, self._max_slots = (
            SimpleNamespace(name=pool.name, num_pages=pool.num_pages),
            pool.max_slots,
        )
        self.ledger = pool.ledger()

    def has_sequence(self, sequence_id: int) -> bool:
        return sequence_id in self.ledger.sequences

    def num_pages_of(self, sequence_id: int) -> int:
        self.ledger.check_known([sequence_id])
        return len(self.ledger.sequences[sequence_id])

    def get_stats(self) -> KVStats:
        free = len(self.ledger.free_pages)
        return KVStats(free, self.ledger.num_pages - free, self.ledger.num_pages)

    def rebuild_page_table(self, sequence_ids: Sequence[int]) -> None:
        self.ledger.check_known(sequence_ids)
        check_rows(self.ledger.label, self._max_slots, sequence_ids)
        self._tape.add(RebuildTable(tuple(sequence_ids)))


class _HostPool:
    """The host pool of the node, as far as plans look at it."""

    def __init__(self, pool: HostPool) -> None:
        self.name = pool.name
        self.free, self.total = pool.free, pool.total
        self.held = dict(pool.held)

    def get_stats(self) -> KVStats:
        return KVStats(self.free, self.total - self.free, self.total)


class _StateSlots:
    def __init__(self, tape: _Tape, held: frozenset[int]) -> None:
        self._tape, self._held = tape, set(held)

    def has(self, global_id: int) -> bool:
        return global_id in self._held

    def release(self, global_ids: Sequence[int]) -> None:
        self._held.difference_update(global_ids)
        self._tape.add(ReleaseStateSlots(tuple(global_ids)))


class _GpuPages:
    """`GpuKvBackend` of a plan."""

    def __init__(self, tape: _Tape, pool: _GpuPool | None, batch: SequenceBatch) -> None:
        self._tape, self._pool, self._batch = tape, pool, batch

    def allocate_pages(self, uuid: str, n: int) -> list[int]:
        pool, index = self._live(), self._batch.get_sequence(uuid).global_idx
        pages = pool.ledger.take([index], [n], new=index not in pool.ledger.sequences)[index]
        self._tape.add(AllocateGpu(uuid, tuple(pages)))
        return pages

    def release_pages(self, uuid: str) -> None:
        self._live().ledger.release([self._batch.get_sequence(uuid).global_idx])
        self._tape.add(ReleaseGpu(uuid))

    def free_pages(self) -> int:
        return 0 if self._pool is None else len(self._pool.ledger.free_pages)

    def _live(self) -> _GpuPool:
        if self._pool is None:
            raise RuntimeError("there is no GPU pool to plan with")
        return self._pool


class _HostPages:
    """`HostKvBackend` of a plan."""

    def __init__(self, tape: _Tape, pool: _HostPool | None, batch: SequenceBatch) -> None:
        self._tape, self._pool, self._batch = tape, pool, batch

    def allocate_pages(self, uuid: str, n: int) -> list[int]:
        """The pages have no numbers yet: -1 for each."""
        index = self._batch.get_sequence(uuid).global_idx
        assert self._pool is not None
        if n > self._pool.free:
            raise KVExhausted(self._pool.name, n, self._pool.free)
        self._pool.free -= n
        self._pool.held[index] = self._pool.held.get(index, 0) + n
        self._tape.add(AllocateHost(uuid, n))
        return [-1] * n

    def load_to_gpu_async(self, uuid: str, page_ids: list[int]) -> AsyncHandle:
        self._tape.add(LoadPages(uuid, tuple(page_ids)))
        return _Planned()


class _Planned:
    """What will be under way once the plan is carried out."""

    def wait(self) -> None:
        return None

    def done(self) -> bool:
        return True
