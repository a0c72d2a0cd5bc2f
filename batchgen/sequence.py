"""Sequences, their life cycle and the batch that indexes them.

Every rank holds the same `SequenceBatch`: the metadata of every sequence of the job is replicated, while
tensors (`input_ids`, `decoded_tokens`, `evicted_token_ids`) live only on the rank that owns the sequence.

`PAGE_SIZE` and the page buffers are module globals that `configure_page_buffers` rebinds: read them through
the module (`sequence.PAGE_SIZE`); `from batchgen.sequence import PAGE_SIZE` keeps the value of the import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any

from torch import Tensor

__all__ = [
    "ALLOWED_TRANSITIONS",
    "DECISION_FREQUENCY_PAGES",
    "EXTENSION_GPU_PAGE_BUFFER",
    "INITIAL_GPU_PAGE_BUFFER",
    "PAGE_SIZE",
    "QueryBookEntry",
    "SequenceBatch",
    "SequenceEntry",
    "SequenceStatus",
    "configure_page_buffers",
    "pages_for_tokens",
]

PAGE_SIZE = 64
INITIAL_GPU_PAGE_BUFFER = 32
EXTENSION_GPU_PAGE_BUFFER = 4
DECISION_FREQUENCY_PAGES = 2


def configure_page_buffers(
    *,
    page_size: int | None = None,
    initial: int | None = None,
    extension: int | None = None,
    decision_frequency: int | None = None,
) -> None:
    """Rebind the page size (tokens) and the page buffers (pages); what is None keeps its value.

    A boundary comes every `decision_frequency` pages and an extension must carry a sequence to the next one,
    hence initial >= extension >= decision_frequency >= 1. Raises ValueError, changing nothing, when that does
    not hold.
    """
    global PAGE_SIZE, INITIAL_GPU_PAGE_BUFFER, EXTENSION_GPU_PAGE_BUFFER, DECISION_FREQUENCY_PAGES
    size = PAGE_SIZE if page_size is None else page_size
    first = INITIAL_GPU_PAGE_BUFFER if initial is None else initial
    more = EXTENSION_GPU_PAGE_BUFFER if extension is None else extension
    every = DECISION_FREQUENCY_PAGES if decision_frequency is None else decision_frequency
    if size < 1:
        raise ValueError(f"page_size must be at least 1 token, got {size}")
    if not first >= more >= every >= 1:
        raise ValueError(
            f"page buffers must satisfy initial >= extension >= decision_frequency >= 1, "
            f"got initial={first}, extension={more}, decision_frequency={every}"
        )
    PAGE_SIZE, INITIAL_GPU_PAGE_BUFFER, EXTENSION_GPU_PAGE_BUFFER, DECISION_FREQUENCY_PAGES = (
        size,
        first,
        more,
        every,
    )


def pages_for_tokens(tokens: int) -> int:
    """Pages that hold `tokens` tokens at the page size of now."""
    return -(-tokens // PAGE_SIZE)


class SequenceStatus(IntEnum):
    QUEUEING = 0
    IN_PREFILL = 1
    PREFILLED = 2
    IN_DECODE = 3
    ON_HOLD = 4
    COMPLETED = 5
    EVICTED = 6


ALLOWED_TRANSITIONS: Mapping[SequenceStatus, frozenset[SequenceStatus]] = MappingProxyType(
    {
        SequenceStatus.QUEUEING: frozenset({SequenceStatus.IN_PREFILL}),
        SequenceStatus.IN_PREFILL: frozenset({SequenceStatus.PREFILLED}),
        SequenceStatus.PREFILLED: frozenset({SequenceStatus.IN_DECODE, SequenceStatus.COMPLETED}),
        SequenceStatus.IN_DECODE: frozenset(
            {SequenceStatus.ON_HOLD, SequenceStatus.COMPLETED, SequenceStatus.EVICTED}
        ),
        SequenceStatus.ON_HOLD: frozenset(
            {SequenceStatus.IN_DECODE, SequenceStatus.COMPLETED, SequenceStatus.EVICTED}
        ),
        SequenceStatus.COMPLETED: frozenset(),
        SequenceStatus.EVICTED: frozenset({SequenceStatus.IN_PREFILL}),
    }
)


@dataclass
class QueryBookEntry:
    """What the owner rank keeps per local index beside the replicated metadata.

    encoded_prompt: int64 [1, P], the prompt of the next prefill. decoded_tokens: int64 [1, capacity].
    kv_token_budget: memo of the token budget, 0 until first computed. logprobs: one entry per decoded token,
    or empty. text_state: what incremental detokenisation (stop strings) needs between two tokens.
    """

    encoded_prompt: Tensor
    decoded_tokens: Tensor
    kv_token_budget: int = 0
    logprobs: list[Any] = field(default_factory=list)
    text_state: Any = None


class SequenceEntry:
    """One sequence. Lengths and budgets are tokens, `*_pages` are pages of `PAGE_SIZE` tokens.

    `current_context_length` counts every known token, the last of which has no KV yet: the next decode step
    writes position `current_context_length - 1`. After an eviction `prompt_length` is the re-entry prompt
    (original prompt and all tokens decoded so far) and `reentry_decoded_baseline` the decoded length at
    re-entry, so that a second eviction appends only what is new.
    """

    __slots__ = (
        "_buffer_slot",
        "_lifespan_idx",
        "_lifespan_log",
        "_rep_count",
        "_rep_detected",
        "_rep_last_token",
        "assigned_rank",
        "batch_id",
        "current_context_length",
        "custom_id",
        "decode_dp_group",
        "decoded_length",
        "decoded_tokens",
        "eos_reached",
        "evicted_token_ids",
        "finish_reason",
        "global_idx",
        "gpu_pages_allocated",
        "had_initial_gpu_reservation",
        "host_pages_allocated",
        "host_token_capacity",
        "input_ids",
        "kv_token_budget",
        "max_decode_length",
        "original_max_decode_length",
        "original_prompt_length",
        "pool_slot_index",
        "priority",
        "prompt_length",
        "reentry_decoded_baseline",
        "sampling_params",
        "status",
        "text",
        "total_decoded_before_eviction",
        "uuid",
    )

    def __init__(
        self,
        uuid: str,
        global_idx: int,
        prompt_length: int,
        max_decode_length: int,
        *,
        sampling_params: Any = None,
        priority: int = 0,
        batch_id: int = 0,
    ) -> None:
        """Raises ValueError for an empty prompt or a decode length below 1."""
        if prompt_length < 1 or max_decode_length < 1:
            raise ValueError(
                f"sequence {uuid}: prompt_length and max_decode_length must be at least 1, "
                f"got {prompt_length} and {max_decode_length}"
            )
        self.uuid = uuid
        self.global_idx = global_idx
        self.custom_id: str | None = None
        self.batch_id = batch_id
        self.priority = priority
        self.sampling_params = sampling_params
        self.status = SequenceStatus.QUEUEING
        self.assigned_rank: int | None = None
        self.decode_dp_group: int | None = None
        self.pool_slot_index = -1
        self._buffer_slot = -1

        self.prompt_length = prompt_length
        self.max_decode_length = max_decode_length
        self.original_prompt_length = prompt_length
        self.original_max_decode_length = max_decode_length
        self.decoded_length = 0
        self.current_context_length = prompt_length
        self.kv_token_budget = prompt_length + max_decode_length
        self.total_decoded_before_eviction = 0
        self.reentry_decoded_baseline = 0

        self.input_ids: Tensor | None = None
        self.decoded_tokens: Tensor | None = None
        self.evicted_token_ids: Tensor | None = None
        self.text = ""
        self.eos_reached = False
        self.finish_reason: str | None = None

        self.gpu_pages_allocated = 0
        self.had_initial_gpu_reservation = False
        self.host_token_capacity = 0
        self.host_pages_allocated = 0

        # None: off. A list: `SequenceBatch.update_status` appends every status reached; the index is that of
        # the first one not yet reported.
        self._lifespan_log: list[SequenceStatus] | None = None
        self._lifespan_idx = 0
        self._rep_last_token = -1
        self._rep_count = 0
        self._rep_detected = False

    def __repr__(self) -> str:
        return (
            f"SequenceEntry({self.uuid}, global_idx={self.global_idx}, {self.status.name}, "
            f"rank={self.assigned_rank}, context={self.current_context_length}, "
            f"decoded={self.decoded_length}, gpu_pages={self.gpu_pages_allocated}, "
            f"host_pages={self.host_pages_allocated})"
        )

    def get_gpu_pages_for_two_page_buffer(self) -> int:
        """GPU pages to reserve when the sequence is loaded: context and buffer, capped by the budget and by
        the host pages it owns. The buffer is INITIAL before the first reservation and EXTENSION after it, so
        that the value drops once `mark_initial_gpu_reservation` has been called: ask once per reservation."""
        buffer = EXTENSION_GPU_PAGE_BUFFER if self.had_initial_gpu_reservation else INITIAL_GPU_PAGE_BUFFER
        tokens = min(self.current_context_length + buffer * PAGE_SIZE, self.kv_token_budget)
        pages = pages_for_tokens(tokens)
        return min(pages, self.host_pages_allocated) if self.host_pages_allocated > 0 else pages

    def get_additional_gpu_pages_needed(self) -> int:
        """GPU pages to add at a boundary so that EXTENSION pages of headroom remain. Not capped by host
        pages: the host grows at the same boundary."""
        tokens = min(
            self.current_context_length + EXTENSION_GPU_PAGE_BUFFER * PAGE_SIZE, self.kv_token_budget
        )
        return max(0, pages_for_tokens(tokens) - self.gpu_pages_allocated)

    def needs_host_kv_growth(self) -> bool:
        """Whether the host headroom is down to the extension buffer. True as well at the budget, where
        `get_host_growth_pages` is 0."""
        return self.host_token_capacity - self.current_context_length <= EXTENSION_GPU_PAGE_BUFFER * PAGE_SIZE

    def get_host_growth_pages(self, chunk: int) -> int:
        """Host pages that a growth of `chunk` tokens adds, capped by the budget."""
        return max(0, pages_for_tokens(min(chunk, self.kv_token_budget - self.host_token_capacity)))

    def get_host_pages_for_initial_chunk(self, chunk: int) -> int:
        """Host pages of a (re-)prefill: `chunk` tokens beyond the prompt or the initial GPU reservation,
        whichever is more, capped by the budget."""
        reservation = (pages_for_tokens(self.prompt_length + 1) + INITIAL_GPU_PAGE_BUFFER) * PAGE_SIZE
        return pages_for_tokens(min(max(self.prompt_length + chunk, reservation), self.kv_token_budget))

    def mark_initial_gpu_reservation(self) -> None:
        self.had_initial_gpu_reservation = True

    def reset_gpu_allocation(self) -> None:
        """The GPU pool is gone: no pages, and the next load reserves the initial buffer again."""
        self.gpu_pages_allocated = 0
        self.had_initial_gpu_reservation = False

    def validate_metadata(self, owner: bool) -> list[str]:
        """Broken invariants, as sentences; empty when sound. `owner`: this rank holds the sequence's
        tensors."""
        return [f"sequence {self.uuid}: {problem}" for problem in self._broken_invariants(owner)]

    def _broken_invariants(self, owner: bool) -> Iterator[str]:
        gpu, host = self.gpu_pages_allocated, self.host_pages_allocated
        context, status = self.current_context_length, self.status
        if context != self.original_prompt_length + self.decoded_length:
            yield (
                f"current_context_length {context} != original_prompt_length {self.original_prompt_length} + "
                f"decoded_length {self.decoded_length}"
            )
        budget = self.original_prompt_length + self.original_max_decode_length
        if self.kv_token_budget != budget:
            yield f"kv_token_budget {self.kv_token_budget} != original prompt + original max decode = {budget}"
        if self.host_token_capacity != host * PAGE_SIZE:
            yield f"host_token_capacity {self.host_token_capacity} != {host} host pages of {PAGE_SIZE} tokens"
        if status == SequenceStatus.IN_DECODE and gpu * PAGE_SIZE < context:
            yield f"IN_DECODE with {gpu} GPU pages of {PAGE_SIZE} tokens for a context of {context}"
        if status == SequenceStatus.ON_HOLD and gpu != 0:
            yield f"ON_HOLD with {gpu} GPU pages"
        if status == SequenceStatus.EVICTED and not gpu == host == 0:
            yield f"EVICTED with {gpu} GPU pages and {host} host pages"
        if status == SequenceStatus.EVICTED and owner and self.evicted_token_ids is None:
            yield "EVICTED and the owner holds no evicted_token_ids"


class SequenceBatch:
    """All sequences of the job, with indexes by status and by rank.

    Status and rank must change through `update_status` and `assign_rank`: a direct write to the entry leaves
    the indexes behind, which `validate_indexes` reports. Lists come back sorted by global_idx, the same on
    every rank.
    """

    def __init__(self) -> None:
        self.sequences: dict[str, SequenceEntry] = {}
        self._status_index: dict[SequenceStatus, set[str]] = {status: set() for status in SequenceStatus}
        self._rank_index: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return len(self.sequences)

    def __iter__(self) -> Iterator[SequenceEntry]:
        return iter(self.sequences.values())

    def add_sequence(self, sequence: SequenceEntry) -> None:
        """Raises ValueError when the uuid is already there."""
        if sequence.uuid in self.sequences:
            raise ValueError(f"sequence {sequence.uuid} is already in the batch")
        self.sequences[sequence.uuid] = sequence
        self._status_index[sequence.status].add(sequence.uuid)
        if sequence.assigned_rank is not None:
            self._rank_index.setdefault(sequence.assigned_rank, set()).add(sequence.uuid)

    def remove_sequence(self, uuid: str) -> SequenceEntry:
        """Remove and return the entry; KeyError when unknown."""
        sequence = self.get_sequence(uuid)
        del self.sequences[uuid]
        self._status_index[sequence.status].discard(uuid)
        if sequence.assigned_rank is not None:
            self._rank_index.get(sequence.assigned_rank, set()).discard(uuid)
        return sequence

    def get_sequence(self, uuid: str) -> SequenceEntry:
        """KeyError when unknown."""
        try:
            return self.sequences[uuid]
        except KeyError:
            raise KeyError(f"no sequence {uuid} in this batch of {len(self.sequences)}") from None

    def has_sequence(self, uuid: str) -> bool:
        return uuid in self.sequences

    def has_status(self, status: SequenceStatus) -> bool:
        return bool(self._status_index[status])

    def update_status(self, uuid: str, status: SequenceStatus) -> None:
        """ValueError, changing nothing, when `ALLOWED_TRANSITIONS` does not have the step; KeyError when
        unknown."""
        sequence = self.get_sequence(uuid)
        if status not in ALLOWED_TRANSITIONS[sequence.status]:
            raise ValueError(
                f"Invalid status transition {sequence.status.name} → {status.name} for sequence {uuid}"
            )
        self._status_index[sequence.status].discard(uuid)
        self._status_index[status].add(uuid)
        sequence.status = status
        if sequence._lifespan_log is not None:
            sequence._lifespan_log.append(status)

    def assign_rank(self, uuid: str, rank: int) -> None:
        sequence = self.get_sequence(uuid)
        if sequence.assigned_rank is not None:
            self._rank_index.get(sequence.assigned_rank, set()).discard(uuid)
        self._rank_index.setdefault(rank, set()).add(uuid)
        sequence.assigned_rank = rank

    def get_sequences_by_status(self, status: SequenceStatus) -> list[SequenceEntry]:
        return self._sorted(self._status_index[status])

    def get_sequences_for_rank(self, rank: int) -> list[SequenceEntry]:
        return self._sorted(self._rank_index.get(rank, ()))

    def get_sequences_for_rank_with_status(self, rank: int, status: SequenceStatus) -> list[SequenceEntry]:
        return self._sorted(self._rank_index.get(rank, set()) & self._status_index[status])

    def all_completed(self) -> bool:
        return len(self._status_index[SequenceStatus.COMPLETED]) == len(self.sequences)

    def validate_indexes(self) -> list[str]:
        """Where indexes and entries disagree, as sentences; empty when sound."""
        problems: list[str] = []
        indexes = (
            ("status", self._status_index, {uuid: seq.status for uuid, seq in self.sequences.items()}),
            (
                "rank",
                self._rank_index,
                {u: s.assigned_rank for u, s in self.sequences.items() if s.assigned_rank is not None},
            ),
        )
        for name, index, actual in indexes:
            indexed = [(uuid, key) for key, uuids in index.items() for uuid in sorted(uuids)]
            for uuid, key in indexed:
                if uuid not in self.sequences:
                    problems.append(f"sequence {uuid} is gone but the {name} index has it under {key!r}")
                elif actual.get(uuid) != key:
                    problems.append(
                        f"sequence {uuid} has {name} {actual.get(uuid)!r} but the index has it under {key!r}"
                    )
            missing = actual.keys() - {uuid for uuid, _ in indexed}
            problems += [f"sequence {uuid} is missing from the {name} index" for uuid in sorted(missing)]
        by_idx: dict[int, str] = {}
        for sequence in self:
            other = by_idx.setdefault(sequence.global_idx, sequence.uuid)
            if other != sequence.uuid:
                problems.append(
                    f"sequences {other} and {sequence.uuid} share global_idx {sequence.global_idx}"
                )
        return problems

    def _sorted(self, uuids: Iterable[str]) -> list[SequenceEntry]:
        return sorted((self.sequences[uuid] for uuid in uuids), key=lambda sequence: sequence.global_idx)
