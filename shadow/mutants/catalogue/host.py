"""Host KV: what is offloaded, appended, loaded and evicted, and what gets lost on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shadow.mutants.patch import around, index, module, sequence
from shadow.mutants.registry import Fault, Plant, Where, mutant
from shadow.observation import Kind


def _view(plant: Plant) -> Any:
    return module(plant, "kv.host").HostPagedKVWorkerView


@mutant("load-skips-values", Fault.NUMERIC, Where(Kind.KV, "primary.v.page*", step=20, sequence="a", layer=0))
@contextmanager
def load_skips_values(plant: Plant) -> Iterator[None]:
    """TensorRT-LLM#8813: the keys of a resumed sequence are loaded, the values are not."""
    copies_made = [0]

    def copies(original: Any, transfers: Any, *args: Any) -> Any:
        copies_made[0] += 1
        made = original(transfers, *args)
        if plant.step() == 20 and copies_made[0] % 2 == 0:  # keys first, then values
            plant.fired()
            return lambda: None
        return made

    with around(module(plant, "kv.transfer").DeviceTransfers, "pages_to_device", copies):
        yield


@mutant("load-skips-last-page", Fault.NUMERIC, Where(Kind.EFFECTS, "calls*", step=20, sequence="b"))
@contextmanager
def load_skips_last_page(plant: Plant) -> Iterator[None]:
    """LMCache#4463: a page count one short: the last page of a sequence does not come back from the host."""

    def load(original: Any, view: Any, ids: Any, counts: Any, *targets: Any) -> Any:
        listed = [int(number) for number in ids]
        if plant.step() == 20 and index(plant, "b") in listed:
            counts = counts.clone()
            counts[listed.index(index(plant, "b"))] -= 1
            plant.fired()
        return original(view, ids, counts, *targets)

    with around(_view(plant), "async_load_layer_paged_kv_to_device", load):
        yield


@mutant("load-takes-pages-of-another", Fault.NUMERIC, Where(Kind.KV, "primary.k.page*", step=20, layer=0))
@contextmanager
def load_takes_pages_of_another(plant: Plant) -> Iterator[None]:
    """LMCache#4467: the KV of another prompt is loaded: of two sequences of one load the host pages change places."""

    def first_pages(original: Any, view: Any, ids: Sequence[int], counts: Sequence[int]) -> list[int]:
        pages = list(original(view, ids, counts))
        if plant.step() == 20 and len(ids) == 4:
            e, g = ids.index(index(plant, "e")), ids.index(index(plant, "g"))
            starts = [sum(counts[:at]) for at in (e, g)]
            pages[starts[0]], pages[starts[1]] = pages[starts[1]], pages[starts[0]]
            plant.fired()
        return pages

    with around(_view(plant), "_first_pages", first_pages):
        yield


@mutant("load-swaps-axes", Fault.NUMERIC, Where(Kind.KV, "primary.k.page*", step=20, sequence="a", layer=0))
@contextmanager
def load_swaps_axes(plant: Plant) -> Iterator[None]:
    """LMCache#4463 (layout): a page is copied heads first into a pool that is tokens first: same shape, other
    content."""

    def copies(original: Any, transfers: Any, source: Any, pages: Any, target: Any, to: Any) -> Any:
        if plant.step() != 20:
            return original(transfers, source, pages, target, to)
        layers, count, tokens, heads, dim = source.shape
        turned = source.view(layers, count, heads, tokens, dim).transpose(2, 3)
        plant.fired()
        return original(transfers, turned, pages, target, to)

    with around(module(plant, "kv.transfer").DeviceTransfers, "pages_to_device", copies):
        yield


@mutant("join-before-load-is-done", Fault.NUMERIC, Where(Kind.EFFECTS, "calls*", step=4))
@contextmanager
def join_before_load_is_done(plant: Plant) -> Iterator[None]:
    """sglang-jax#1487: a sequence joins the batch without waiting for its load; here the copy comes a step later."""
    late: list[Any] = []

    def load(original: Any, view: Any, ids: Any, counts: Any, *targets: Any) -> Any:
        if plant.step() == 4:
            late.append(lambda: original(view, ids, counts, *targets).wait())
            plant.fired()
            return None
        return original(view, ids, counts, *targets)

    def update(original: Any, batch: Any, tokens: Any) -> None:
        original(batch, tokens)
        while late and plant.step() > 8:
            late.pop()()

    with (
        around(_view(plant), "async_load_layer_paged_kv_to_device", load),
        around(plant.worker, "_decode_update_sequences", update),
    ):
        yield


@mutant("append-one-position-on", Fault.NUMERIC, Where(Kind.EFFECTS, "calls*", step=10, sequence="e"))
@contextmanager
def append_one_position_on(plant: Plant) -> Iterator[None]:
    """onnxruntime-genai#2354: the host copy of a token lands one position further on and leaves a hole."""

    def append(original: Any, view: Any, entries: Any, ids: Any, positions: Any) -> Any:
        number = index(plant, "e")
        if plant.step() == 9 and number in ids:
            positions = [at + (gid == number) for gid, at in zip(ids, positions, strict=True)]
            plant.fired()
        return original(view, entries, ids, positions)

    with around(_view(plant), "async_append_decode_kv_to_host_batched_kernel", append):
        yield


@mutant("append-skipped", Fault.NUMERIC, Where(Kind.EFFECTS, "calls*", step=10))
@contextmanager
def append_skipped(plant: Plant) -> Iterator[None]:
    """B-48: a path that only wanted to compare skips the host append of its step."""

    def flush(original: Any) -> None:
        if plant.step() == 9:
            plant.worker._deferred_kv_batch = None
            plant.worker._deferred_kv_entries = []
            plant.fired()
        original()

    with around(plant.worker, "_flush_deferred_kv_to_host", flush):
        yield


