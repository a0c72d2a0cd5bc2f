"""Three faults that each need several events of one sequence and of others: what `shadow shrink` is timed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shadow.mutants.patch import around, index, module, sequence
from shadow.mutants.registry import Fault, Plant, Where, mutant
from shadow.observation import Kind

VICTIM = "victim"
LATE = "r100"


@mutant("freed-twice-beside-others", Fault.STRUCTURAL, Where(Kind.INVARIANT))
@contextmanager
def freed_twice_beside_others(plant: Plant) -> Iterator[None]:
    """sglang#18694: the last page of the victim is freed twice, if others still hold pages when it ends."""

    def release(original: Any, ledger: Any, ids: Sequence[int]) -> None:
        victim = index(plant, VICTIM)
        pages = list(ledger.sequences.get(victim, ())) if victim in ids else []
        original(ledger, ids)
        if pages and ledger.sequences and sequence(plant, VICTIM).decoded_length > 1:
            ledger.free_pages.insert(0, pages[-1])
            plant.fired()

    with around(module(plant, "kv.ledger").PageLedger, "release", release):
        yield


@mutant("loaded-short-beside-others", Fault.STRUCTURAL, Where(Kind.EFFECTS))
@contextmanager
def loaded_short_beside_others(plant: Plant) -> Iterator[None]:
    """LMCache#4463: one page too few of the victim is loaded, if it is loaded together with others."""

    def load(original: Any, ids: Any, counts: Any, *rest: Any) -> Any:
        counts = counts.clone()
        for place, number in enumerate(ids.tolist()):
            if number == index(plant, VICTIM) and len(ids) > 1 and counts[place] > 1:
                counts[place] -= 1
                plant.fired()
        return original(ids, counts, *rest)

    with around(plant.worker.host_paged_kv_worker_view, "async_load_layer_paged_kv_to_device", load):
        yield


@mutant("baseline-lost-when-evicted", Fault.STRUCTURAL, Where(Kind.SEQUENCE, "reentry_decoded_baseline"))
@contextmanager
def baseline_lost_when_evicted(plant: Plant) -> Iterator[None]:
    """B-42: the metadata of the eviction of one that came late leaves out the baseline of its re-entry."""

    def evict(original: Any, uuids: Sequence[str]) -> None:
        original(uuids)
        for entry in plant.worker.global_batch:
            if entry.uuid in uuids and entry.custom_id >= LATE:
                entry.reentry_decoded_baseline = 0
                plant.fired()

    with around(plant.worker, "_evict_sequences", evict):
        yield
