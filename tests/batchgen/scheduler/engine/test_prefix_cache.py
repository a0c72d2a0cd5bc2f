"""Full blocks of ended and requeued rows are prefilled once, and change no bit of what follows them."""

from __future__ import annotations

import pytest
import torch

from batchgen.models import load_model
from batchgen.scheduler.engine.device import ModelDevice
from batchgen.scheduler.engine.prefix_cache import PrefixCache
from batchgen.scheduler.errors import KvExhausted
from tests.batchgen.scheduler.engine.conftest import (
    MakeWorker,
    assert_nothing_held,
    by_id,
    request,
)

SYSTEM = "You are a helpful assistant that answers in one sentence. "


def device_of(model: str, blocks: int, *, row_exact: bool = True, cache: bool = True) -> ModelDevice:
    loaded = load_model(model, row_exact=row_exact)
    return ModelDevice(loaded, num_blocks=blocks, block_size=4, max_batch=3, prefix_cache=cache)


@pytest.mark.parametrize("row_exact", [True, False])
@pytest.mark.parametrize("model", ["tiny", "tiny-dual"])
def test_a_prefill_behind_cached_blocks_gives_the_logits_of_a_whole_one(model: str, row_exact: bool) -> None:
    first, second = list(range(65, 95)), [*range(65, 87), *range(40, 60)]
    plain = device_of(model, 40, row_exact=row_exact, cache=False)
    expected = plain.prefill(second, plain.alloc_sequence())
    device = device_of(model, 40, row_exact=row_exact)
    held = device.alloc_sequence()
    device.prefill(first, held)
    device.release(held, cache=True)
    assert device.cached_blocks == 7
    seq = device.alloc_sequence()
    found = device.prefill(second, seq)
    assert device.counts["prefix_tokens"] == 20 and device.cached_blocks == 2
    if row_exact:
        assert found == expected
    else:
        both = [torch.frombuffer(bytearray(logits), dtype=torch.float32) for logits in (found, expected)]
        torch.testing.assert_close(*both, rtol=1e-4, atol=1e-4)
    assert (seq.seq_len, len(seq.block_table)) == (42, 11)
    device.check_invariants()


def test_a_prompt_that_is_cached_to_its_end_still_computes_its_last_token() -> None:
    device = device_of("tiny", 20)
    prompt = list(range(65, 73))
    seq = device.alloc_sequence()
    expected = device.prefill(prompt, seq)
    device.release(seq, cache=True)
    again = device.alloc_sequence()
    assert device.prefill(prompt, again) == expected
    assert device.counts["prefix_tokens"] == 4


def test_two_prompts_of_one_forward_do_not_share_a_block() -> None:
    device = device_of("tiny", 40)
    prompt = list(range(65, 85))
    seq = device.alloc_sequence()
    (expected,) = device.prefill_all([prompt], [seq])
    device.release(seq, cache=True)
    both = [device.alloc_sequence(), device.alloc_sequence()]
    assert device.prefill_all([prompt, prompt], both) == [expected, expected]
    assert not set(both[0].block_table) & set(both[1].block_table)
    device.check_invariants()


def test_a_prefill_that_does_not_fit_gives_back_what_it_took_from_the_cache() -> None:
    device = device_of("tiny", 10)
    seq = device.alloc_sequence()
    device.prefill(list(range(65, 81)), seq)
    device.release(seq, cache=True)
    small, large = device.alloc_sequence(), device.alloc_sequence()
    with pytest.raises(KvExhausted):
        device.prefill_all([list(range(65, 85)), list(range(30, 64))], [small, large])
    assert small.block_table == large.block_table == []
    assert device.free_blocks + device.cached_blocks == 10
    device.check_invariants()
    device.prefill(list(range(65, 85)), small)


def test_a_hybrid_model_keeps_none() -> None:
    device = device_of("tiny-hybrid", 20)
    seq = device.alloc_sequence()
    device.prefill(list(range(65, 85)), seq)
    device.release(seq, cache=True)
    assert device.cached_blocks == 0 and device.free_blocks == 20


def test_the_longest_unused_goes_first_and_of_a_chain_its_end() -> None:
    cache = PrefixCache(2)
    old = cache.offer([1, 2, 3, 4, 5])
    new = cache.offer([7, 8])
    assert len(cache) == 3
    assert cache.drop(1) == [old[1]]
    assert cache.take([1, 2, 3, 4]) == [old[0]]
    assert cache.drop(9) == [new[0]] and len(cache) == 0


def test_a_block_is_known_by_all_that_comes_before_it() -> None:
    cache = PrefixCache(2)
    first = cache.offer([1, 2, 3, 4])
    second = cache.offer([5, 6, 3, 4])
    assert cache.take([5, 6, 3, 4]) == [second[0], second[1]]
    assert cache.take([9, 9, 3, 4]) == [] and cache.take([1, 2, 9, 9]) == [first[0]]


def test_offering_a_block_again_keeps_the_first_and_makes_it_new() -> None:
    cache = PrefixCache(2)
    first = cache.offer([1, 2])
    second = cache.offer([3, 4])
    assert cache.offer([1, 2]) == {}
    assert cache.drop(2) == [second[0], first[0]]


def test_requests_with_one_beginning_are_answered_alike_and_prefilled_less(make_worker: MakeWorker) -> None:
    requests = [request(f"r{i}", SYSTEM + "x" * i, max_tokens=9) for i in range(6)]
    worker = make_worker(row_exact=True, max_batch_size=1)
    alone = {r.custom_id: make_worker(row_exact=True).generate([r])[0] for r in requests}
    assert by_id(worker.generate(requests)) == alone
    assert worker.stats()["prefix_tokens"] > 5 * (len(SYSTEM) - 8)
    assert_nothing_held(worker)
