"""Replay against the eager path on the real tiny models and pools."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from batchgen.attention import AttnWrapperBase
from batchgen.cuda_graph import GraphPointerError
from tests.batchgen.cuda_graph.harness import PAGE, PROMPTS, Decoder, same_bits, tiny

MODELS = pytest.mark.parametrize("name", ["tiny", "tiny-dual", "tiny-hybrid"])


def pair(name: str, row_exact: bool = False, **options: object) -> tuple[Decoder, Decoder]:
    model = tiny(name, row_exact)
    graph, eager = Decoder(model, **options), Decoder(model, **options)  # type: ignore[arg-type]
    for decoder in (graph, eager):
        decoder.admit(PROMPTS)
    return graph, eager


def both(graph: Decoder, eager: Decoder, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    graph.bind()
    replayed = graph.replay(ids)
    eager.bind()
    return replayed, eager.eager(ids)


@MODELS
@pytest.mark.parametrize("row_exact", [False, True])
def test_replay_equals_eager_bit_for_bit_when_the_bucket_is_the_batch(name: str, row_exact: bool) -> None:
    graph, eager = pair(name, row_exact)
    graph.capture(4)
    ids, layers = [7, 3, 5, 11], graph.model.kv_pool_shape()[0]
    for _ in range(10):
        replayed, expected = both(graph, eager, ids)
        assert replayed.isfinite().all() and same_bits([replayed], [expected])
        assert same_bits(graph.memory(), eager.memory())
        assert [layer for layer, _, _ in graph.appended] == list(range(layers))
        for (layer, k, v), (other, k2, v2) in zip(graph.appended, eager.appended, strict=True):
            assert layer == other and same_bits([k, v], [k2, v2])
        assert [layer for layer, _ in graph.appended_aux] == (list(range(3)) if name == "tiny-dual" else [])
        assert same_bits([k for _, k in graph.appended_aux], [k for _, k in eager.appended_aux])
    assert graph.tokens == eager.tokens and graph.manager.replays == {4: 10}


@MODELS
def test_padded_rows_change_no_bit_of_live_rows_when_rows_are_computed_one_by_one(name: str) -> None:
    graph, eager = pair(name, row_exact=True, buckets=(8,))
    graph.capture(8)
    for ids in ([7, 3, 5, 2, 11], [7, 3], [5], [11, 2, 3]):
        replayed, expected = both(graph, eager, ids)
        assert same_bits([replayed], [expected]) and same_bits(graph.memory(), eager.memory())


@MODELS
def test_padded_replay_chooses_the_tokens_of_the_eager_path(name: str) -> None:
    graph, eager = pair(name, buckets=(8,))
    graph.capture(8)
    for _ in range(12):
        replayed, expected = both(graph, eager, [7, 3, 5, 2, 11])
        torch.testing.assert_close(replayed, expected, atol=1e-4, rtol=1e-4)
    assert graph.tokens == eager.tokens


@MODELS
def test_a_shrinking_batch_writes_into_nobodys_pages(name: str) -> None:
    graph, _ = pair(name)
    graph.capture(4)
    graph.replay([7, 3, 5, 11])
    for ids in ([7, 3, 5], [7], [3]):
        graph.adapter._buckets = (4,)  # the wide bucket goes on being used
        before, lengths = graph.pages(), {gid: len(tokens) for gid, tokens in graph.tokens.items()}
        graph.replay(ids)
        written = {
            (graph.kv._sequences[gid][(lengths[gid] - 1) // PAGE], (lengths[gid] - 1) % PAGE) for gid in ids
        }
        for old, new in zip(before, graph.pages(), strict=True):
            changed = (old.view(torch.int32) != new.view(torch.int32)).flatten(3).any(3).any(0)
            assert {(page, slot) for page, slot in changed.nonzero().tolist()} == written


def test_static_rows_beyond_the_batch_are_clean_after_every_replay() -> None:
    graph, _ = pair("tiny", buckets=(4,))
    graph.capture(4)
    graph.replay([7, 3, 5, 11])
    graph.replay([7, 3])
    buffers = graph.manager.buffers(4)
    assert buffers.inputs["cache_seqlens"].tolist()[2:] == [0, 0]
    assert buffers.inputs["input_ids"].tolist()[2:] == [0, 0]
    assert buffers.inputs["position_ids"].tolist()[2:] == [0, 0]
    assert buffers.inputs["state_slots"].tolist() == [-1] * 4
    assert buffers.inputs["num_valid_tokens"].tolist() == [2]
    assert (buffers.in_place["page_table"][2:] == -1).all()
    assert (buffers.in_place["page_table"][:2, :2] >= 0).all()


def test_a_page_freed_by_one_sequence_and_given_to_a_resting_one_is_safe_from_later_replays() -> None:
    graph, eager = pair("tiny", buckets=(4,), row_exact=True)
    graph.capture(4)
    both(graph, eager, [7, 3, 5, 11])
    freed = set(graph.kv._sequences[11])
    for decoder in (graph, eager):
        decoder.drop(11)
        decoder.bind()
        decoder.admit({20: [5, 6, 7, 8, 9, 10, 11, 12, 13]})
    assert set(graph.kv._sequences[20]) & freed and same_bits(graph.pages(), eager.pages())
    for _ in range(3):
        both(graph, eager, [7, 3, 5])
        assert same_bits(graph.pages(), eager.pages())
    replayed, expected = both(graph, eager, [20, 3])
    assert same_bits([replayed], [expected])


def test_an_empty_rank_replays_while_others_decode_and_touches_nothing() -> None:
    graph, _ = pair("tiny", world_size=2)
    graph.capture(4)
    graph.replay([7, 3, 5, 11], rank_token_counts=(4, 4))
    before = graph.pages()
    logits = graph.replay([], max_rank_bsz=3, rank_token_counts=(0, 3))
    assert logits.shape[0] == 0 and graph.manager.replays == {4: 2}
    assert same_bits(before, graph.pages()) and graph.appended == []
    assert graph.manager.buffers(4).inputs["rank_token_counts"].tolist() == [0, 3]
    assert (graph.manager.buffers(4).in_place["page_table"] == -1).all()


def test_the_widest_rank_decides_the_bucket() -> None:
    graph, _ = pair("tiny")
    for bucket in (1, 4):
        graph.capture(bucket)
    graph.replay([7], max_rank_bsz=3)
    graph.replay([7], max_rank_bsz=1)
    assert graph.manager.replays == {4: 1, 1: 1}


@MODELS
def test_capture_writes_no_page_and_leaves_bindings_and_tables_as_they_were(name: str) -> None:
    graph, _ = pair(name)
    graph.capture(4)
    graph.replay([7, 3, 5])
    graph.bind()
    before, bound = graph.memory(), AttnWrapperBase.snapshot()
    table = graph.kv.get_cuda_graph_page_table().clone()
    graph.capture(2)
    assert same_bits(before, graph.memory())
    after = AttnWrapperBase.snapshot()
    assert all(after[key] is value for key, value in bound.items())
    graph.kv.check_invariants()
    assert torch.equal(graph.pools[0].ensure_cuda_graph_page_table(), table)


def test_a_capture_sees_nothing_but_padding_even_when_live_rows_stand_in_the_graph_table() -> None:
    graph, _ = pair("tiny")
    graph.state([7, 3, 5])
    assert (graph.kv.get_cuda_graph_page_table()[:3, 0] >= 0).all()
    seen: list[tuple[bool, ...]] = []

    def look(*_args: object) -> None:
        base = AttnWrapperBase
        bound = (base.decode_page_table, base.state_slots, base.cache_seqlens)
        seen.append(
            tuple(bool((t == pad).all()) for t, pad in zip(bound, (-1, -1, 0), strict=True) if t is not None)
        )

    hook = graph.model.layers[0].register_forward_hook(look)
    try:
        graph.capture(4)
    finally:
        hook.remove()
    assert seen == [(True, True, True)]


def test_replay_leaves_the_bindings_as_they_were_also_when_the_model_fails() -> None:
    graph, _ = pair("tiny")
    graph.capture(2)
    state = graph.state([7, 3])
    inputs = graph.adapter.prepare_replay_inputs(state, 2)
    bound = AttnWrapperBase.snapshot()
    graph.manager.replay(2, inputs)
    assert all(value is bound[key] for key, value in AttnWrapperBase.snapshot().items())
    graph.backend.decode = None  # type: ignore[assignment]
    with pytest.raises(TypeError):
        graph.manager.replay(2, inputs)
    assert all(value is bound[key] for key, value in AttnWrapperBase.snapshot().items())


def test_a_replay_runs_the_attention_that_was_captured_whatever_is_bound_meanwhile() -> None:
    graph, eager = pair("tiny", row_exact=True)
    graph.capture(2)
    graph.bind()
    AttnWrapperBase.attention_backend, AttnWrapperBase.row_exact = None, False
    replayed = graph.replay([7, 3])
    assert AttnWrapperBase.attention_backend is None and AttnWrapperBase.row_exact is False
    eager.bind()
    assert same_bits([replayed], [eager.eager([7, 3])])


def test_a_step_longer_than_the_captured_maximum_is_refused_and_goes_on_eagerly() -> None:
    graph, eager = pair("tiny", max_seqlen=16)
    graph.capture(1)
    while len(graph.tokens[11]) <= 16:
        both(graph, eager, [11])
    state = graph.state([11])
    assert state.max_seqlen == 17
    choice = graph.adapter.eligibility(state)
    assert (choice.use_graph, choice.bucket, choice.reason) == (False, None, "max_seqlen_exceeds_capture")
    for decoder in (graph, eager):
        decoder.bind()
        decoder.eager([11])
    assert graph.tokens == eager.tokens


def test_a_replay_that_skips_eligibility_is_stopped_before_it_reads_past_the_capture() -> None:
    graph, _ = pair("tiny", max_seqlen=13)
    graph.capture(1)
    inputs = graph.adapter.prepare_replay_inputs(graph.state([11]), 1)
    with pytest.raises(ValueError, match="max_seqlen 13"):
        graph.manager.replay(1, inputs)


@pytest.mark.parametrize("group", ["inputs", "outputs", "in_place"])
def test_a_buffer_replaced_by_a_fresh_tensor_is_named_at_the_next_replay(group: str) -> None:
    graph, _ = pair("tiny")
    graph.capture(2)
    graph.replay([7, 3])
    tensors = getattr(graph.manager.buffers(2), group)
    state = graph.state([7, 3])
    for name, original in list(tensors.items()):
        before = graph.pages()
        for fresh in (original.clone(), original[:1], original.view(original.shape[0], -1)[:, ::2]):
            if fresh.shape == original.shape and fresh.data_ptr() == original.data_ptr():
                continue
            tensors[name] = fresh
            inputs = graph.adapter.prepare_replay_inputs(state, 2)
            with pytest.raises(GraphPointerError, match=f"static buffer {name} of bucket 2 is bound"):
                graph.manager.replay(2, inputs)
        tensors[name] = original
        assert same_bits(before, graph.pages())
    graph.replay([7, 3])


def test_a_page_table_from_elsewhere_is_refused_before_anything_is_written() -> None:
    graph, _ = pair("tiny")
    graph.capture(2)
    state = graph.state([7, 3])
    inputs = graph.adapter.prepare_replay_inputs(state, 2)
    before = graph.manager.buffers(2).inputs["input_ids"].clone()
    inputs["page_table"] = inputs["page_table"].clone()
    with pytest.raises(GraphPointerError, match="page_table of bucket 2 was produced"):
        graph.manager.replay(2, inputs)
    assert torch.equal(graph.manager.buffers(2).inputs["input_ids"], before)


def test_a_bucket_is_not_replayed_on_the_states_of_another_pool() -> None:
    graph, other = pair("tiny-hybrid")
    graph.bind()
    graph.capture(2)
    inputs = graph.adapter.prepare_replay_inputs(graph.state([7, 3]), 2)
    other.bind()
    before = other.memory()
    assert graph.adapter.eligibility(graph.state([7, 3])).reason == "page_table_storage_changed"
    with pytest.raises(GraphPointerError, match="capture it again"):
        graph.manager.replay(2, inputs)
    assert same_bits(before, other.memory())
    graph.bind()
    graph.replay([7, 3])


@pytest.mark.parametrize("which", ["all", "cache only"])
def test_a_rebuilt_pool_makes_the_bucket_ineligible_and_a_replay_impossible(which: str) -> None:
    graph, _ = pair("tiny")
    graph.capture(2)
    inputs = graph.adapter.prepare_replay_inputs(graph.state([7, 3]), 2)
    if which == "all":
        keep = graph.pools[0].k_cache
        graph.kv.destroy()
        graph.kv.initialize()
        assert keep.data_ptr() != graph.pools[0].k_cache.data_ptr()
        graph.tokens.clear()
        graph.admit({7: [1, 2, 3], 3: [4]})
    else:
        graph.pools[0]._pool.v_cache = graph.pools[0].v_cache.clone()
    assert graph.adapter.eligibility(graph.state([7, 3])).reason == "page_table_storage_changed"
    with pytest.raises(GraphPointerError, match=r"capture it again|page_table"):
        graph.manager.replay(2, inputs)
    graph.capture(2)
    graph.replay([7, 3])


def test_a_bucket_that_was_never_captured_cannot_be_replayed() -> None:
    graph, _ = pair("tiny")
    inputs = graph.adapter.prepare_replay_inputs(graph.state([7]), 1)
    with pytest.raises(RuntimeError, match="bucket 1 is not captured"):
        graph.manager.replay(1, inputs)


def test_inputs_of_the_wrong_shape_or_name_are_refused_before_anything_is_written() -> None:
    graph, _ = pair("tiny", buckets=(2,))
    graph.capture(2)
    good = graph.adapter.prepare_replay_inputs(graph.state([7, 3]), 2)
    held = {name: tensor.clone() for name, tensor in graph.manager.buffers(2).inputs.items()}
    wrong = [
        {**good, "extra": torch.zeros(1)},
        {name: tensor for name, tensor in good.items() if name != "cache_seqlens"},
        {**good, "cache_seqlens": torch.ones(1, dtype=torch.int32)},
        {**good, "input_ids": torch.zeros(3, dtype=torch.int64)},
    ]
    for inputs in wrong:
        with pytest.raises(ValueError, match="bucket 2"):
            graph.manager.replay(2, inputs)
        now = graph.manager.buffers(2).inputs
        assert all(torch.equal(now[name], tensor) for name, tensor in held.items())


def test_buffers_can_be_updated_in_and_out_of_inference_mode() -> None:
    graph, eager = pair("tiny")
    with torch.inference_mode():
        graph.capture(2)
        graph.replay([7, 3])
    graph.replay([7, 3])
    with torch.inference_mode():
        graph.replay([7, 3])
    for _ in range(3):
        eager.bind()
        eager.eager([7, 3])
    assert graph.tokens == eager.tokens


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["step", "step", "step", "drop", "admit"]), st.integers(0, 2**16)),
        min_size=4,
        max_size=14,
    ),
    st.sampled_from(["tiny", "tiny-dual", "tiny-hybrid"]),
)
def test_any_history_of_batches_leaves_the_pools_of_the_eager_path(
    events: list[tuple[str, int]], name: str
) -> None:
    graph, eager = pair(name, row_exact=True, buckets=(1, 3, 8))
    for bucket in (1, 3, 8):
        graph.capture(bucket)
    for number, (event, seed) in enumerate(events):
        live = sorted(graph.tokens)
        if event == "admit" and len(live) < 7:
            prompt = [(seed + i) % 256 for i in range(1 + seed % 9)]
            for decoder in (graph, eager):
                decoder.admit({100 + number: prompt})
        elif event == "drop" and len(live) > 1:
            for decoder in (graph, eager):
                decoder.drop(live[seed % len(live)])
        elif event == "step":
            ids = [gid for i, gid in enumerate(live) if seed >> i & 1][:8]
            ids = ids[seed % max(len(ids), 1) :] + ids[: seed % max(len(ids), 1)]
            if ids:
                replayed, expected = both(graph, eager, ids)
                assert same_bits([replayed], [expected])
        assert same_bits(graph.pages(), eager.pages())
    assert graph.tokens == eager.tokens
