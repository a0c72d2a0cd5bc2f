"""Two pools that must move together: what is done to the KV pool and not to the index keys beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shadow.mutants.patch import around, module
from shadow.mutants.registry import Fault, Plant, Where, mutant
from shadow.observation import Kind


@mutant(
    "index-keys-not-loaded",
    Fault.NUMERIC,
    Where(Kind.EFFECTS, "calls*", step=4, sequence="e"),
    model="tiny-dual",
)
@contextmanager
def index_keys_not_loaded(plant: Plant) -> Iterator[None]:
    """B-29: a load during decoding brings the KV only; selection reads stale index keys: garbage, no crash."""

    def load(original: Any, view: Any, ids: Any, counts: Any, k: Any, v: Any, aux: Any) -> Any:
        if plant.step() == 4:
            plant.fired()
            return view.primary.async_load_layer_paged_kv_to_device(ids, counts, k, v)
        return original(view, ids, counts, k, v, aux)

    with around(module(plant, "kv.host_dual").DualHostKVCoordinator, "async_load_dual", load):
        yield


@mutant("index-keys-not-offloaded", Fault.NUMERIC, Where(Kind.EFFECTS, "calls*", step=0), model="tiny-dual")
@contextmanager
def index_keys_not_offloaded(plant: Plant) -> Iterator[None]:
    """B-30: the host view of the index keys is not bound at prefill, and a helper returns early: never offloaded."""

    def bind(original: Any, *args: Any) -> None:
        original(*args)
        wrapper = module(plant, "attention").AttnWrapperBase
        if plant.step() == 0:
            wrapper.prefill_kv_callback_aux = lambda layer, k: plant.fired()

    with around(plant.worker, "_bind_prefill_attention", bind):
        yield


@mutant("index-keys-not-appended", Fault.NUMERIC, Where(Kind.EFFECTS, "calls*", step=10), model="tiny-dual")
@contextmanager
def index_keys_not_appended(plant: Plant) -> Iterator[None]:
    """B-42: the host append of a step loses its paired action for the index keys."""

    def append(original: Any, entries: Any, ids: Any, positions: Any) -> Any:
        if plant.step() == 9:
            plant.fired()
            return None
        return original(entries, ids, positions)

    with around(plant.worker, "_append_decode_kv_to_host_aux_async", append):
        yield


@mutant("freed-in-one-pool", Fault.STRUCTURAL, Where(Kind.INVARIANT, "*", step=40), model="tiny-dual")
@contextmanager
def freed_in_one_pool(plant: Plant) -> Iterator[None]:
    """B-42: pages are given back in the KV pool and kept in the pool of the index keys."""

    def free(original: Any, manager: Any, ids: Sequence[int]) -> None:
        if plant.step() == 40:
            manager.primary.free_pages_for_sequences(ids)
            plant.fired()
        else:
            original(manager, ids)

    with around(module(plant, "kv").DualKVCacheCoordinator, "free_pages_for_sequences", free):
        yield


@mutant("index-table-not-rebuilt", Fault.STRUCTURAL, Where(Kind.EFFECTS, "calls*", step=8), model="tiny-dual")
@contextmanager
def index_table_not_rebuilt(plant: Plant) -> Iterator[None]:
    """B-28: the page table of the index keys keeps the rows of the batch before."""

    def rebuild(original: Any, manager: Any, ids: Sequence[int]) -> None:
        if plant.step() == 8:
            manager.primary.rebuild_page_table(ids)
            plant.fired()
        else:
            original(manager, ids)

    with around(module(plant, "kv").DualKVCacheCoordinator, "rebuild_page_table", rebuild):
        yield


@mutant(
    "selection-read-with-another-stride",
    Fault.NUMERIC,
    Where(Kind.KV, "primary.k.written*", step=9, layer=1),
    model="tiny-dual",
)
@contextmanager
def selection_read_with_another_stride(plant: Plant) -> Iterator[None]:
    """vllm#41834: the selected positions lie in a flat buffer that was captured with another row stride: row 0 is
    right, the others are shifted."""

    def select(original: Any, backend: Any, *args: Any, **more: Any) -> Any:
        chosen = original(backend, *args, **more)
        if plant.step() != 9 or chosen.shape[0] < 2:
            return chosen
        torch = __import__("torch")
        width = chosen.shape[1]
        flat = torch.nn.functional.pad(chosen.flatten(), (0, chosen.shape[0]), value=0)
        shifted = torch.stack(
            [flat[at * (width + 1) : at * (width + 1) + width] for at in range(chosen.shape[0])]
        )
        plant.fired()
        return shifted.clamp_min(0)

    with around(module(plant, "attention.torch_paged").TorchPagedAttention, "select_decode", select):
        yield


@mutant(
    "index-key-of-another-row",
    Fault.NUMERIC,
    Where(Kind.KV, "auxiliary.k.written*", step=9, sequence="b", layer=2),
    model="tiny-dual",
)
@contextmanager
def index_key_of_another_row(plant: Plant) -> Iterator[None]:
    """tenstorrent/vllm#395: the keys of two rows change places on their way into the index pool."""

    def append(original: Any, backend: Any, k: Any, v: Any, *rest: Any) -> None:
        last = plant.worker.gpu_paged_kv_cache_manager.auxiliary.get_kv_tensors(2)[0]
        if plant.step() == 9 and v is None and rest[0].data_ptr() == last.data_ptr():
            k = k.clone()
            k[[0, 1]] = k[[1, 0]]
            plant.fired()
        original(backend, k, v, *rest)

    with around(module(plant, "attention.torch_paged").TorchPagedAttention, "append", append):
        yield
