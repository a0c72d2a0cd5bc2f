"""What the step policy needs of the world around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO, Protocol

from batchgen.scheduler.quirks import Quirks
from batchgen.scheduler.sequences import RowEvent, SequenceState
from batchgen.scheduler.trace import Planned, StepTrace


class ReadbackKind(StrEnum):
    ARGMAX = "argmax"  # one token a row, chosen on the device
    HOST = "host"  # all logits, into the staging buffer


@dataclass(frozen=True, slots=True)
class Decode:
    """One launch: the input token of each row, and what is to come back."""

    tokens: tuple[int, ...]
    readback: ReadbackKind


@dataclass(frozen=True, slots=True)
class Ticket:
    """Claims the result of one launch."""

    number: int


@dataclass(frozen=True, slots=True)
class DecodeOutcome:
    """`tokens` for ARGMAX, one a row. For HOST the staging buffer holds [rows, vocab] in `itemsize` bytes a value:
    4 is float32, 2 bfloat16."""

    readback: ReadbackKind
    rows: int
    vocab: int
    itemsize: int
    tokens: tuple[int, ...] | None = None


class Device(Protocol):
    """Model, KV blocks and recurrent states. `block_size` tokens a block.

    `free_blocks` can be had at once; what only the prefix cache holds is not among them, but is taken as well
    where a row needs a block. `lost` (the fault latch): the device will not come back.
    """

    block_size: int
    vocab_size: int
    logits_are_fp32: bool

    @property
    def free_blocks(self) -> int: ...
    @property
    def total_blocks(self) -> int: ...
    @property
    def lost(self) -> bool: ...

    def launch(self, command: Decode, seqs: Sequence[SequenceState], staging: bytearray) -> Ticket:
        """Forward and readback of one token a row. Holds one unclaimed result.

        Blocks for all rows are reserved first; then the layers run; only then every row advances by its input token.

        Raises:
            KvExhausted: no block for a row. Blocks that earlier rows were given stay theirs; nothing advanced.
            ForwardError, ReadbackError, EffectError.
        """

    def wait(self, ticket: Ticket) -> DecodeOutcome:
        """The result. EffectError for a ticket that is not the held one."""

    def read_logits(self, ticket: Ticket, staging: bytearray) -> DecodeOutcome:
        """The logits of the launch that was last waited for, after all. ReadbackError."""

    def alloc_sequence(self) -> SequenceState:
        """An empty sequence with slots of its own. ForwardError where none is free."""

    def prefill(self, tokens: Sequence[int], seq: SequenceState) -> bytes | None:
        """Writes KV and state of `tokens` to an empty sequence; the logits of the last, float32 [vocab] as bytes.
        ForwardError, KvExhausted: the sequence is as it was."""

    def release(self, seq: SequenceState, *, cache: bool) -> None:
        """Frees blocks and slots and empties the table; with `cache` its full blocks are first offered to the
        prefix cache. EffectError for a sequence that holds nothing any more."""

    def reclaim(self, blocks: int) -> int:
        """Takes up to so many blocks back from the prefix cache; how many became free."""

    def save(self, seq: SequenceState, writer: BinaryIO) -> None:
        """KV blocks and recurrent state, as bytes. SpillError or OSError; the sequence stays as it is."""

    def restore(self, seq: SequenceState, reader: BinaryIO, num_blocks: int) -> None:
        """Blocks and state into an empty sequence; `tokens` and `seq_len` are put back by the caller. SpillError
        where the bytes are not those of a sequence of that size, ForwardError where no blocks are free."""


class Clock(Protocol):
    def now(self) -> float:
        """Seconds; never goes back."""


class Receiver(Protocol):
    """Where a request's tokens go."""

    def send(self, event: RowEvent) -> bool:
        """False: nobody listens any more."""


class Telemetry(Protocol):
    def count(self, name: str, by: int = 1) -> None: ...


