"""The free list and what it says about ownership: freed twice, not freed, freed in use, given wrongly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shadow.mutants.patch import around, index, module
from shadow.mutants.registry import Fault, Plant, Where, mutant
from shadow.observation import Kind


def _ledger(plant: Plant) -> Any:
    return module(plant, "kv.ledger").PageLedger


@mutant("page-freed-twice", Fault.STRUCTURAL, Where(Kind.INVARIANT, "double-free", step=32))
@contextmanager
def page_freed_twice(plant: Plant) -> Iterator[None]:
    """sglang#18694, LMCache#5005: a page of finished sequences goes onto the free list twice."""

    def release(original: Any, ledger: Any, ids: Sequence[int]) -> None:
        pages = [page for number in ids for page in ledger.sequences.get(number, ())]
        original(ledger, ids)
        if plant.step() == 32:
            ledger.free_pages.insert(0, pages[0])
            plant.fired()

    with around(_ledger(plant), "release", release):
        yield


@mutant("finished-sequence-leaks-page", Fault.STRUCTURAL, Where(Kind.INVARIANT, "*", step=8))
@contextmanager
def finished_sequence_leaks_page(plant: Plant) -> Iterator[None]:
    """vllm-ascend#16662, vllm#46283: all pages but the last are given back: usage climbs for ever."""

    def release(original: Any, ledger: Any, ids: Sequence[int]) -> None:
        if plant.step() == 8:
            ledger.sequences[ids[-1]].pop()
            plant.fired()
        original(ledger, ids)

    with around(_ledger(plant), "release", release):
        yield


@mutant("page-freed-in-use", Fault.STRUCTURAL, Where(Kind.INVARIANT, "*", step=8))
@contextmanager
def page_freed_in_use(plant: Plant) -> Iterator[None]:
    """sglang#25805, vllm-ascend#15990: a page is freed that a running sequence still names."""

    def release(original: Any, ledger: Any, ids: Sequence[int]) -> None:
        original(ledger, ids)
        if plant.step() == 8:
            ledger.free_pages.insert(0, ledger.sequences[index(plant, "d")][0])
            plant.fired()

    with around(_ledger(plant), "release", release):
        yield


@mutant("page-given-to-two", Fault.STRUCTURAL, Where(Kind.INVARIANT, "no-alias", step=12))
@contextmanager
def page_given_to_two(plant: Plant) -> Iterator[None]:
    """TensorRT-LLM#14937: two sequences that grow at once get the same page."""

    def take(original: Any, ledger: Any, ids: Sequence[int], counts: Sequence[int], *, new: bool) -> Any:
        taken = original(ledger, ids, counts, new=new)
        if plant.step() == 12 and list(ids) == [index(plant, "d")] and counts[0] == 1:
            page, other = taken[ids[0]][0], ledger.sequences[index(plant, "b")][-1]
            ledger.sequences[ids[0]][-1] = other
            taken[ids[0]] = [other]
            ledger.free_pages.append(page)
            plant.fired()
        return taken

    with around(_ledger(plant), "take", take):
        yield


@mutant(
    "scratch-page-given-out", Fault.STRUCTURAL, Where(Kind.INVARIANT, "pages-exist", step=32, sequence="f")
)
@contextmanager
def scratch_page_given_out(plant: Plant) -> Iterator[None]:
    """lmdeploy#4569 (the reserved block): the page that takes the writes of padded rows is given to a sequence."""

    def take(original: Any, ledger: Any, ids: Sequence[int], counts: Sequence[int], *, new: bool) -> Any:
        taken = original(ledger, ids, counts, new=new)
        if plant.step() == 32 and list(ids) == [index(plant, "f")] and counts[0] == 1:
            ledger.free_pages.append(taken[ids[0]][0])
            ledger.sequences[ids[0]][-1] = ledger.num_pages
            taken[ids[0]] = [ledger.num_pages]
            plant.fired()
        return taken

    with around(_ledger(plant), "take", take):
        yield


@mutant(
    "allocator-takes-one-more", Fault.STRUCTURAL, Where(Kind.INVARIANT, "held-pages", step=0, sequence="a")
)
@contextmanager
def allocator_takes_one_more(plant: Plant) -> Iterator[None]:
    """B-04, B-45: two formulas for one quantity: the scheduler reserves N pages, the allocator takes N + 1 for a
    context that fills its pages exactly."""

    def take(original: Any, ledger: Any, ids: Sequence[int], counts: Sequence[int], *, new: bool) -> Any:
        if new and plant.step() == 0 and index(plant, "a") in ids:
            counts = [
                count + (number == index(plant, "a")) for number, count in zip(ids, counts, strict=True)
            ]
            plant.fired()
        return original(ledger, ids, counts, new=new)

    with around(_ledger(plant), "take", take):
        yield


@mutant("extension-before-holds", Fault.STRUCTURAL, Where(Kind.EFFECTS, "calls*", step=12))
@contextmanager
def extension_before_holds(plant: Plant) -> Iterator[None]:
    """B-76: pages are taken before those of held sequences are given back: other pages, and none at all where the
    pool is full."""
    waiting: list[Sequence[str]] = []

    def hold(original: Any, uuids: Sequence[str]) -> None:
        if plant.step() == 12:
            waiting.append(uuids)
            plant.fired()
        else:
            original(uuids)

    def extend(original: Any, uuids: Sequence[str]) -> Any:
        done = original(uuids)
        while waiting:
            with_pages = waiting.pop()
            plant.worker.__class__._put_sequences_onhold(plant.worker, with_pages)
        return done

    with (
        around(plant.worker, "_put_sequences_onhold", hold),
        around(plant.worker, "_extend_gpu_kv_allocation", extend),
    ):
        yield


@mutant("held-pages-not-freed", Fault.STRUCTURAL, Where(Kind.EFFECTS, "calls*", step=12))
@contextmanager
def held_pages_not_freed(plant: Plant) -> Iterator[None]:
    """TensorRT-LLM#12667: a sequence is paused, its pages stay with it while its record says that it has none."""

    def release(original: Any, local_ids: Sequence[int]) -> None:
        if plant.step() == 12:
            plant.fired()
        else:
            original(local_ids)

    with around(plant.worker, "_release_gpu_kv_pages", release):
        yield


@mutant("free-list-served-from-the-front", Fault.CONTROL, Where(None), pairing="batch-order")
@contextmanager
def free_list_served_from_the_front(plant: Plant) -> Iterator[None]:
    """Control: the pool gives its longest free page first, not its latest: other page numbers, nothing else."""

    def take(original: Any, ledger: Any, ids: Sequence[int], counts: Sequence[int], *, new: bool) -> Any:
        ledger.free_pages.reverse()
        try:
            taken = original(ledger, ids, counts, new=new)
        finally:
            ledger.free_pages.reverse()
        plant.fired()
        return taken

    with around(_ledger(plant), "take", take):
        yield
