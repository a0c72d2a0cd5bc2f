"""From a request to the row that it becomes."""

from __future__ import annotations

from batchgen.models import Tokenizer
from batchgen.requests.types import StepParams, TokenizedRequest
from batchgen.sampling import SamplingParams
from batchgen.scheduler.ports import Receiver
from batchgen.scheduler.sequences import (
    ActiveSeq,
    RowSampling,
    SequenceState,
    Thinking,
    TokenIds,
    ToolCalls,
)

#: The row of a request that has not started holds no slot.
NO_SLOT = -1
#: A template that opens a thinking block may write this many more tokens behind it, such as a newline.
_AFTER_THINK_START = 2


def token_ids_of(tokenizer: Tokenizer) -> TokenIds:
    known = tokenizer.special_tokens
    return TokenIds(
        think_end=known.get("</think>"),
        think_start=known.get("<think>"),
        code_fence=known.get("```"),
        tool_call_start=known.get("<tool_call>"),
        tool_call_end=known.get("</tool_call>"),
    )


def new_row(
    request: TokenizedRequest,
    receiver: Receiver,
    ids: TokenIds,
    eos_tokens: frozenset[int],
    now: float,
) -> ActiveSeq:
    """`now`: the scheduler's clock; a time-out counts from it."""
    asked, step = request.sampling, request.step
    return ActiveSeq(
        request_id=request.custom_id,
        seq=SequenceState(NO_SLOT),
        last_token=request.prompt_token_ids[-1] if request.prompt_token_ids else 0,
        remaining=asked.max_tokens,
        receiver=receiver,
        sampling=_sampling(asked, step),
        ids=ids,
        eos_tokens=frozenset() if asked.ignore_eos else eos_tokens,
        prompt_tokens=len(request.prompt_token_ids),
        min_tokens=step.min_tokens,
        thinking=_thinking(request, ids),
        tools=_tools(step),
        started_at=now,
        timeout_at=None if step.timeout is None else now + step.timeout,
    )


def _sampling(asked: SamplingParams, step: StepParams) -> RowSampling:
    return RowSampling(
        temperature=asked.temperature,
        top_k=step.top_k,
        top_p=asked.top_p,
        min_p=step.min_p,
        repetition_penalty=step.repetition_penalty,
        presence_penalty=step.presence_penalty,
        frequency_penalty=step.frequency_penalty,
        logit_bias=dict(step.logit_bias),
        seed=asked.seed,
        top_logprobs=asked.top_logprobs if asked.logprobs else None,
    )


def _thinking(request: TokenizedRequest, ids: TokenIds) -> Thinking:
    """A prompt that ends with an open block has the row begin inside it, unless the request forbids thinking."""
    wanted = request.step.enable_thinking
    tail = request.prompt_token_ids[-1 - _AFTER_THINK_START :]
    opened = ids.think_start is not None and ids.think_start in tail and ids.think_end not in tail
    inside = opened and wanted is not False
    enabled = inside if wanted is None else wanted
    return Thinking(inside=inside, enabled=enabled, budget=request.step.thinking_budget)


def _tools(step: StepParams) -> ToolCalls:
    offered = bool(step.tools) and step.tool_choice != "none"
    return ToolCalls(
        required=step.tool_choice == "required",
        requested=offered,
        tools_present=offered,
        suppressed=bool(step.tools) and step.tool_choice == "none",
    )