class SpillIo(Protocol):
    """Where spilled sequences are kept."""

    def create(self) -> tuple[int, BinaryIO]:
        """An entry and its writer. SpillError: the budget is used up, or the directory cannot be written."""

    def open(self, swap_id: int) -> BinaryIO: ...
    def remove(self, swap_id: int) -> None: ...
    def record_usage(self, swap_id: int) -> None:
        """Closes the entry: what it takes counts against the budget from now on. SpillError: it is over it."""


class Ranks(Protocol):
    """The ranks that decode the same rows."""

    def agree(self, what: str, value: object) -> None:
        """Returns where all ranks hold the same `value`; RanksDisagree on every rank where they do not."""


class Grammar(Protocol):
    """The hook of constrained decoding; nothing here stands behind it."""

    def accept(self, token: int) -> None: ...
    def blocks_stop(self) -> bool: ...
    def is_terminated(self) -> bool: ...
    def only_token(self) -> int | None: ...
    def allows(self, token: int) -> bool: ...


@dataclass
class Scratch:
    """`host_bytes` is lent to a step, which puts the same object back."""

    host_bytes: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Levers:
    """Settings that change how, never what (docs/step.md)."""

    parallel_sampling: bool = False
    argmax_after_thinking: bool = True
    force_temp_zero: bool = False
    tool_response_stop: int | None = None
    #: Record what each token did to its row (`StepTrace.rows`).
    trace_rows: bool = False


@dataclass(frozen=True)
class Limits:
    max_batch: int = 64
    #: Longest sequence, 0: none.
    max_seq_len: int = 0
    preempt_immunity: int = 64


@dataclass(frozen=True)
class Watchdogs:
    """What ends, or closes the thinking of, a row that goes round in circles; lengths in tokens (docs/step.md).

    A loop is `*_repeats` equal copies of a period at the end of the outputs, looked for every `*_stride` tokens.
    A row with `repetition_detection` off has only those that are no search for repetitions.
    """

    enabled: bool = True
    think_loop_from: int = 48
    think_loop_stride: int = 8
    think_loop_periods: tuple[int, int] = (4, 20)
    think_loop_repeats: int = 3
    content_loop_from: int = 64
    content_loop_stride: int = 16
    content_loop_periods: tuple[int, int] = (3, 60)
    content_loop_repeats: int = 6
    #: Three near-copies of 15 to 40 tokens; each may differ in `length // this` tokens, in one at least.
    fuzzy_tolerance: int = 12
    #: This many thinking tokens in a row with a top probability of 0.95 and more, after `confident_from`, close it.
    confident_run: int = 30
    confident_from: int = 400
    #: Prose outside tool calls since the last one, for requests that ask for a tool. 0: no bound.
    inter_tool_prose: int = 4096
    #: Content of a constrained request.
    grammar_content: int = 100_000
    #: A tool call that is not closed; the values of its parameters do not count.
    tool_body: int = 4096


@dataclass(frozen=True)
class Vocabulary:
    """What the texts of tokens say: `sentence_end` and `mid_word` are the ids that end a sentence or line, or leave a
    word open; `texts` has one text an id."""

    sentence_end: frozenset[int]
    mid_word: frozenset[int]
    texts: Sequence[str]


@dataclass(frozen=True)
class Io:
    device: Device
    clock: Clock
    telemetry: Telemetry


@dataclass
class SchedCtx:
    """What a step works with.

    `record` is called with the StepTrace of each step, `planned` with each question that a planner was asked; None:
    none is made. `shutdown_requested`: the engine is to end, for the device is lost.
    """

    io: Io
    scratch: Scratch = field(default_factory=Scratch)
    levers: Levers = Levers()
    limits: Limits = Limits()
    watchdogs: Watchdogs = Watchdogs()
    #: None: every position may be the end of a sentence, none is inside a word.
    vocabulary: Vocabulary | None = None
    quirks: Quirks = field(default_factory=Quirks.corrected)
    ranks: Ranks | None = None
    record: Callable[[StepTrace], None] | None = None
    planned: Callable[[Planned], None] | None = None
    steps: int = 0
    shutdown_requested: bool = False

    def request_shutdown(self) -> None:
        self.shutdown_requested = True