@mutant("append-reads-reused-buffer", Fault.NUMERIC, Where(Kind.HOST_KV, "*", step=10, layer=1))
@contextmanager
def append_reads_reused_buffer(plant: Plant) -> Iterator[None]:
    """B-32: the source of a copy is reused while the copy is under way: the host gets a part of the next step."""

    def append(original: Any, view: Any, entries: Any, ids: Any, positions: Any) -> Any:
        if plant.step() == 9:
            layer, k, v = entries[1]
            entries = [entries[0], (layer, k.roll(1, 0), v), *entries[2:]]
            plant.fired()
        return original(view, entries, ids, positions)

    with around(_view(plant), "async_append_decode_kv_to_host_batched_kernel", append):
        yield


@mutant("append-loses-a-layer", Fault.NUMERIC, Where(Kind.EFFECTS, "calls*", step=10))
@contextmanager
def append_loses_a_layer(plant: Plant) -> Iterator[None]:
    """B-42: the batched append is handed all layers but the last one."""

    def append(original: Any, view: Any, entries: Any, ids: Any, positions: Any) -> Any:
        if plant.step() == 9:
            entries = entries[:-1]
            plant.fired()
        return original(view, entries, ids, positions)

    with around(_view(plant), "async_append_decode_kv_to_host_batched_kernel", append):
        yield


@mutant(
    "prefill-offloads-short",
    Fault.NUMERIC,
    Where(Kind.HOST_KV, "host.primary.k.page*", step=0, sequence="a", layer=1),
)
@contextmanager
def prefill_offloads_short(plant: Plant) -> Iterator[None]:
    """vllm#43810 (offload side): the last token of a prompt is left out of the offload of a layer."""

    def write(original: Any, view: Any, entries: Any, slots: Any) -> Any:
        if plant.step() == 0 and plant.worker.phase == "prefill" and entries[0][0] == 1:
            layer, k, v = entries[0]
            k = k.clone()
            k[9] = 0  # the last token of a, the first of the packed prompts
            entries = [(layer, k, v)]
            plant.fired()
        return original(view, entries, slots)

    with around(_view(plant), "_write", write):
        yield


@mutant(
    "completion-leaks-host-pages", Fault.STRUCTURAL, Where(Kind.INVARIANT, "leftovers", step=8, sequence="c")
)
@contextmanager
def completion_leaks_host_pages(plant: Plant) -> Iterator[None]:
    """B-18: the result is reported first, which forgets the local index; the release then finds nothing to free."""

    def release(original: Any, uuids: Sequence[str]) -> None:
        if plant.step() == 8:
            plant.fired()
        else:
            original(uuids)

    with around(plant.worker, "_release_host_kv_pages", release):
        yield


@mutant(
    "growth-in-metadata-only", Fault.STRUCTURAL, Where(Kind.INVARIANT, "held-pages", step=12, sequence="b")
)
@contextmanager
def growth_in_metadata_only(plant: Plant) -> Iterator[None]:
    """B-79: the record of host pages grows although the pool did not."""

    def grow(original: Any, view: Any, items: Sequence[tuple[int, int]]) -> None:
        if plant.step() == 12:
            plant.fired()
        else:
            original(view, items)

    with around(_view(plant), "grow_pages_for_sequences", grow):
        yield


@mutant("evicted-tokens-repeated", Fault.NUMERIC, Where(Kind.SEQUENCE, "*", step=4, sequence="a"))
@contextmanager
def evicted_tokens_repeated(plant: Plant) -> Iterator[None]:
    """B-21: an evicted sequence comes back with its decoded tokens in the prompt twice."""

    def evict(original: Any, uuids: Sequence[str]) -> None:
        original(uuids)
        entry = sequence(plant, "a")
        if entry is not None and entry.uuid in uuids:
            fresh = entry.evicted_token_ids[:, -entry.decoded_length :]
            entry.evicted_token_ids = __import__("torch").cat([entry.evicted_token_ids, fresh], dim=1)
            plant.fired()

    with around(plant.worker, "_evict_sequences", evict):
        yield


@mutant("evicted-prompt-cut", Fault.NUMERIC, Where(Kind.SEQUENCE, "*", step=4, sequence="a"))
@contextmanager
def evicted_prompt_cut(plant: Plant) -> Iterator[None]:
    """B-57: the re-entry prompt is cut to a maximum length; its tail is dropped silently."""

    def evict(original: Any, uuids: Sequence[str]) -> None:
        original(uuids)
        entry = sequence(plant, "a")
        if entry is not None and entry.uuid in uuids:
            entry.evicted_token_ids = entry.evicted_token_ids[:, :12]
            plant.fired()

    with around(plant.worker, "_evict_sequences", evict):
        yield


@mutant("reservation-half-undone", Fault.STRUCTURAL, Where(Kind.EFFECTS, "calls*", step=20))
@contextmanager
def reservation_half_undone(plant: Plant) -> Iterator[None]:
    """B-17: a sequence counts as admitted before its host pages are there: the status comes first."""

    def admit(original: Any, uuids: Sequence[str]) -> Any:
        status = module(plant, "sequence").SequenceStatus.IN_PREFILL
        if plant.step() < 20 or not uuids:
            return original(uuids)
        plant.fired()
        for uuid in uuids:
            plant.worker.global_batch.update_status(uuid, status)
        plant.worker._reserve_prefill_host_kv(list(uuids))
        return list(uuids)

    with around(plant.worker, "_admit_to_prefill", admit):
        yield
