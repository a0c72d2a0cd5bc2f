"""The same contract where a bucket is a CUDA graph and a stale address is really read."""

from __future__ import annotations

import pytest
import torch

from batchgen.cuda_graph import GraphPointerError, compare_outputs
from tests.batchgen.cuda_graph.harness import PAGE, PROMPTS, Decoder, tiny

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
MODELS = pytest.mark.parametrize("name", ["tiny", "tiny-dual", "tiny-hybrid"])


def decoder(name: str = "tiny", **options: object) -> Decoder:
    made = Decoder(tiny(name, False, "cuda"), **options)  # type: ignore[arg-type]
    made.admit(PROMPTS)
    return made


@MODELS
def test_a_graph_follows_lengths_and_batches_that_it_was_not_captured_with(name: str) -> None:
    graph, eager = decoder(name, buckets=(4,)), decoder(name)
    graph.capture(4)
    for ids in [[7, 3, 5, 11]] * 4 + [[5, 7]] * 3 + [[11, 2, 3]] * 3:
        graph.bind()
        replayed = graph.replay(ids)
        eager.bind()
        torch.testing.assert_close(replayed, eager.eager(ids), atol=1e-3, rtol=1e-3)
    assert graph.tokens == eager.tokens


@MODELS
def test_padded_rows_of_a_graph_write_into_nobodys_pages(name: str) -> None:
    graph = decoder(name, buckets=(4,))
    graph.capture(4)
    graph.replay([7, 3, 5, 11])
    before, length = graph.pages(), len(graph.tokens[7])
    graph.replay([7])
    expected = (graph.kv._sequences[7][(length - 1) // PAGE], (length - 1) % PAGE)
    for old, new in zip(before, graph.pages(), strict=True):
        changed = (old.view(torch.int32) != new.view(torch.int32)).flatten(3).any(3).any(0)
        assert {(page, slot) for page, slot in changed.nonzero().tolist()} == {expected}


def test_a_graph_agrees_with_the_eager_reference_in_every_output() -> None:
    graph = decoder("tiny-dual")
    graph.capture(4)
    state = graph.state([7, 3, 5, 11])
    inputs = graph.adapter.prepare_replay_inputs(state, 4)
    outputs = graph.manager.replay(4, inputs)
    report = compare_outputs(outputs, graph.adapter.run_eager_reference(state, inputs), atol=1e-3, rtol=1e-3)
    assert report.passed, report


def test_a_graph_over_a_rebuilt_pool_is_refused() -> None:
    graph = decoder()
    graph.capture(2)
    inputs = graph.adapter.prepare_replay_inputs(graph.state([7, 3]), 2)
    graph.pools[0]._pool.v_cache = graph.pools[0].v_cache.clone()  # type: ignore[union-attr]
    with pytest.raises(GraphPointerError):
        graph.manager.replay(2, inputs)


def test_what_cuda_refuses_to_capture_becomes_a_failed_bucket() -> None:
    graph = decoder()
    hook = graph.model.layers[0].register_forward_hook(lambda _m, _a, out: out.sum().item() and None)
    try:
        assert not graph.manager.capture(graph.adapter, 1, graph.kv)
    finally:
        hook.remove()
    assert graph.adapter.eligibility(graph.state([7])).reason == "failed_bucket"
