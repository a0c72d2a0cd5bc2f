"""The real `Device` of the step policy: model, paged pool and state slots of one rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import torch
from torch import Tensor

from batchgen.attention import AttentionBackend, AttnWrapperBase, TorchPagedAttention
from batchgen.kv import DualKVCacheCoordinator, GPUPagedKVCacheManager, KVPoolConfig, StateSlotPool
from batchgen.models import LoadedModel
from batchgen.scheduler.engine.blocks import Blocks
from batchgen.scheduler.engine.decode_forward import DecodeForward, DecodeSettings
from batchgen.scheduler.engine.prefill_forward import PrefillForward
from batchgen.scheduler.engine.prefix_cache import PrefixCache
from batchgen.scheduler.engine.swap_format import read_sequence, write_sequence
from batchgen.scheduler.errors import EffectError, ForwardError, KvExhausted, ReadbackError
from batchgen.scheduler.ports import Decode, DecodeOutcome, ReadbackKind, Ticket
from batchgen.scheduler.sequences import SequenceState


class ModelDevice:
    """`Device` over a loaded model, with room for `max_batch` sequences and `num_blocks` blocks of KV."""

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        num_blocks: int,
        block_size: int,
        max_batch: int,
        cuda_graphs: bool = True,
        prefix_cache: bool = True,
        attention: AttentionBackend | None = None,
    ) -> None:
        model = loaded.model
        self.block_size, self.vocab_size = block_size, loaded.config.vocab_size
        self.logits_are_fp32 = model.dtype != torch.bfloat16
        self.context = loaded.config.max_position_embeddings
        self._model = model
        model.pack_for_decode()
        self._pool = _make_pool(loaded, num_blocks, block_size, max_batch)
        self._pool.initialize()
        self._has_state = model.state_shape() is not None
        self._slots = StateSlotPool(max_batch, model.state_shape() or (), device=model.device)
        if self._has_state:
            model.bind_states(self._slots)
        # A block without the recurrent state behind it is no beginning to go on from.
        keeps = prefix_cache and not self._has_state
        self.blocks = Blocks(self._pool, PrefixCache(block_size) if keeps else None)
        attention = attention or TorchPagedAttention()
        settings = DecodeSettings(max_batch, disable_cuda_graphs=not cuda_graphs)
        self._decode = DecodeForward(loaded, self._pool, self._slots, attention, settings)
        self._prefill = PrefillForward(model, self._pool, self._slots, attention)
        self._free_slots = list(range(max_batch - 1, -1, -1))
        self._tickets = 0
        self._held: tuple[Ticket, DecodeOutcome] | None = None
        self._last: tuple[Ticket, Tensor] | None = None
        self.lost = False

    @property
    def free_blocks(self) -> int:
        return self.blocks.free

    @property
    def total_blocks(self) -> int:
        return self.blocks.total

    @property
    def cached_blocks(self) -> int:
        return self.blocks.cached

    @property
    def pool_bytes(self) -> int:
        """What the KV of all blocks takes."""
        pools = (
            [self._pool.primary, self._pool.auxiliary]
            if isinstance(self._pool, DualKVCacheCoordinator)
            else [self._pool]
        )
        return sum(pool.config.bytes_per_page * pool.config.num_pages for pool in pools)

    @property
    def counts(self) -> Counter[str]:
        """Steps, the rows in them, and how they were run, named as the worker names them."""
        state = self._decode.state
        reasons = Counter({f"graph_{reason}": count for reason, count in state.graph_reasons.items()})
        routes = self._model.recurrence_counts().steps
        return state.counters + reasons + Counter({f"recurrence_{route}": n for route, n in routes.items()})

    # decoding

    def launch(self, command: Decode, seqs: Sequence[SequenceState], staging: bytearray) -> Ticket:
        if self._held is not None:
            raise EffectError(f"the result of launch {self._held[0].number} was not claimed")
        for seq in seqs:
            self.blocks.cover(seq, seq.seq_len + 1)
        try:
            logits, argmax = self._decode.run(command.tokens, seqs)
        except Exception as error:
            self.lost = self.lost or isinstance(error, torch.AcceleratorError)
            raise ForwardError(f"the decode forward failed: {type(error).__name__}: {error}") from error
        for seq, token in zip(seqs, command.tokens, strict=True):
            seq.tokens.append(token)
            seq.seq_len += 1
        self._decode.state.counters.update(decode_steps=1, decode_rows=len(seqs))
        self._tickets += 1
        ticket = Ticket(self._tickets)
        self._last = (ticket, logits)
        if command.readback is ReadbackKind.ARGMAX:
            if not bool(torch.isfinite(logits.amax(1)).all()):
                raise ForwardError("the decode forward gave logits of which no maximum can be taken")
            tokens = tuple(argmax.tolist())
            outcome = DecodeOutcome(ReadbackKind.ARGMAX, len(seqs), self.vocab_size, self._itemsize, tokens)
        else:
            outcome = self.read_logits(ticket, staging)
        self._held = (ticket, outcome)
        return ticket

    def wait(self, ticket: Ticket) -> DecodeOutcome:
        if self._held is None or self._held[0] != ticket:
            raise EffectError(f"launch {ticket.number} has no result here")
        outcome = self._held[1]
        self._held = None
        return outcome

    def read_logits(self, ticket: Ticket, staging: bytearray) -> DecodeOutcome:
        if self._last is None or self._last[0] != ticket:
            raise ReadbackError(f"the logits of launch {ticket.number} are gone")
        logits = self._last[1]
        rows, vocab = logits.shape
        dtype = torch.float32 if self.logits_are_fp32 else torch.bfloat16
        size = rows * vocab * dtype.itemsize
        staging.extend(bytes(max(size - len(staging), 0)))
        del staging[size:]
        try:
            torch.frombuffer(staging, dtype=dtype).view(rows, vocab).copy_(logits)
        except RuntimeError as error:
            raise ReadbackError(f"the logits did not reach the host: {error}") from error
        return DecodeOutcome(ReadbackKind.HOST, rows, vocab, dtype.itemsize)

    @property
    def _itemsize(self) -> int:
        return 4 if self.logits_are_fp32 else 2

    # sequences

    def alloc_sequence(self) -> SequenceState:
        if not self._free_slots:
            raise ForwardError("no slot is free for another sequence")
        seq = SequenceState(self._free_slots.pop())
        (state_slot,) = self._slots.allocate([seq.slot_idx])
        seq.ssm_slot = state_slot if self._has_state else None
        self.blocks.open(seq)
        self._decode.forget_rows()
        return seq

    def prefill(self, tokens: Sequence[int], seq: SequenceState) -> bytes:
        return self.prefill_all([tokens], [seq])[0]

    def prefill_all(self, prompts: Sequence[Sequence[int]], seqs: Sequence[SequenceState]) -> list[bytes]:
        """`prefill` of several empty sequences in one forward, each from where the prefix cache ends. All or none:
        where one does not fit, KvExhausted, and all are as they were."""
        starts: list[int] = []
        try:
            starts += [self.blocks.adopt(seq, tokens) for tokens, seq in zip(prompts, seqs, strict=True)]
            for tokens, seq in zip(prompts, seqs, strict=True):
                self.blocks.cover(seq, len(tokens))
            logits = self._prefill.run(prompts, seqs, starts)
        except Exception as error:
            for tokens, seq, start in zip(prompts, seqs, starts, strict=True):
                self.blocks.close(seq, holds=tokens[:start])
                self.blocks.open(seq)
            if isinstance(error, KvExhausted):
                raise
            raise ForwardError(f"the prefill failed: {type(error).__name__}: {error}") from error
        for tokens, seq in zip(prompts, seqs, strict=True):
            seq.tokens, seq.seq_len, seq.prompt_len = list(tokens), len(tokens), len(tokens)
        self._decode.state.counters["prefix_tokens"] += sum(starts)
        return [row.tobytes() for row in logits.cpu().numpy()]

    def release(self, seq: SequenceState, *, cache: bool) -> None:
        self.blocks.close(seq, holds=seq.tokens[: seq.seq_len] if cache else ())
        self._slots.release([seq.slot_idx])
        self._free_slots.append(seq.slot_idx)
        self._decode.forget_rows()

    def reclaim(self, blocks: int) -> int:
        return self.blocks.reclaim(blocks)

    # parking

    def save(self, seq: SequenceState, writer: BinaryIO) -> None:
        write_sequence(writer, self._pool, seq.block_table, self._states_of(seq))

    def restore(self, seq: SequenceState, reader: BinaryIO, num_blocks: int) -> None:
        self.blocks.cover(seq, num_blocks * self.block_size)
        try:
            read_sequence(reader, self._pool, seq.block_table, self._states_of(seq))
        except BaseException:
            self.blocks.close(seq)
            self.blocks.open(seq)
            raise

    def _states_of(self, seq: SequenceState) -> list[Tensor]:
        return [] if seq.ssm_slot is None else [self._slots.states[seq.ssm_slot]]

    def check_invariants(self) -> None:
        """Every block and slot is in one place, tables say what the pool says. AssertionError."""
        self._pool.check_invariants()
        self._slots.check_invariants()
        if self._slots.num_free != len(self._free_slots):
            raise AssertionError(
                f"{self._slots.num_free} state slots are free, {len(self._free_slots)} slots"
            )

    def close(self) -> None:
        self._pool.destroy()
        AttnWrapperBase.reset()


def _make_pool(loaded: LoadedModel, num_blocks: int, block_size: int, max_batch: int) -> Any:
    layers, heads, dim = loaded.model.kv_pool_shape()
    context = -(-loaded.config.max_position_embeddings // block_size)
    primary = KVPoolConfig(
        name="primary",
        num_layers=layers,
        num_pages=num_blocks,
        page_size=block_size,
        num_kv_heads=heads,
        head_dim=dim,
        dtype=loaded.model.dtype,
        max_slots=max_batch,
        graph_max_slots=max_batch,
        graph_max_pages=min(context, num_blocks),
    )
    device, aux = loaded.model.device, loaded.model.aux_pool_shape()
    if aux is None:
        return GPUPagedKVCacheManager(primary, device)
    auxiliary = replace(
        primary, name="auxiliary", num_layers=aux[0], num_kv_heads=aux[1], head_dim=aux[2], has_value=False
    )
    return DualKVCacheCoordinator(
        GPUPagedKVCacheManager(primary, device), GPUPagedKVCacheManager(auxiliary, device)
    )
