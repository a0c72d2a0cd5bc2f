"""The rows of the step policy: a sequence on the device, and a request that is active, spilled or requeued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchgen.sampling import TokenLogprob
    from batchgen.scheduler.ports import Grammar, Receiver


@dataclass(frozen=True)
class TokenIds:
    """The five special tokens of a model. None: it has none such, and the feature is inert."""

    think_end: int | None = None
    think_start: int | None = None
    code_fence: int | None = None
    tool_call_start: int | None = None
    tool_call_end: int | None = None


@dataclass(eq=False, slots=True)
class SequenceState:
    """What the device holds of one sequence.

    `slot_idx` names its KV slot, `ssm_slot` the row of its recurrent state (None for a model without). `tokens` are
    those whose KV is written, `seq_len` of them; `block_table` the pages that hold them, in order. `prompt_len` is
    how many of them the last prefill wrote.
    """

    slot_idx: int
    ssm_slot: int | None = None
    seq_len: int = 0
    tokens: list[int] = field(default_factory=list)
    block_table: list[int] = field(default_factory=list)
    prompt_len: int = 0

    @property
    def sort_key(self) -> int:
        return self.slot_idx if self.ssm_slot is None else self.ssm_slot


@dataclass(frozen=True, slots=True)
class RowSampling:
    """What a request asks of sampling. Temperature 0 is greedy; the defaults of all others change nothing.

    `penalty_window`: how many of the last history tokens penalties look at. `dry_*` and `lz_penalty` punish what
    would continue a repetition; `logit_bias` is added, by token id.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    top_n_sigma: float = 0.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 256
    lz_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0
    top_logprobs: int | None = None

    @property
    def is_neutral(self) -> bool:
        """Whether the logits reach the choice as the model gave them."""
        return not (
            self.repetition_penalty != 1.0
            or self.presence_penalty
            or self.frequency_penalty
            or self.lz_penalty
            or self.dry_multiplier
            or self.logit_bias
        )


@dataclass(eq=False, slots=True)
class Thinking:
    """Where a row is in its thinking. Budgets in tokens; None: without one."""

    inside: bool = False
    enabled: bool = False
    budget: int | None = None
    spontaneous_budget: int = 256
    tokens: int = 0
    force_end: bool = False
    force_closed: bool = False
    deferred: int = 0
    confident_run: int = 0
    in_code_fence: bool = False
    ended: bool = False
    just_ended: bool = False
    post_emitted: int = 0
    skip_count: int = 0
    watchdog_fires: int = 0


@dataclass(eq=False, slots=True)
class ToolCalls:
    """Where a row is in its tool calls and its content."""

    required: bool = False
    requested: bool = False
    tools_present: bool = False
    suppressed: bool = False
    opened: bool = False
    completed: bool = False
    opens_after_completion: int = 0
    inside_body: bool = False
    body_streak: int = 0
    inside_parameter: bool = False
    parameter_chars: int = 0
    parameter_close_pending: bool = False
    content_started: bool = False
    content_tokens: int = 0
    prose_since_last: int = 0


@dataclass(eq=False, slots=True)
class Adaptive:
    """What adaptive sampling has seen of a row (docs/step.md)."""

    low_entropy_run: int = 0
    lz_ratio: float = 1.0
    lz_checked_at: int = 0


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    TIMEOUT = "timeout"


@dataclass(eq=False, slots=True)
class ActiveSeq:
    """One request with its row. `last_token` is the input of the next step: sampled, its KV not yet written.

    The first `prompt_tokens` of its tokens are the prompt. `remaining` counts down from max_tokens. `immune_until`
    (preempt_immune_until_tokens): as long as it has fewer outputs, others are preempted first. Times are those of
    the scheduler's clock, in seconds. `grammar` is None but for constrained requests; it is a hook only.
    """

    request_id: str
    seq: SequenceState
    last_token: int
    remaining: int
    receiver: Receiver
    sampling: RowSampling
    ids: TokenIds = TokenIds()
    eos_tokens: frozenset[int] = frozenset()
    output_tokens: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    min_tokens: int = 0
    session_hash: int = 0
    adapter_id: str | None = None
    cached_prompt_tokens: int = 0
    thinking: Thinking = field(default_factory=Thinking)
    tools: ToolCalls = field(default_factory=ToolCalls)
    adaptive: Adaptive = field(default_factory=Adaptive)
    repetition_detection: bool = True
    honor_eos_inside_thinking: bool = True
    logprobs: list[TokenLogprob] = field(default_factory=list)
    #: Tokens chosen for this row so far, the dropped ones included: what the seed of a step counts.
    draws: int = 0
    immune_until: int = 0
    finished: bool = False
    #: Which guard ended the row, None: none did.
    guard_stop: str | None = None
    error: str | None = None
    cancelled: bool = False
    started_at: float = 0.0
    last_token_time: float = 0.0
    timeout_at: float | None = None
    timed_out: bool = False
    grammar: Grammar | None = None

    @property
    def num_blocks(self) -> int:
        return len(self.seq.block_table)


@dataclass(eq=False, slots=True)
class PreemptedSeq:
    """Requeued: nothing of it is on the device. `tokens` is what to prefill, without the pending `last_token`."""

    a: ActiveSeq
    tokens: list[int]


@dataclass(eq=False, slots=True)
class SwappedSeq:
    """Spilled: its KV pages and recurrent state are in the spill store under `swap_id`."""

    a: ActiveSeq
    tokens: list[int]
    seq_len: int
    num_blocks: int
    swap_id: int


@dataclass(frozen=True, slots=True)
class RowEvent:
    """What is sent to a request's receiver: "token" (with its id), "done" (with why) or "error" (with the text)."""

    kind: str
    token: int | None = None
    finish_reason: str | None = None
    text: str | None = None
    extra: Any = None
