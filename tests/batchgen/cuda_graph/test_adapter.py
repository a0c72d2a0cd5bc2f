"""The adapter's side of the contract: reasons, inputs, staging, reference run, release."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from batchgen.attention import AttnWrapperBase
from batchgen.cuda_graph import (
    CudaGraphAdapter,
    DecodeGraphFlags,
    Glm5CudaGraphAdapter,
    GraphMode,
    allocate_kv_staging,
    compare_outputs,
)
from tests.batchgen.cuda_graph.harness import PAGE, PROMPTS, Decoder, same_bits, tiny


def decoder(name: str = "tiny", **options: Any) -> Decoder:
    made = Decoder(tiny(name), **options)
    made.admit(PROMPTS)
    return made


def test_an_adapter_must_bring_exactly_these_ten_methods() -> None:
    assert CudaGraphAdapter.__abstractmethods__ == {
        "is_supported",
        "select_buckets",
        "advertised_modes",
        "build_segments",
        "capture_signature",
        "capture_inputs_for",
        "eligibility",
        "prepare_replay_inputs",
        "stage_post_graph_kv",
        "run_eager_reference",
    }


def test_modes_are_ordered_and_glm5_offers_only_the_whole_model() -> None:
    assert GraphMode.EAGER < GraphMode.SEGMENTED < GraphMode.LAYER < GraphMode.WHOLE_MODEL
    assert decoder().adapter.advertised_modes() == (GraphMode.WHOLE_MODEL,)


@pytest.mark.parametrize(("rows", "bucket"), [(1, 1), (2, 2), (3, 4), (8, 8), (9, None)])
def test_the_bucket_is_the_smallest_that_holds_the_rows(rows: int, bucket: int | None) -> None:
    assert decoder().adapter.bucket_for(rows) == bucket


def test_every_reason_not_to_replay_has_its_name() -> None:
    made = decoder(buckets=(1, 4), max_seqlen=40)
    reason = lambda **changes: made.adapter.eligibility(made.state([7, 3, 5], **changes)).reason  # noqa: E731
    assert reason() == "bucket_not_captured"
    made.capture(4)
    ok = made.adapter.eligibility(made.state([7, 3, 5]))
    assert (ok.use_graph, ok.bucket, ok.reason) == (True, 4, "ok")
    assert reason(max_rank_bsz=0) == "empty_global_batch"
    assert reason(max_rank_bsz=5) == "over_bucket"
    assert reason(max_seqlen=40) == "ok"
    assert reason(max_seqlen=41) == "max_seqlen_exceeds_capture"
    assert reason(gpu_kv_manager=None) == "page_table_storage_changed"
    other = Decoder(tiny())
    assert reason(gpu_kv_manager=other.kv) == "page_table_storage_changed"
    other.kv.destroy()
    assert reason(gpu_kv_manager=other.kv) == "page_table_storage_changed"
    made.adapter.note_failed(4)
    assert reason() == "failed_bucket"
    made.adapter.release_context()
    assert reason() == "adapter_not_built"


def test_the_length_asked_about_is_the_batchs_and_not_whatever_is_bound_to_the_wrapper() -> None:
    made = decoder(max_seqlen=40)
    made.capture(1)
    AttnWrapperBase.max_seqlen = 10_000
    assert made.adapter.eligibility(made.state([7])).reason == "ok"
    AttnWrapperBase.max_seqlen = 1
    assert made.adapter.eligibility(made.state([7], max_seqlen=41)).reason == "max_seqlen_exceeds_capture"


def test_a_row_with_more_reserved_pages_than_the_graph_table_has_columns_goes_eagerly() -> None:
    made = decoder(graph_pages=4)
    made.capture(1)
    made.kv.grow_pages_for_sequences([7], [2])
    assert made.adapter.eligibility(made.state([7])).reason == "ok"
    made.kv.grow_pages_for_sequences([7], [1])
    assert made.kv.num_pages_of(7) == 5
    assert made.adapter.eligibility(made.state([7])).reason == "max_seqlen_exceeds_capture"


def test_eligibility_changes_nothing() -> None:
    made = decoder()
    made.capture(1)
    state = made.state([7])
    before, version = made.pages(), made.kv.rebuild_version
    table = made.kv.ensure_cuda_graph_page_table().clone()
    for _ in range(2):
        made.adapter.eligibility(state)
    assert same_bits(before, made.pages()) and version == made.kv.rebuild_version
    assert torch.equal(table, made.kv.ensure_cuda_graph_page_table())


def test_a_bucket_wider_than_the_graph_page_table_fails_to_capture_and_is_remembered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = decoder(graph_slots=2)
    with caplog.at_level(logging.WARNING, "batchgen.cuda_graph"):
        assert not made.manager.capture(made.adapter, 4, made.kv)
    assert "graph_max_slots" in made.manager.failed_buckets[4] and "graph_max_slots" in caplog.text
    assert not made.manager.is_captured(4)
    assert made.adapter.eligibility(made.state([7, 3, 5])).reason == "failed_bucket"
    assert made.adapter.select_buckets() == (1, 2, 8)
    made.adapter.release_context()
    assert made.adapter.select_buckets() == (1, 2, 8)
    made.adapter.release_all()
    assert made.adapter.select_buckets() == (1, 2, 4, 8)


def test_a_maximum_beyond_the_graph_page_table_fails_to_capture() -> None:
    made = decoder(graph_pages=4, max_seqlen=4 * PAGE + 1)
    assert not made.manager.capture(made.adapter, 1, made.kv)
    assert "graph_max_pages" in made.manager.failed_buckets[1]


def test_a_programming_error_in_the_captured_step_is_raised_and_not_taken_for_a_failed_bucket() -> None:
    made = decoder()
    AttnWrapperBase.attention_backend = None
    with pytest.raises(RuntimeError, match="without bound attention state"):
        made.manager.capture(made.adapter, 1, made.kv)
    assert made.manager.failed_buckets == {} and not made.manager.is_captured(1)


def test_row_by_row_attention_is_supported_on_a_cpu_and_not_in_a_gpu_capture() -> None:
    made = decoder()
    AttnWrapperBase.row_exact = True
    assert made.adapter.is_supported()
    made.adapter.device = torch.device("cuda")
    assert not made.adapter.is_supported()
    AttnWrapperBase.row_exact = False
    assert made.adapter.is_supported()
    made.adapter.device = torch.device("meta")
    assert not made.manager.capture(made.adapter, 1, made.kv)


def test_the_signature_tells_buckets_lengths_worlds_and_pools_apart_and_is_hashable() -> None:
    made = decoder("tiny-dual")
    base = made.adapter.capture_signature(2, made.kv)
    assert hash(base) == hash(made.adapter.capture_signature(2, made.kv))
    seen = {base, made.adapter.capture_signature(4, made.kv)}
    made.adapter.max_seqlen -= 1
    seen.add(made.adapter.capture_signature(2, made.kv))
    made.adapter.max_seqlen += 1
    made.adapter.world_size = 2
    seen.add(made.adapter.capture_signature(2, made.kv))
    made.adapter.world_size = 1
    made.pools[1]._pool.k_cache = made.pools[1].k_cache.clone()
    seen.add(made.adapter.capture_signature(2, made.kv))
    assert len(seen) == 5


@pytest.mark.parametrize("field", ["cache_seqlens", "position_ids", "rank_token_counts", "input_ids"])
def test_an_incomplete_batch_state_is_named(field: str) -> None:
    made = decoder()
    with pytest.raises(RuntimeError, match=f"{field} is None"):
        made.adapter.prepare_replay_inputs(made.state([7, 3], **{field: None}), 2)


def test_a_page_table_in_another_row_order_or_too_few_rows_are_refused() -> None:
    made = decoder()
    with pytest.raises(RuntimeError, match="rebuild the page table"):
        made.adapter.prepare_replay_inputs(made.state([7, 3], cur_batch_sequence_ids=[3, 7]), 2)
    short = torch.ones(1, dtype=torch.int32)
    with pytest.raises(RuntimeError, match="cache_seqlens has 1 rows, the batch has 2"):
        made.adapter.prepare_replay_inputs(made.state([7, 3], cache_seqlens=short), 2)
    with pytest.raises(RuntimeError, match="do not fit bucket 1"):
        made.adapter.prepare_replay_inputs(made.state([7, 3]), 1)


def test_replay_inputs_are_the_live_rows_in_the_captured_dtypes() -> None:
    made = decoder()
    state = made.state([7, 3], state_slots=torch.tensor([4, 9]))
    state.input_ids = state.input_ids[:, None].to(torch.int32)
    state.cache_seqlens = state.cache_seqlens.to(torch.int64)
    inputs = made.adapter.prepare_replay_inputs(state, 4)
    assert {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in inputs.items()} == {
        "input_ids": (torch.int64, (2,)),
        "position_ids": (torch.int64, (2,)),
        "cache_seqlens": (torch.int32, (2,)),
        "state_slots": (torch.int64, (2,)),
        "rank_token_counts": (torch.int64, (1,)),
        "num_valid_tokens": (torch.int32, (1,)),
        "page_table": (torch.int32, (4, 16)),
    }
    assert inputs["cache_seqlens"].tolist() == [6, 5] and inputs["position_ids"].tolist() == [5, 4]
    assert inputs["state_slots"].tolist() == [4, 9] and inputs["num_valid_tokens"].tolist() == [2]
    assert inputs["page_table"][:2, :2].tolist() == made.kv.page_table_for_rows(2)[:, :2].tolist()
    made.capture(4)
    made.replay([7, 3], max_rank_bsz=4, state_slots=torch.tensor([4, 9]))
    assert made.manager.buffers(4).inputs["state_slots"].tolist() == [4, 9, -1, -1]


@pytest.mark.parametrize("name", ["tiny", "tiny-dual"])
def test_staged_kv_is_one_clone_per_pool_that_the_next_replay_leaves_alone(name: str) -> None:
    made = decoder(name)
    made.capture(4)
    made.replay([7, 3, 5])
    first, first_aux = made.appended, made.appended_aux
    held = [tensor.clone() for _, k, v in first for tensor in (k, v)]
    held_aux = [k.clone() for _, k in first_aux]
    made.replay([7, 3, 5])
    assert same_bits([tensor for _, k, v in first for tensor in (k, v)], held)
    assert same_bits([k for _, k in first_aux], held_aux)
    for tensors in ([k for _, k, _ in first], [v for _, _, v in first], [k for _, k in first_aux]):
        assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) <= 1
        assert all(tensor.shape[0] == 3 and tensor.is_contiguous() for tensor in tensors)
    assert len(first_aux) == (3 if name == "tiny-dual" else 0)
    heads, dim = tiny(name).kv_pool_shape()[1:]
    assert first[0][1].shape == (3, heads, dim)


def test_staged_kv_is_what_the_pool_holds_at_the_written_positions() -> None:
    made = decoder("tiny-dual")
    made.capture(2)
    lengths = {gid: len(made.tokens[gid]) for gid in (7, 3)}
    made.replay([7, 3])
    for layer, k, v in made.appended:
        k_pool, v_pool = made.pools[0].get_kv_tensors(layer)
        for row, gid in enumerate((7, 3)):
            page, slot = made.kv._sequences[gid][(lengths[gid] - 1) // PAGE], (lengths[gid] - 1) % PAGE
            assert torch.equal(k[row], k_pool[page, slot]) and torch.equal(v[row], v_pool[page, slot])
            index_pool = made.pools[1].get_kv_tensors(layer)[0]
            assert torch.equal(made.appended_aux[layer][1][row], index_pool[page, slot, 0])


def test_no_callback_is_called_for_an_empty_rank_or_where_there_is_none() -> None:
    made = decoder("tiny-dual")
    made.capture(1)
    outputs = made.manager.buffers(1).outputs
    calls: list[int] = []
    made.adapter.stage_post_graph_kv(
        made.state([]), outputs, lambda *a: calls.append(0), lambda *a: calls.append(1)
    )
    made.adapter.stage_post_graph_kv(made.state([7]), outputs, None, None)
    assert calls == []
    made.adapter.stage_post_graph_kv(made.state([7]), outputs, None, lambda *a: calls.append(1))
    assert calls == [1, 1, 1]


@pytest.mark.parametrize("name", ["tiny", "tiny-dual", "tiny-hybrid"])
def test_the_eager_reference_equals_the_replay_and_leaves_pools_and_callbacks_alone(name: str) -> None:
    made = decoder(name, flags=DecodeGraphFlags(compare=True))
    made.capture(4)
    made.replay([7, 3, 5, 11])
    state = made.state([7, 3, 5, 11])
    inputs = made.adapter.prepare_replay_inputs(state, 4)
    calls: list[int] = []
    AttnWrapperBase.kv_append_callback = lambda *args: calls.append(0)
    AttnWrapperBase.kv_append_callback_aux = lambda *args: calls.append(1)
    bound, before = AttnWrapperBase.snapshot(), made.memory()
    ahead = made.adapter.run_eager_reference(state, inputs)
    assert same_bits(before, made.memory())
    outputs = made.manager.replay(4, inputs)
    after = made.memory()
    reference = made.adapter.run_eager_reference(state, inputs)
    assert same_bits(after, made.memory()) and calls == []
    assert all(value is bound[key] for key, value in AttnWrapperBase.snapshot().items())
    assert outputs.keys() == reference.keys() == ahead.keys()
    for key in outputs:
        assert same_bits([outputs[key]], [reference[key]]) and same_bits([outputs[key]], [ahead[key]])
    assert compare_outputs(outputs, reference, atol=0, rtol=0).passed


def test_the_reference_puts_the_pools_back_when_the_model_fails() -> None:
    made = decoder()
    made.capture(2)
    state = made.state([7, 3])
    inputs = made.adapter.prepare_replay_inputs(state, 2)
    before = made.pages()
    broken = made.model.layers[2].register_forward_hook(lambda *args: 1 / 0)
    try:
        with pytest.raises(ZeroDivisionError):
            made.adapter.run_eager_reference(state, inputs)
    finally:
        broken.remove()
    assert same_bits(before, made.pages())


def test_a_replay_on_a_corrupted_graph_page_table_differs_from_the_reference() -> None:
    made = decoder()
    made.capture(2)
    state = made.state([7, 11])
    inputs = made.adapter.prepare_replay_inputs(state, 2)
    inputs["page_table"][1, 0] = made.kv._sequences[5][0]
    outputs = made.manager.replay(2, inputs)
    report = compare_outputs(outputs, made.adapter.run_eager_reference(state, inputs), atol=1e-2, rtol=1e-2)
    assert not report.passed and {row.row for row in report.rows if row.key == "logits"} == {1}


def test_the_reference_of_an_empty_rank_has_all_keys_and_no_rows() -> None:
    made = decoder("tiny-dual", flags=DecodeGraphFlags(probe_layers=(1,)))
    state = made.state([], max_rank_bsz=1)
    inputs = made.adapter.prepare_replay_inputs(state, 1)
    reference = made.adapter.run_eager_reference(state, inputs)
    assert {key: value.shape[1 if key.startswith("kv_") else 0] for key, value in reference.items()} == {
        "logits": 0,
        "kv_k": 0,
        "kv_v": 0,
        "kv_aux": 0,
        "hidden_states_layer_1": 0,
    }


def test_probes_have_the_same_keys_on_both_sides_and_change_no_token() -> None:
    plain, probed = decoder(), decoder(flags=DecodeGraphFlags(probe_layers=(-1,), timing=True, path_log=True))
    for made in (plain, probed):
        made.bind()
        made.capture(2)
        for _ in range(3):
            made.replay([7, 3])
    assert plain.tokens == probed.tokens and same_bits(plain.pages(), probed.pages())
    state = probed.state([7, 3])
    inputs = probed.adapter.prepare_replay_inputs(state, 2)
    outputs = probed.manager.replay(2, inputs)
    report = compare_outputs(outputs, probed.adapter.run_eager_reference(state, inputs), atol=0, rtol=0)
    assert report.passed and report.probe_results == {0: 0.0, 1: 0.0, 2: 0.0}
    assert outputs["hidden_states_layer_2"].abs().sum() > 0
    assert not torch.equal(outputs["hidden_states_layer_0"], outputs["hidden_states_layer_2"])
    assert not probed.model.layers[0]._forward_hooks


def test_the_flags_time_replays_and_log_each_steps_path(caplog: pytest.LogCaptureFixture) -> None:
    made = decoder(flags=DecodeGraphFlags(timing=True, path_log=True))
    made.capture(2)
    with caplog.at_level(logging.INFO, "batchgen.cuda_graph"):
        made.replay([7, 3])
        made.adapter.eligibility(made.state([7, 3, 5]))
    assert "decode step 0: bucket 2 (ok)" in caplog.text
    assert "decode step 1: eager (bucket_not_captured)" in caplog.text
    assert made.manager.replay_seconds[2] > 0 and "bucket 2 replayed in" in caplog.text
    quiet = decoder()
    quiet.capture(2)
    caplog.clear()
    quiet.replay([7, 3])
    assert caplog.text == "" and quiet.manager.replay_seconds == {}


def test_flags_come_from_the_environment_where_none_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHGEN_DECODE_GRAPH_MAX_SEQLEN", "9")
    monkeypatch.setenv("BATCHGEN_DECODE_GRAPH_PROBE_LAYERS", "2")
    model = tiny()

    def build(max_seqlen: int) -> Glm5CudaGraphAdapter:
        return Glm5CudaGraphAdapter(
            model=model,
            config=model.config,
            device=torch.device("cpu"),
            buckets=[4, 1, 4],
            max_seqlen=max_seqlen,
            world_size=1,
        )

    adapter = build(64)
    assert (adapter.max_seqlen, adapter.probe_layers, adapter.select_buckets()) == (9, (2,), (1, 4))
    assert adapter.debug_options().max_seqlen == 9
    assert build(5).max_seqlen == 5
    monkeypatch.setenv("BATCHGEN_DECODE_GRAPH_PROBE_LAYERS", "3")
    with pytest.raises(ValueError, match="cannot probe layers"):
        build(64)


@pytest.mark.parametrize(("buckets", "max_seqlen"), [((), 8), ((0, 1), 8), ((1,), 0)])
def test_an_adapter_without_rows_or_tokens_is_refused(buckets: tuple[int, ...], max_seqlen: int) -> None:
    model = tiny()
    with pytest.raises(ValueError, match="at least 1"):
        Glm5CudaGraphAdapter(
            model=model,
            config=model.config,
            device=torch.device("cpu"),
            buckets=buckets,
            max_seqlen=max_seqlen,
            world_size=1,
        )


def test_a_released_adapter_holds_no_model_and_says_so_when_used() -> None:
    made = decoder()
    made.capture(1)
    state = made.state([7])
    inputs = made.adapter.prepare_replay_inputs(state, 1)
    made.manager.release()
    made.adapter.release_context()
    assert made.adapter.model is None and made.manager.captured_buckets() == ()
    for use in (
        lambda: made.adapter.run_eager_reference(state, inputs),
        lambda: made.manager.capture(made.adapter, 1, made.kv),
    ):
        with pytest.raises(RuntimeError, match="was released"):
            use()


def test_kv_staging_has_the_pools_layers_heads_and_dtype() -> None:
    made = decoder("tiny-dual")
    k, aux = (allocate_kv_staging(pool, 5) for pool in made.pools)
    assert k.shape == (3, 5, 2, 16) and aux.shape == (3, 5, 1, 16) and k.dtype == torch.float32
    with torch.inference_mode():
        assert not allocate_kv_staging(made.pools[0], 1).is_inference()


def test_a_primary_pool_alone_finds_the_index_pool_bound_to_the_wrapper() -> None:
    made, whole = decoder("tiny-dual"), decoder("tiny-dual")
    made.bind()
    assert made.manager.capture(made.adapter, 2, made.pools[0])
    made.replay([7, 3], gpu_kv_manager=made.pools[0])
    whole.bind()
    whole.capture(2)
    whole.replay([7, 3])
    assert same_bits(made.pages(), whole.pages()) and len(made.appended_aux) == 3


def test_appended_tensors_have_the_live_rows_only() -> None:
    made = decoder()
    made.capture(8)
    seen: list[Tensor] = []
    state = made.state([7, 3, 5, 2, 11])
    outputs = made.manager.replay(8, made.adapter.prepare_replay_inputs(state, 8))
    made.adapter.stage_post_graph_kv(state, outputs, lambda layer, k, v: seen.extend((k, v)), None)
    assert len(seen) == 6 and all(tensor.shape[0] == 5 for tensor in seen)
