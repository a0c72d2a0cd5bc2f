"""The stub must notice what the tests that use it are to find."""

from __future__ import annotations

import io

import pytest

from batchgen.scheduler.errors import EffectError, KvExhausted
from batchgen.scheduler.ports import Decode, ReadbackKind
from batchgen.scheduler.sequences import SequenceState
from tests.batchgen.scheduler.stub_device import StubDevice


def decoded(device: StubDevice, seqs: list[SequenceState], tokens: tuple[int, ...]) -> bytes:
    staging = bytearray()
    device.wait(device.launch(Decode(tokens, ReadbackKind.HOST), seqs, staging))
    return bytes(staging)


def prefilled(device: StubDevice, tokens: list[int]) -> SequenceState:
    seq = device.alloc_sequence()
    device.prefill(tokens, seq)
    return seq


@pytest.mark.parametrize("ssm", [False, True])
def test_logits_are_the_same_by_prefill_decode_and_restore_and_differ_by_any_token(ssm: bool) -> None:
    history = [3, 1, 4, 1, 5, 9, 2]
    device = StubDevice(ssm=ssm)
    whole = device.prefill(history, device.alloc_sequence())
    step_by_step = prefilled(device, history[:5])
    decoded(device, [step_by_step], (9,))
    saved = io.BytesIO()
    device.save(step_by_step, saved)
    restored = device.alloc_sequence()
    device.restore(restored, io.BytesIO(saved.getvalue()), 2)
    restored.tokens, restored.seq_len = list(step_by_step.tokens), 6
    assert decoded(device, [step_by_step, restored], (2, 2)) == whole * 2
    for place in range(len(history)):
        other = [*history[:place], 7, *history[place + 1 :]]
        assert device.prefill(other, device.alloc_sequence()) != whole
    device.check()


def test_a_state_that_is_lost_or_swapped_shows_in_the_logits() -> None:
    device = StubDevice()
    one, other = prefilled(device, [1, 2, 3]), prefilled(device, [4, 5, 6])
    right = [prefilled(device, [1, 2, 3]), prefilled(device, [4, 5, 6])]
    one.ssm_slot, other.ssm_slot = other.ssm_slot, one.ssm_slot
    assert decoded(device, [one, other], (7, 7)) != decoded(device, right, (7, 7))


def test_exhaustion_advances_nothing_and_the_retry_finds_what_was_reserved() -> None:
    device = StubDevice(total=3, block_size=2)
    seqs = [prefilled(device, [1, 2]), prefilled(device, [1, 3])]
    with pytest.raises(KvExhausted):
        decoded(device, seqs, (5, 5))
    assert [seq.seq_len for seq in seqs] == [2, 2] and [len(seq.block_table) for seq in seqs] == [2, 1]
    device.release(seqs.pop(), cache=True)
    device.check()
    assert device.free_blocks == 0 and device.cached_blocks == 1
    ample = StubDevice(block_size=2)
    assert decoded(device, seqs, (5,)) == ample.prefill([1, 2, 5], ample.alloc_sequence())
    device.check()


def test_the_prefix_cache_gives_its_blocks_to_who_needs_them() -> None:
    device = StubDevice(total=3, block_size=2)
    device.release(prefilled(device, [1, 2, 3, 4]), cache=True)
    again = prefilled(device, [1, 2, 9])
    assert device.cached_blocks == 1 and device.free_blocks == 0
    prefilled(device, [8])
    device.check()
    assert device.cached_blocks == 0 and device.reclaim(1) == 0
    assert len(again.block_table) == 2


def test_misuse_is_an_effect_error() -> None:
    device = StubDevice()
    seq = prefilled(device, [1])
    ticket = device.launch(Decode((1,), ReadbackKind.ARGMAX), [seq], bytearray())
    with pytest.raises(EffectError, match="was not waited for"):
        device.launch(Decode((1,), ReadbackKind.ARGMAX), [seq], bytearray())
    device.wait(ticket)
    with pytest.raises(EffectError, match="not the held one"):
        device.wait(ticket)
    device.release(seq, cache=False)
    with pytest.raises(EffectError, match="freed twice"):
        device.release(seq, cache=False)
