"""Requests turned into token ids, and checked against the model's context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from batchgen.requests.types import GenerationRequest, LineError, StepParams, TokenizedRequest


class TextEncoder(Protocol):
    """The part of a tokenizer that requests need."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def special_tokens(self) -> dict[str, int]: ...

    def encode(self, text: str) -> list[int]: ...

    def encode_chat(self, messages: list[dict[str, str]], **variables: Any) -> list[int]:
        """`variables`: what a request gives the template beside its messages, such as tools."""


def prepare_request(
    request: GenerationRequest, identity: str, tokenizer: TextEncoder, context_length: int
) -> TokenizedRequest | LineError:
    """The prompt's token ids, or why the model cannot take it.

    A request that names max_tokens must fit into ``context_length`` with all of them; one that does not gets
    at most what is left of it.
    """

    def refuse(code: str, message: str, param: str) -> LineError:
        return LineError(request.line_number, request.custom_id, code, message, 400, identity, param)

    field = "prompt" if request.messages is None else "messages"
    try:
        ids = _encode(request, tokenizer)
    except ValueError as error:
        return refuse("invalid_prompt", f"{field} cannot be turned into tokens: {error}", field)
    if not ids:
        return refuse("invalid_prompt", f"{field} is empty: the model needs at least one token", field)
    if (missing := _missing_tokens(request.step, tokenizer)) is not None:
        return refuse("unsupported_field", f"{missing[0]}: this model has no {missing[1]} token", missing[0])
    if (largest := max(ids)) >= tokenizer.vocab_size:
        message = f"token id {largest} is outside of the vocabulary of {tokenizer.vocab_size}"
        return refuse("invalid_prompt", message, field)
    if (biased := max((token for token, _ in request.step.logit_bias), default=0)) >= tokenizer.vocab_size:
        message = f"logit_bias: token id {biased} is outside of the vocabulary of {tokenizer.vocab_size}"
        return refuse("invalid_body", message, "logit_bias")
    sampling = request.sampling
    room = context_length - len(ids)
    if room < (sampling.max_tokens if request.max_tokens_given else 1):
        named = f"s and max_tokens {sampling.max_tokens} do" if request.max_tokens_given else "s does"
        message = f"a prompt of {len(ids)} token{named} not fit into the model's context of {context_length}"
        return refuse("context_length_exceeded", message, field if room < 1 else "max_tokens")
    return TokenizedRequest(
        request.custom_id,
        tuple(ids),
        replace(sampling, max_tokens=min(sampling.max_tokens, room)),
        request.step,
    )


def _encode(request: GenerationRequest, tokenizer: TextEncoder) -> Sequence[int]:
    if request.messages is not None:
        variables: dict[str, Any] = {}
        if request.step.tools:
            variables["tools"] = list(request.step.tools)
        if request.step.enable_thinking is not None:
            variables["enable_thinking"] = request.step.enable_thinking
        return tokenizer.encode_chat([dict(message) for message in request.messages], **variables)
    if isinstance(request.prompt, str):
        return tokenizer.encode(request.prompt)
    return request.prompt or ()


def _missing_tokens(step: StepParams, tokenizer: TextEncoder) -> tuple[str, str] | None:
    """(field, token) of what a request asks for and this model cannot say."""
    known = tokenizer.special_tokens
    if step.tools and "<tool_call>" not in known:
        return "tools", "<tool_call>"
    if step.enable_thinking and "</think>" not in known:
        return "enable_thinking", "</think>"
    return None
