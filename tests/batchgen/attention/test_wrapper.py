"""The class-level state that the worker binds: what a forward reads, and what it refuses to run without."""

from __future__ import annotations

import pytest
import torch

from batchgen.attention import Attn_Wrapper, AttnWrapperBase, TorchPagedAttention
from batchgen.models import load_model
from tests.batchgen.models.paged import PagedRunner
from tests.batchgen.models.test_parity import random_prompts

NAMES = ["tiny", "tiny-dual"]


def test_reset_restores_every_mutable_attribute() -> None:
    defaults = AttnWrapperBase.snapshot()
    assert set(defaults) == set(AttnWrapperBase.MUTABLE_ATTRS)
    for name in AttnWrapperBase.MUTABLE_ATTRS:
        setattr(Attn_Wrapper, name, object())
    assert all(AttnWrapperBase.snapshot()[name] is not defaults[name] for name in defaults)
    AttnWrapperBase.reset()
    assert AttnWrapperBase.snapshot() == defaults


def test_mutable_attrs_name_every_class_level_attribute_that_can_be_bound() -> None:
    names = {name for name in AttnWrapperBase.__annotations__ if not name.isupper()}
    assert names == set(AttnWrapperBase.MUTABLE_ATTRS)


def test_forward_without_bound_state_says_what_is_missing() -> None:
    model = load_model("tiny").model
    ids = torch.tensor([1])
    with pytest.raises(RuntimeError, match=r"phase 'idle': bind 'prefill' or 'decode'"):
        model(ids, ids)
    AttnWrapperBase.phase = "prefill"
    with pytest.raises(RuntimeError, match=r"without AttnWrapperBase\.attention_backend and cu_seqlens"):
        model(ids, ids)
    AttnWrapperBase.phase = "decode"
    with pytest.raises(RuntimeError, match="gpu_paged_kv_manager_primary"):
        model(ids, ids)


def test_a_model_with_index_keys_needs_the_auxiliary_pool_in_decode() -> None:
    runner = PagedRunner(load_model("tiny-dual").model)
    runner.prefill({0: [1, 2, 3]})
    runner.aux = None
    with pytest.raises(RuntimeError, match="gpu_paged_kv_manager_aux first"):
        runner.decode([0])


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_rank_runs_the_forward_without_pools_or_callbacks(name: str) -> None:
    model = load_model(name).model
    for packed in (False, True):
        if packed:
            model.pack_for_decode()
        AttnWrapperBase.phase = "decode"
        AttnWrapperBase.attention_backend = TorchPagedAttention()
        AttnWrapperBase.cache_seqlens = torch.empty(0, dtype=torch.int32)
        AttnWrapperBase.kv_append_callback = lambda *_: pytest.fail("no rows, nothing to append")
        empty = torch.empty(0, dtype=torch.int64)
        assert model.compute_logits(model(empty, empty)).shape == (0, 264)


