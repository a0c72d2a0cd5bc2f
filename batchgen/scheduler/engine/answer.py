"""A finished reply as the result that its request gets."""

from __future__ import annotations

import json
from collections.abc import Sequence

from batchgen.models import Tokenizer
from batchgen.requests.types import GenerationResult, TokenizedRequest, ToolCall
from batchgen.scheduler.engine.reply import Reply
from batchgen.scheduler.sequences import ActiveSeq, FinishReason

CANCELLED = "cancelled"


def answer(request: TokenizedRequest, reply: Reply, tokenizer: Tokenizer, context: int) -> GenerationResult:
    """The reply has its row and its end. `context`: tokens that the model takes."""
    row, end = reply.row, reply.end
    assert row is not None and end is not None
    if end.kind == "error":
        return failure(request, end.text or "the engine gave no reason")
    reason, detail = _reason(reply, row, end.finish_reason or "", context)
    content = reply.content
    calls: tuple[ToolCall, ...] = ()
    if request.step.tools:
        content, calls = _split_calls(reply.content, row, tokenizer)
    text = tokenizer.decode(content)
    return GenerationResult(
        custom_id=request.custom_id,
        token_ids=tuple(row.output_tokens),
        text=reply.stops.cut(text) if reply.stopped else text,
        finish_reason=reason,
        prompt_tokens=len(request.prompt_token_ids),
        logprobs=tuple(row.logprobs) if request.sampling.logprobs else None,
        detail=detail,
        reasoning=tokenizer.decode(reply.reasoning) if reply.reasoning else None,
        tool_calls=calls,
    )


def failure(request: TokenizedRequest, why: str) -> GenerationResult:
    prompt = len(request.prompt_token_ids)
    return GenerationResult(request.custom_id, (), "", "error", prompt, None, why)


def _reason(reply: Reply, row: ActiveSeq, reason: str, context: int) -> tuple[str, str]:
    """(what the API calls it, what exactly ended the row)."""
    if row.cancelled:
        return CANCELLED, CANCELLED
    if reply.stopped:
        return str(FinishReason.STOP), "stop_string"
    if reason == FinishReason.STOP:
        return str(reason), "eos"
    if reason == FinishReason.LENGTH:
        return str(reason), _ceiling(row, context)
    return str(reason), str(reason)


def _ceiling(row: ActiveSeq, context: int) -> str:
    """What a row has come up against. The pool, where dropped tokens made it longer than its budget said."""
    if row.guard_stop is not None:
        return str(row.guard_stop)
    if row.remaining == 0:
        return "max_tokens"
    return "context" if row.seq.seq_len + 1 >= context else "kv_pool"


def _split_calls(
    tokens: Sequence[int], row: ActiveSeq, tokenizer: Tokenizer
) -> tuple[list[int], tuple[ToolCall, ...]]:
    """The content without its tool calls, and these. What is between the tokens of a call and no call stays."""
    content: list[int] = []
    calls: list[ToolCall] = []
    opened: int | None = None
    for token in tokens:
        content.append(token)
        if token == row.ids.tool_call_start:
            opened = len(content)
        elif token == row.ids.tool_call_end and opened is not None:
            call = _parse_call(tokenizer.decode(content[opened:-1]))
            if call is not None:
                calls.append(call)
                del content[opened - 1 :]
            opened = None
    return content, tuple(calls)


def _parse_call(body: str) -> ToolCall | None:
    try:
        call = json.loads(body)
    except ValueError:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", {})
    return ToolCall(call["name"], arguments if isinstance(arguments, str) else json.dumps(arguments))
