"""What the step relies on of the real device."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from batchgen.models import load_model
from batchgen.scheduler.engine import swap_format
from batchgen.scheduler.engine.device import ModelDevice
from batchgen.scheduler.errors import EffectError, ForwardError, KvExhausted, ReadbackError, SpillError
from batchgen.scheduler.ports import Decode, ReadbackKind, Ticket
from batchgen.scheduler.sequences import SequenceState

HOST, ARGMAX = ReadbackKind.HOST, ReadbackKind.ARGMAX


def device_of(model: str = "tiny", blocks: int = 40, batch: int = 3) -> ModelDevice:
    loaded = load_model(model, row_exact=True)
    return ModelDevice(loaded, num_blocks=blocks, block_size=4, max_batch=batch)


def started(device: ModelDevice, *lengths: int) -> list[SequenceState]:
    seqs = [device.alloc_sequence() for _ in lengths]
    for seq, length in zip(seqs, lengths, strict=True):
        device.prefill(list(range(65, 65 + length)), seq)
    return seqs


def decode(device: ModelDevice, seqs: list[SequenceState], *tokens: int) -> np.ndarray:
    staging = bytearray()
    outcome = device.wait(device.launch(Decode(tokens, HOST), seqs, staging))
    return np.frombuffer(bytes(staging), np.float32).reshape(outcome.rows, outcome.vocab)


def test_a_launch_advances_each_row_by_its_token_and_reads_into_the_lent_buffer() -> None:
    device = device_of()
    seqs = started(device, 5, 8)
    staging = bytearray(3)
    lent = staging
    outcome = device.wait(device.launch(Decode((70, 71), HOST), seqs, staging))
    assert staging is lent and len(staging) == 2 * device.vocab_size * 4 == outcome.rows * outcome.vocab * 4
    assert [seq.seq_len for seq in seqs] == [6, 9] and [seq.tokens[-1] for seq in seqs] == [70, 71]
    assert [len(seq.block_table) for seq in seqs] == [2, 3]


def test_the_devices_choice_is_the_maximum_of_the_logits_that_it_can_still_give() -> None:
    device = device_of()
    seqs = started(device, 5, 8)
    ticket = device.launch(Decode((70, 71), ARGMAX), seqs, bytearray())
    outcome = device.wait(ticket)
    staging = bytearray()
    device.read_logits(ticket, staging)
    logits = np.frombuffer(bytes(staging), np.float32).reshape(2, -1)
    assert outcome.tokens == tuple(logits.argmax(1).tolist())


def test_results_are_claimed_by_their_ticket_once_and_in_turn() -> None:
    device = device_of()
    seqs = started(device, 5)
    ticket = device.launch(Decode((70,), ARGMAX), seqs, bytearray())
    with pytest.raises(EffectError, match="was not claimed"):
        device.launch(Decode((70,), ARGMAX), seqs, bytearray())
    with pytest.raises(EffectError, match="launch 9 has no result"):
        device.wait(Ticket(9))
    device.wait(ticket)
    with pytest.raises(EffectError):
        device.wait(ticket)
    with pytest.raises(ReadbackError, match="are gone"):
        device.read_logits(Ticket(9), bytearray())


@pytest.mark.parametrize("model", ["tiny", "tiny-dual", "tiny-hybrid"])
def test_a_launch_without_blocks_advances_nobody_and_its_retry_gives_the_same(model: str) -> None:
    """P11: what was reserved for the first rows stays theirs."""
    roomy, tight = device_of(model), device_of(model, blocks=7)
    expected = decode(roomy, started(roomy, 8, 8, 8)[:2], 70, 71)
    seqs = started(tight, 8, 8, 8)
    with pytest.raises(KvExhausted, match=r"slot . needs 1 blocks for 9 tokens, 0 of 7 are free"):
        tight.launch(Decode((70, 71, 72), HOST), seqs, bytearray())
    assert [(seq.seq_len, len(seq.tokens)) for seq in seqs] == [(8, 8)] * 3
    assert sorted(len(seq.block_table) for seq in seqs) == [2, 2, 3]
    tight.release(seqs.pop(), cache=False)
    assert np.array_equal(decode(tight, seqs, 70, 71), expected)
    tight.check_invariants()


def test_a_forward_that_fails_is_a_forward_error_and_nobody_advanced(monkeypatch: pytest.MonkeyPatch) -> None:
    device = device_of()
    seqs = started(device, 5)

    def fail(*_: object) -> None:
        raise RuntimeError("KV cache exhausted: deep inside")

    monkeypatch.setattr(device._decode, "run", fail)
    with pytest.raises(ForwardError, match="deep inside") as caught:
        device.launch(Decode((70,), HOST), seqs, bytearray())
    assert isinstance(caught.value.__cause__, RuntimeError) and seqs[0].seq_len == 5


def test_a_sequence_is_released_once() -> None:
    device = device_of()
    (seq,) = started(device, 5)
    device.release(seq, cache=False)
    assert seq.block_table == [] and device.free_blocks == 40
    with pytest.raises(EffectError, match="released before"):
        device.release(seq, cache=False)


def test_slots_run_out_with_a_forward_error() -> None:
    device = device_of(batch=1)
    device.alloc_sequence()
    with pytest.raises(ForwardError, match="no slot is free"):
        device.alloc_sequence()


@pytest.mark.parametrize("model", ["tiny", "tiny-dual", "tiny-hybrid"])
def test_a_saved_sequence_goes_on_elsewhere_bit_for_bit(model: str) -> None:
    device = device_of(model)
    seq, _ = started(device, 10, 3)
    saved = io.BytesIO()
    device.save(seq, saved)
    expected = decode(device, [seq], 70)
    device.release(seq, cache=False)
    device.prefill([90] * 6, device.alloc_sequence())  # takes the slot and the blocks that were its
    again = device.alloc_sequence()
    saved.seek(0)
    device.restore(again, saved, 3)
    again.tokens, again.seq_len = list(range(65, 75)), 10
    assert np.array_equal(decode(device, [again], 70), expected)
    device.check_invariants()


def damage(kind: str, content: bytes) -> bytes:
    if kind == "short":
        return content[:-9]
    if kind == "flipped":
        return content[:-500] + bytes([content[-500] ^ 1]) + content[-499:]
    if kind == "other":
        return b"notaspill" + content
    header = json.dumps([["torch.float32", 1]]).encode()
    return swap_format.MAGIC + len(header).to_bytes(4, "little") + header


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("short", "ends early"),
        ("flipped", "checksum"),
        ("other", "no spilled sequence"),
        ("shape", "holds tensors"),
    ],
)
def test_bytes_that_are_not_those_of_the_sequence_are_refused_and_nothing_is_held(
    kind: str, words: str
) -> None:
    device = device_of("tiny-hybrid")
    (seq,) = started(device, 10)
    saved = io.BytesIO()
    device.save(seq, saved)
    device.release(seq, cache=False)
    again = device.alloc_sequence()
    with pytest.raises(SpillError, match=words):
        device.restore(again, io.BytesIO(damage(kind, saved.getvalue())), 3)
    assert again.block_table == [] and device.free_blocks == 40
    device.check_invariants()