@pytest.mark.parametrize("name", NAMES)
def test_append_callbacks_get_the_written_kv_in_tensors_that_later_steps_do_not_change(name: str) -> None:
    runner = PagedRunner(load_model(name).model)
    runner.prefill({0: [5, 6, 7], 1: [9]}, room=8)
    kept: list[tuple[int, int, torch.Tensor, torch.Tensor]] = []
    kept_aux: list[tuple[int, int, torch.Tensor]] = []
    bind = runner.bind

    def bind_with_callbacks(phase: str) -> None:
        bind(phase)
        step = len(runner.tokens[0])
        AttnWrapperBase.kv_append_callback = lambda layer, k, v: kept.append((step, layer, k, v))
        AttnWrapperBase.kv_append_callback_aux = lambda layer, k: kept_aux.append((step, layer, k))

    runner.bind = bind_with_callbacks  # type: ignore[method-assign]
    for _ in range(4):
        runner.decode([0, 1])
    layers = runner.model.config.num_hidden_layers
    assert len(kept) == 4 * layers and len(kept_aux) == (4 * layers if runner.aux else 0)
    for step, layer, k, v in kept:
        k_pool, v_pool = runner.pool.get_kv_tensors(layer)
        assert v_pool is not None
        page, offset = divmod(step - 1, 4)
        slot = runner.pool._sequences[0][page]
        assert torch.equal(k_pool[slot, offset], k[0]) and torch.equal(v_pool[slot, offset], v[0])
    for step, layer, k in kept_aux:
        assert runner.aux is not None
        page, offset = divmod(step - 1, 4)
        pool, _ = runner.aux.get_kv_tensors(layer)
        assert torch.equal(pool[runner.aux._sequences[0][page], offset, 0], k[0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("row_exact", [False, True])
def test_a_padded_static_batch_gives_the_live_rows_and_touches_only_scratch(
    name: str, row_exact: bool
) -> None:
    model = load_model(name, row_exact=row_exact).model
    prompts = dict(enumerate(random_prompts(3, longest=20, seed=4)))
    live, padded = PagedRunner(model), PagedRunner(model)
    for runner in (live, padded):
        runner.prefill(prompts, room=1)
        for pool in runner._pools():
            poison_dead_slots(runner, pool)
    expected = live.decode([0, 1, 2])

    padded.bind("decode")
    for pool in padded._pools():
        pool.rebuild_page_table([0, 1, 2])
    before = [pool.k_cache[:, :-1].clone() for pool in padded._pools()]
    lengths = [len(padded.tokens[i]) for i in range(3)] + [0, 0, 0]
    table = torch.full((6, 12), -1, dtype=torch.int32)
    rows = padded.pool.page_table_for_rows(3)
    table[:3, : rows.shape[1]] = rows
    AttnWrapperBase.decode_page_table = table
    AttnWrapperBase.cache_seqlens = torch.tensor(lengths, dtype=torch.int32)
    inputs = torch.tensor([padded.tokens[i][-1] for i in range(3)] + [0, 0, 0])
    logits = model.compute_logits(model(inputs, (torch.tensor(lengths) - 1).clamp_min(0)))
    assert torch.isfinite(logits).all()
    if row_exact:
        assert torch.equal(logits[:3], expected)
    else:
        assert torch.allclose(logits[:3], expected, atol=1e-3)
    for pool, old in zip(padded._pools(), before, strict=True):
        new = pool.k_cache[:, :-1]
        same = (new == old) | (new.isnan() & old.isnan())
        pages = (~same).flatten(2).any(2).any(0).nonzero().flatten().tolist()
        assert set(pages) == {pool._sequences[i][(lengths[i] - 1) // 4] for i in range(3)}


def poison_dead_slots(runner: PagedRunner, pool: object) -> None:
    """NaN in every page that no sequence owns, in every slot not yet written, and in the scratch page."""
    for layer in range(pool.config.num_layers):  # type: ignore[attr-defined]
        for tensor in pool.get_kv_tensors(layer):  # type: ignore[attr-defined]
            if tensor is None:
                continue
            dead = torch.ones(tensor.shape[:2], dtype=torch.bool)
            for gid, pages in pool._sequences.items():  # type: ignore[attr-defined]
                written = len(runner.tokens[gid]) - 1
                for number, page in enumerate(pages):
                    dead[page, : max(0, min(4, written - 4 * number))] = False
            tensor[dead] = float("nan")


def test_freed_pages_may_hold_nan_without_reaching_any_later_step() -> None:
    model = load_model("tiny-dual").model
    prompts = dict(enumerate(p * 5 for p in random_prompts(4, longest=8, seed=5)))
    clean, poisoned = PagedRunner(model, num_pages=40), PagedRunner(model, num_pages=40)
    clean.prefill(prompts)
    poisoned.prefill(prompts)
    for step in range(10):
        batch = [0, 1, 2, 3] if step < 4 else [0, 2]
        if step == 4:
            for runner in (clean, poisoned):
                for pool in runner._pools():
                    pool.free_pages_for_sequences([1, 3])
        for pool in poisoned._pools():
            poison_dead_slots(poisoned, pool)
        assert torch.equal(clean.decode(batch), poisoned.decode(batch))


def test_rows_may_name_table_slots_of_their_own_in_each_pool() -> None:
    model = load_model("tiny-dual").model
    plain, permuted = PagedRunner(model), PagedRunner(model)
    assert permuted.aux is not None
    permuted.aux.allocate_pages_for_sequences([99], [12])  # so that the pools' pages differ as well
    for runner in (plain, permuted):
        runner.prefill(dict(enumerate([p * 20 for p in random_prompts(3, longest=3, seed=6)])), room=4)
    expected = plain.decode([0, 1, 2])
    permuted.bind("decode")
    permuted.pool.rebuild_page_table([2, 0, 1])
    permuted.aux.rebuild_page_table([1, 2, 0])
    AttnWrapperBase.primary_slot_indices = torch.tensor([1, 2, 0])
    AttnWrapperBase.aux_slot_indices = torch.tensor([2, 0, 1])
    lengths = torch.tensor([len(permuted.tokens[i]) for i in range(3)])
    AttnWrapperBase.cache_seqlens = lengths.to(torch.int32)
    inputs = torch.tensor([permuted.tokens[i][-1] for i in range(3)])
    logits = model.compute_logits(model(inputs, lengths - 1))
    assert torch.equal(logits, expected)


def test_a_dual_coordinator_bound_as_the_manager_decodes_from_its_primary() -> None:
    from batchgen.kv import DualKVCacheCoordinator

    model = load_model("tiny-dual").model
    runner = PagedRunner(model)
    runner.prefill({0: [1, 2, 3], 1: [4]}, room=4)
    expected = runner.decode([0, 1])
    again = PagedRunner(model)
    again.prefill({0: [1, 2, 3], 1: [4]}, room=4)
    assert again.aux is not None
    bind = again.bind

    def bind_coordinator(phase: str) -> None:
        bind(phase)
        AttnWrapperBase.gpu_paged_kv_manager_primary = None
        AttnWrapperBase.gpu_paged_kv_cache_manager = DualKVCacheCoordinator(again.pool, again.aux)

    again.bind = bind_coordinator  # type: ignore[method-assign]
    assert torch.equal(again.decode([0, 1]), expected)
