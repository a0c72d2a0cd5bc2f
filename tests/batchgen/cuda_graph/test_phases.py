"""The three phases of a replayed step: (A) eligibility decides, (B) prepare_replay_inputs gathers, (C) replay and
stage_post_graph_kv act. What each may touch, and that a decision outlives nothing it was made on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from batchgen.attention import AttnWrapperBase
from batchgen.cuda_graph import BatchState, GraphEligibility
from tests.batchgen.cuda_graph.harness import PAGE, PROMPTS, Decoder, same_bits, tiny

IDS = [7, 3, 5]
MODELS = pytest.mark.parametrize("name", ["tiny", "tiny-dual"])


def ready(name: str, **options: Any) -> tuple[Decoder, BatchState]:
    """A decoder whose bucket of four rows is captured, and its next step."""
    decoder = Decoder(tiny(name), **options)
    decoder.admit(PROMPTS)
    state = decoder.state(IDS)
    decoder.capture(4)
    return decoder, state


def graph_tables(decoder: Decoder) -> list[torch.Tensor]:
    return [pool.ensure_cuda_graph_page_table().clone() for pool in decoder.pools]


@MODELS
def test_only_the_last_phase_writes_kv_and_only_the_middle_one_the_graph_tables(name: str) -> None:
    decoder, state = ready(name)
    pages, tables = decoder.pages(), graph_tables(decoder)
    bound = AttnWrapperBase.snapshot()

    choice = decoder.adapter.eligibility(state)
    assert choice == GraphEligibility(True, 4, "ok")
    assert all(torch.equal(a, b) for a, b in zip(graph_tables(decoder), tables, strict=True))

    inputs = decoder.adapter.prepare_replay_inputs(state, 4)
    assert same_bits(decoder.pages(), pages)
    filled = graph_tables(decoder)
    assert not any(torch.equal(a, b) for a, b in zip(filled, tables, strict=True))

    decoder.manager.replay(4, inputs)
    assert not same_bits(decoder.pages(), pages)
    assert all(torch.equal(a, b) for a, b in zip(graph_tables(decoder), filled, strict=True))
    assert AttnWrapperBase.snapshot() == bound


@MODELS
def test_a_replay_writes_the_one_slot_of_each_live_row_and_no_other(name: str) -> None:
    decoder, state = ready(name)
    before = decoder.pages()
    decoder.manager.replay(4, decoder.adapter.prepare_replay_inputs(state, 4))
    written: set[tuple[int, int]] = set()
    for gid in IDS:
        page, offset = divmod(len(decoder.tokens[gid]) - 1, PAGE)
        written.add((decoder.kv._sequences[gid][page], offset))
    for old, new in zip(before, decoder.pages(), strict=True):
        changed = old.view(torch.int32) != new.view(torch.int32)
        slots = changed.flatten(3).any(dim=3).any(dim=0).nonzero().tolist()
        assert {(page, offset) for page, offset in slots} == written


@MODELS
def test_the_same_replay_twice_leaves_what_it_leaves_once(name: str) -> None:
    decoder, state = ready(name)
    inputs = decoder.adapter.prepare_replay_inputs(state, 4)
    first = {key: value.clone() for key, value in decoder.manager.replay(4, inputs).items()}
    pages = decoder.pages()
    again = decoder.manager.replay(4, decoder.adapter.prepare_replay_inputs(state, 4))
    assert same_bits(decoder.pages(), pages)
    for key, value in again.items():
        rows = value[: len(IDS)] if key == "logits" else value[:, : len(IDS)]
        assert torch.equal(rows, first[key][: len(IDS)] if key == "logits" else first[key][:, : len(IDS)]), (
            key
        )


def test_a_graph_table_that_was_resized_sends_steps_eagerly_until_it_is_captured_again() -> None:
    decoder, state = ready("tiny")
    pool = decoder.pools[0]
    assert decoder.adapter.eligibility(state).use_graph
    table = pool.ensure_cuda_graph_page_table()
    kept = table.data_ptr(), table.shape
    decoder.kv.destroy()
    decoder.kv.initialize()
    decoder.tokens.clear()
    decoder.admit({gid: PROMPTS[gid] for gid in IDS})
    resized = pool.ensure_cuda_graph_page_table()
    assert (resized.data_ptr(), resized.shape) != kept
    reasons = []
    for _ in range(3):
        choice = decoder.adapter.eligibility(decoder.state(IDS))
        reasons.append(choice.reason)
        if choice.use_graph:
            decoder.bind()
            decoder.replay(IDS)
        else:
            decoder.bind()
            decoder.eager(IDS)
            decoder.capture(4)
    assert reasons == ["page_table_storage_changed", "ok", "ok"]


def test_every_row_reaches_the_callbacks_layer_by_layer_after_the_replay() -> None:
    decoder, state = ready("tiny-dual")
    outputs = decoder.manager.replay(4, decoder.adapter.prepare_replay_inputs(state, 4))
    seen: list[tuple[str, int, int]] = []
    decoder.adapter.stage_post_graph_kv(
        state,
        outputs,
        lambda layer, k, v: seen.append(("kv", layer, k.shape[0])),
        lambda layer, k: seen.append(("aux", layer, k.shape[0])),
    )
    layers, aux_layers = (pool.config.num_layers for pool in decoder.pools)
    assert seen == [
        *(("kv", layer, len(IDS)) for layer in range(layers)),
        *(("aux", layer, len(IDS)) for layer in range(aux_layers)),
    ]
