"""A device that is honest where it matters and free where it does not: real blocks, slots, states and bytes, no model.

Its logits are a function of every KV cell that the block table reaches and of the recurrent state, so a wrong block, a
lost state, a token too many or too few shows in the next choice. A cell depends on all tokens before it, as KV does.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from batchgen.scheduler.errors import EffectError, ForwardError, KvExhausted, SpillError
from batchgen.scheduler.ports import Decode, DecodeOutcome, ReadbackKind, Ticket
from batchgen.scheduler.sequences import SequenceState

_MASK = (1 << 64) - 1
_HEAD = struct.Struct("<4sQQQ")  # mark, seq_len, blocks, state


def mixed(before: int, token: int) -> int:
    """The cell (or state) after `before` has seen `token`."""
    x = (before * 0x9E3779B97F4A7C15 + token * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 29)


@dataclass
class Failure:
    """Raise `error` at the calls `first` to `first + times - 1` of a point, counted from 0."""

    error: Exception
    first: int
    times: int


@dataclass(frozen=True)
class LaunchSeen:
    """What a launch was given: the command, and of each row the KV slot and the length before it."""

    command: Decode
    slots: tuple[int, ...]
    seq_lens: tuple[int, ...]


@dataclass
class StubDevice:
    """`ssm`: sequences have a recurrent state, in slots numbered the other way round than KV slots.

    Points at which `fail` makes a call fail: reserve (nothing reserved), forward (blocks reserved), readback, wait,
    read_logits, alloc, prefill, release, save, restore. `shape` may change a row of logits: (tokens, row).
    """

    total: int = 64
    block_size: int = 4
    vocab_size: int = 32
    slots: int = 64
    ssm: bool = True
    logits_are_fp32: bool = True
    shape: Callable[[Sequence[int], NDArray[np.float32]], None] | None = None
    lost: bool = False
    launches: list[LaunchSeen] = field(default_factory=list)
    prefills: list[tuple[int, ...]] = field(default_factory=list)
    released: list[tuple[int, bool]] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[Failure]] = field(default_factory=dict)
    batched: int = 0
    looped: int = 0

    def __post_init__(self) -> None:
        self._free = list(range(self.total))[::-1]
        self._cells = [array("Q") for _ in range(self.total)]
        self._users = [0] * self.total
        self._cached: dict[int, int] = {}  # the last cell of a full block -> the block; oldest first
        self._free_slots = list(range(self.slots))
        self._free_states = list(range(self.slots))
        self._states = [0] * self.slots
        self._alive: dict[int, SequenceState] = {}
        self._number = 0
        self._held: tuple[int, DecodeOutcome, NDArray[np.float32]] | None = None
        self._waited: tuple[int, NDArray[np.float32]] | None = None

    # -- pool

    @property
    def total_blocks(self) -> int:
        return self.total

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def cached_blocks(self) -> int:
        """Blocks that only the prefix cache holds."""
        return sum(self._users[block] == 0 for block in self._cached.values())

    @property
    def held_blocks(self) -> int:
        return sum(users > 0 for users in self._users)

    @property
    def live(self) -> list[SequenceState]:
        return list(self._alive.values())

    @property
    def live_sequences(self) -> int:
        return len(self._alive)

    def check(self) -> None:
        """AssertionError where a block is lost, or has two owners that do not share it."""
        assert self.free_blocks + self.held_blocks + self.cached_blocks == self.total, (
            "blocks are not conserved"
        )
        counted = Counter(block for seq in self._alive.values() for block in seq.block_table)
        assert counted == Counter({b: n for b, n in enumerate(self._users) if n}), "users of blocks are wrong"
        assert not set(self._free) & (set(counted) | set(self._cached.values())), "a free block is in use"
        slots = [seq.slot_idx for seq in self._alive.values()]
        assert sorted(slots + self._free_slots) == list(range(self.slots)), "slots are not conserved"

    def reclaim(self, blocks: int) -> int:
        self.calls["reclaim"] += 1
        freed = 0
        for cell, block in list(self._cached.items()):
            if freed == blocks:
                break
            if not self._users[block]:
                del self._cached[cell]
                self._free.append(block)
                freed += 1
        return freed

    def _take(self, what: str) -> int:
        if not self._free and not self.reclaim(1):
            raise KvExhausted(f"{what} needs a block, none of {self.total} is free")
        block = self._free.pop()
        self._users[block] = 1
        self._cells[block] = array("Q")
        return block

    def _drop(self, block: int) -> None:
        self._users[block] -= 1
        if not self._users[block] and block not in self._cached.values():
            self._free.append(block)

    # -- sequences

    def alloc_sequence(self) -> SequenceState:
        self._maybe_fail("alloc")
        if not self._free_slots:
            raise ForwardError(f"all {self.slots} slots are taken")
        state = self._free_states.pop() if self.ssm else None
        seq = SequenceState(self._free_slots.pop(0), state)
        if state is not None:
            self._states[state] = 0
        self._alive[id(seq)] = seq
        return seq

    def prefill(self, tokens: Sequence[int], seq: SequenceState) -> bytes:
        self._maybe_fail("prefill")
        self._known(seq)
        if seq.block_table or not tokens:
            raise EffectError("prefill wants tokens and an empty sequence")
        cells = array("Q")
        for token in tokens:
            cells.append(mixed(cells[-1] if cells else 0, token))
        size, table = self.block_size, seq.block_table
        try:
            for start in range(0, len(cells), size):
                part = cells[start : start + size]
                shared = self._cached.get(part[-1]) if len(part) == size else None
                if shared is not None:
                    self._users[shared] += 1
                    table.append(shared)
                else:
                    block = self._take("prefill")
                    self._cells[block] = part
                    table.append(block)
        except KvExhausted:
            for block in table:
                self._drop(block)
            table.clear()
            raise
        self.prefills.append(tuple(tokens))
        seq.tokens[:] = tokens
        seq.seq_len = seq.prompt_len = len(tokens)
        if seq.ssm_slot is not None:
            for token in tokens:
                self._states[seq.ssm_slot] = mixed(self._states[seq.ssm_slot], token)
        return self._logits(seq).tobytes()

    def release(self, seq: SequenceState, *, cache: bool) -> None:
        self._known(seq)
        self._maybe_fail("release")
        if cache:
            for block in seq.block_table:
                cells = self._cells[block]
                if len(cells) == self.block_size:
                    self._cached.setdefault(cells[-1], block)
        for block in seq.block_table:
            self._drop(block)
        del self._alive[id(seq)]
        self._free_slots = sorted([*self._free_slots, seq.slot_idx])
        if seq.ssm_slot is not None:
            self._free_states.append(seq.ssm_slot)
            self._states[seq.ssm_slot] = 0xDEAD
        seq.block_table.clear()
        self.released.append((seq.slot_idx, cache))

    def save(self, seq: SequenceState, writer: BinaryIO) -> None:
        self._known(seq)
        state = 0 if seq.ssm_slot is None else self._states[seq.ssm_slot]
        writer.write(_HEAD.pack(b"stub", seq.seq_len, len(seq.block_table), state))
        self._maybe_fail("save")  # with half of it written
        for block in seq.block_table:
            cells = self._cells[block]
            writer.write(bytes([len(cells)]) + cells.tobytes())

    def restore(self, seq: SequenceState, reader: BinaryIO, num_blocks: int) -> None:
        self._known(seq)
        self._maybe_fail("restore")
        mark, _, blocks, state = _HEAD.unpack(reader.read(_HEAD.size))
        if mark != b"stub" or blocks != num_blocks:
            raise SpillError(f"the entry holds {blocks} blocks, {num_blocks} were spilled")
        for _ in range(num_blocks):
            block = self._take("restore")
            seq.block_table.append(block)
            self._cells[block] = array("Q", reader.read(8 * reader.read(1)[0]))
        if seq.ssm_slot is not None:
            self._states[seq.ssm_slot] = state

    # -- decode

    def launch(self, command: Decode, seqs: Sequence[SequenceState], staging: bytearray) -> Ticket:
        if self._held is not None:
            raise EffectError(f"launch {self._held[0]} was not waited for")
        if len(command.tokens) != len(seqs):
            raise EffectError(f"{len(command.tokens)} tokens for {len(seqs)} rows")
        self.launches.append(
            LaunchSeen(command, tuple(seq.slot_idx for seq in seqs), tuple(seq.seq_len for seq in seqs))
        )
        self._maybe_fail("reserve")
        for seq in seqs:
            self._known(seq)
            while len(seq.block_table) <= seq.seq_len // self.block_size:
                seq.block_table.append(self._take(f"slot {seq.slot_idx}"))
        self._maybe_fail("forward")
        states = [seq.ssm_slot for seq in seqs]
        if states == list(range(seqs[0].ssm_slot or 0, (seqs[0].ssm_slot or 0) + len(seqs))):
            self.batched += 1
        else:
            self.looped += 1
        rows = []
        for token, seq in zip(command.tokens, seqs, strict=True):
            cells = self._cells[seq.block_table[seq.seq_len // self.block_size]]
            before = (
                self._cells[seq.block_table[(seq.seq_len - 1) // self.block_size]][-1] if seq.seq_len else 0
            )
            assert len(cells) == seq.seq_len % self.block_size, "a cell is missing, or written twice"
            cells.append(mixed(before, token))
            if seq.ssm_slot is not None:
                self._states[seq.ssm_slot] = mixed(self._states[seq.ssm_slot], token)
            seq.tokens.append(token)
            seq.seq_len += 1
            rows.append(self._logits(seq))
        logits = np.stack(rows)
        self._maybe_fail("readback")
        self._number += 1
        outcome = self._outcome(command.readback, logits)
        if command.readback is ReadbackKind.HOST:
            self._write(logits, staging)
        self._held = (self._number, outcome, logits)
        return Ticket(self._number)

    def wait(self, ticket: Ticket) -> DecodeOutcome:
        held, self._held = self._held, None
        self._maybe_fail("wait")
        if held is None or held[0] != ticket.number:
            raise EffectError(f"ticket {ticket.number} is not the held one")
        self._waited = (held[0], held[2])
        return held[1]

    def read_logits(self, ticket: Ticket, staging: bytearray) -> DecodeOutcome:
        self._maybe_fail("read_logits")
        if self._waited is None or self._waited[0] != ticket.number:
            raise EffectError(f"ticket {ticket.number} is not the one last waited for")
        self._write(self._waited[1], staging)
        return self._outcome(ReadbackKind.HOST, self._waited[1])

    def _outcome(self, kind: ReadbackKind, logits: NDArray[np.float32]) -> DecodeOutcome:
        rows, vocab = logits.shape
        tokens = tuple(logits.argmax(axis=1).tolist()) if kind is ReadbackKind.ARGMAX else None
        return DecodeOutcome(kind, rows, vocab, 4 if self.logits_are_fp32 else 2, tokens)

    def _write(self, logits: NDArray[np.float32], staging: bytearray) -> None:
        bits = logits.view(np.uint32)
        staging[:] = logits.tobytes() if self.logits_are_fp32 else (bits >> 16).astype("<u2").tobytes()

    def _logits(self, seq: SequenceState) -> NDArray[np.float32]:
        digest = hashlib.blake2b(digest_size=8)
        for block in seq.block_table:
            digest.update(self._cells[block])
        if seq.ssm_slot is not None:
            digest.update(self._states[seq.ssm_slot].to_bytes(8, "little"))
        seed = int.from_bytes(digest.digest(), "little")
        row = 3 * np.random.default_rng(seed).standard_normal(self.vocab_size, dtype=np.float32)
        if self.shape is not None:
            self.shape(seq.tokens, row)
        if not self.logits_are_fp32:  # bfloat16, also for the device's own choice
            row = (row.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        return row

    # -- failures

    def fail(self, point: str, error: Exception, *, skip: int = 0, times: int = 1) -> None:
        """Makes a later call fail: the one after `skip` more calls of `point`, and `times - 1` after it."""
        self.failures.setdefault(point, []).append(Failure(error, self.calls[point] + skip, times))

    def _maybe_fail(self, point: str) -> None:
        count = self.calls[point]
        self.calls[point] += 1
        for failure in self.failures.get(point, ()):
            if failure.first <= count < failure.first + failure.times:
                raise failure.error

    def _known(self, seq: SequenceState) -> None:
        if self._alive.get(id(seq)) is not seq:
            raise EffectError(f"slot {seq.slot_idx} holds no such sequence (freed twice?)")
