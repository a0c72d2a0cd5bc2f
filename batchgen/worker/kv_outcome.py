"""What a plan comes to: the state that it leaves behind, told from the plan, and read from a worker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from batchgen.worker.kv_plans import (
    AllocateGpu,
    AllocateHost,
    Count,
    GpuPool,
    KvSnapshot,
    Load,
    LoadPages,
    Operation,
    RebuildTable,
    ReleaseGpu,
    ReleaseStateSlots,
    Reserve,
    SequenceState,
    SetField,
    SetStatus,
)
from batchgen.worker.kv_snapshot import snapshot


@dataclass(frozen=True)
class KvState:
    """What KV methods change. `host`: (global index, pages); `rows`: of the page table, None where no plan set them;
    `counters`: those that a plan counts on."""

    sequences: tuple[SequenceState, ...]
    gpu: GpuPool | None
    host: tuple[tuple[int, int], ...]
    reserved: frozenset[int]
    with_state_slot: frozenset[int]
    rows: tuple[int, ...] | None
    counters: tuple[tuple[str, int], ...]


def after(before: KvSnapshot, operations: tuple[Operation, ...], counters: Counter[str]) -> KvState:
    """The state once `operations` are carried out on `before`, where the worker had counted `counters`."""
    sequences = {state.uuid: state for state in before.sequences}
    ledger = None if before.gpu is None else before.gpu.ledger()
    host = dict(before.host.held) if before.host is not None else {}
    reserved, slots = set(before.reserved), set(before.with_state_slot)
    rows: tuple[int, ...] | None = None
    counted: Counter[str] = Counter()
    for operation in operations:
        match operation:
            case AllocateGpu(uuid, pages):
                index = sequences[uuid].global_idx
                assert ledger is not None
                ledger.take([index], [len(pages)], new=index not in ledger.sequences)
            case ReleaseGpu(uuid):
                assert ledger is not None
                ledger.release([sequences[uuid].global_idx])
            case AllocateHost(uuid, n):
                index = sequences[uuid].global_idx
                host[index] = host.get(index, 0) + n
            case SetField(uuid, field, value):
                sequences[uuid] = replace(sequences[uuid], **{field: value})
            case SetStatus(uuid, status):
                sequences[uuid] = replace(sequences[uuid], status=status)
            case Reserve(index, True):
                reserved.add(index)
            case Reserve(index, False):
                reserved.discard(index)
            case ReleaseStateSlots(indices):
                slots.difference_update(indices)
            case RebuildTable(indices):
                rows = indices
            case Load(indices):
                counted["kv_loads"] += len(indices)
            case Count(counter, by):
                counted[counter] += by
            case LoadPages():
                pass
    return KvState(
        tuple(sequences.values()),
        None if ledger is None or before.gpu is None else GpuPool.of(ledger, before.gpu.max_slots),
        tuple(sorted(host.items())),
        frozenset(reserved),
        frozenset(slots),
        rows,
        tuple((name, counters[name] + by) for name, by in sorted(counted.items())),
    )


def read(worker: Any, expected: KvState) -> KvState:
    """The same of a worker, as it is now."""
    batch = worker.global_batch
    now = snapshot(worker, [batch.get_sequence(state.uuid) for state in expected.sequences])
    rows = None if expected.rows is None else tuple(worker.gpu_paged_kv_cache_manager.slot_to_seq_id)
    return KvState(
        now.sequences,
        now.gpu,
        tuple(sorted(now.host.held)) if now.host is not None else (),
        now.reserved,
        now.with_state_slot,
        rows,
        tuple((name, worker.counters[name]) for name, _ in expected.counters),
    )
