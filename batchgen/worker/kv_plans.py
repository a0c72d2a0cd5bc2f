"""What the KV manager is asked and what it answers: values, frozen all the way down.

A snapshot names only the sequences that a request is about. `generation` of a pool counts what was taken from it and
given back, so that a plan can be told from one that was made for another state.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum, auto
from typing import Any

from batchgen.continuous_batching import NodeHostStats
from batchgen.kv.ledger import PageLedger
from batchgen.sequence import SequenceEntry, SequenceStatus


@dataclass(frozen=True)
class SequenceState:
    """The fields of a `SequenceEntry` that are numbers; its tensors stay where they are."""

    uuid: str
    global_idx: int
    priority: int
    status: SequenceStatus
    assigned_rank: int | None
    prompt_length: int
    max_decode_length: int
    original_prompt_length: int
    original_max_decode_length: int
    decoded_length: int
    current_context_length: int
    kv_token_budget: int
    total_decoded_before_eviction: int
    reentry_decoded_baseline: int
    gpu_pages_allocated: int
    had_initial_gpu_reservation: bool
    host_token_capacity: int
    host_pages_allocated: int

    @staticmethod
    def of(sequence: SequenceEntry) -> SequenceState:
        return SequenceState(*(getattr(sequence, field.name) for field in fields(SequenceState)))


@dataclass(frozen=True)
class GpuPool:
    """`free`: the free list, the next page to be given last. `held`: (global index, its pages in order). `max_slots`:
    rows of the page table."""

    name: str
    num_pages: int
    max_slots: int
    generation: int
    free: tuple[int, ...]
    held: tuple[tuple[int, tuple[int, ...]], ...]

    def ledger(self) -> PageLedger:
        """One of its own, in this state."""
        ledger = PageLedger(self.name, self.num_pages)
        ledger.generation = self.generation
        ledger.free_pages = list(self.free)
        ledger.sequences = {index: list(pages) for index, pages in self.held}
        return ledger

    @staticmethod
    def of(ledger: PageLedger, max_slots: int) -> GpuPool:
        """The pool that a ledger keeps."""
        held = tuple((index, tuple(pages)) for index, pages in ledger.sequences.items())
        return GpuPool(
            ledger.pool, ledger.num_pages, max_slots, ledger.generation, tuple(ledger.free_pages), held
        )


@dataclass(frozen=True)
class HostPool:
    """`held`: (global index, how many pages) of the sequences that this rank keeps there."""

    name: str
    free: int
    used: int
    total: int
    held: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class KvConfig:
    """What is settled while a worker lives."""

    page_size: int
    enable_host_kv_eviction: bool
    host_kv_watermark: int
    host_kv_eviction_watermark: int


@dataclass(frozen=True)
class KvSnapshot:
    """The worker as a plan sees it. `local`: (uuid, local index); `gpu`: None without a live pool; `reserved`: global
    indices with GPU pages; `with_state_slot`: those with a recurrent state."""

    config: KvConfig
    rank: int
    world_size: int
    sequences: tuple[SequenceState, ...]
    local: tuple[tuple[str, int], ...]
    gpu: GpuPool | None
    host: HostPool | None
    reserved: frozenset[int] = frozenset()
    with_state_slot: frozenset[int] = frozenset()


class Allocation(Enum):
    WHOLE_BUDGET = auto()
    TWO_PAGE_BUFFER = auto()
    EXTENSION = auto()
    HOST_GROWTH = auto()


@dataclass(frozen=True)
class AllocRequest:
    """`local_ids` with their `tokens` (WHOLE_BUDGET), or alone (TWO_PAGE_BUFFER); `uuids` (EXTENSION), with the `pages`
    that each grows by (HOST_GROWTH)."""

    snapshot: KvSnapshot
    kind: Allocation
    local_ids: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()
    pages: tuple[int, ...] = ()
    load_from_host: bool = True


class Eviction(Enum):
    RELEASE = auto()
    HOLD = auto()
    WATERMARK = auto()
    KEEP_BACK = auto()


@dataclass(frozen=True)
class NodeUse:
    """Host pool of one node, as its first rank read it."""

    node_id: int
    free_percent: int


@dataclass(frozen=True)
class EvictionRequest:
    """`local_ids` (RELEASE), `uuids` (HOLD), what decides whether decoding pauses for a prefill (WATERMARK), or the
    host pools of the nodes (KEEP_BACK)."""

    snapshot: KvSnapshot
    kind: Eviction
    local_ids: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()
    nodes: tuple[NodeUse, ...] = ()
    work_is_queued: bool = False
    some_are_evicted: bool = False
    stats: tuple[NodeHostStats, ...] = ()


@dataclass(frozen=True)
class RankShare:
    """What a rank has told of its node and of its sequences that may move: (uuid, host pages)."""

    node_id: int
    num_used_pages: int
    num_total_pages: int
    movable: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class MigrationRequest:
    """`shares`: of all ranks, in their order."""

    snapshot: KvSnapshot
    shares: tuple[RankShare, ...]


# What a plan does, in order.


@dataclass(frozen=True)
class AllocateGpu:
    """`pages`: those that the free list gives."""

    uuid: str
    pages: tuple[int, ...]


@dataclass(frozen=True)
class ReleaseGpu:
    uuid: str


@dataclass(frozen=True)
class AllocateHost:
    """Which pages the node gives is known when it has given them: other ranks take of them, too."""

    uuid: str
    n: int


@dataclass(frozen=True)
class Load:
    """The KV of these rows of the page table from the host."""

    global_ids: tuple[int, ...]


@dataclass(frozen=True)
class LoadPages:
    """The KV of one sequence from the host, into these pages of the GPU pool."""

    uuid: str
    pages: tuple[int, ...]


@dataclass(frozen=True)
class RebuildTable:
    global_ids: tuple[int, ...]


@dataclass(frozen=True)
class SetField:
    uuid: str
    field: str
    value: Any


@dataclass(frozen=True)
class SetStatus:
    uuid: str
    status: SequenceStatus


@dataclass(frozen=True)
class Reserve:
    """The sequence is, or is no more, one of those with GPU pages."""

    global_idx: int
    reserved: bool


@dataclass(frozen=True)
class ReleaseStateSlots:
    global_ids: tuple[int, ...]


@dataclass(frozen=True)
class Count:
    counter: str
    by: int


Operation = (
    AllocateGpu
    | ReleaseGpu
    | AllocateHost
    | Load
    | LoadPages
    | RebuildTable
    | SetField
    | SetStatus
    | Reserve
    | ReleaseStateSlots
    | Count
)


@dataclass(frozen=True)
class AllocPlan:
    """`granted`: False where the pool has too few pages; then nothing is done."""

    snapshot: KvSnapshot
    operations: tuple[Operation, ...]
    granted: bool = True


@dataclass(frozen=True)
class EvictionPlan:
    """`pause`: decoding stops for a prefill (WATERMARK). `kept_back`: (node, host pages that new sequences leave free)
    (KEEP_BACK)."""

    snapshot: KvSnapshot
    operations: tuple[Operation, ...]
    pause: bool = False
    kept_back: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class MigrationPlan:
    """`moves`: (uuid, from rank, to rank)."""

    snapshot: KvSnapshot
    moves: tuple[tuple[str, int, int], ...]
