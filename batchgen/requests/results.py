"""Result lines in the OpenAI batch format.

Everything in a line is a function of the request, the model and the options that change results: no clock, no
random id. Two runs write equal lines (in another order, perhaps), and the id of a line says what it was made
from: ``batch_req_`` + 8 digits of the options' fingerprint + 24 digits of the request's digest. A line that
never became a request has 8 zeros and the digest of its number and bytes.

A request that fails has a non-null ``error`` with code, message and line number of the input; where the line
was understood, ``response`` also has the HTTP status and an error body as the API would give it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from batchgen.requests.types import (
    CHAT_ENDPOINT,
    NO_STEP_PARAMS,
    GenerationRequest,
    GenerationResult,
    LineError,
)
from batchgen.sampling import TokenLogprob

ID_PREFIX = "batch_req_"
_NO_OPTIONS = "0" * 8
_LOWEST_LOGPROB = -9999.0  # JSON has no infinity; the API uses this value for an impossible token
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class RunIdentity:
    """The model and the options that decide what a request generates."""

    model: str
    model_source: str
    dtype: str
    seed: int
    row_exact: bool
    max_tokens_default: int
    policy: str = "boundary"
    adaptive_sampling: bool = False
    attention: str = "torch"
    attention_mode: str = "fast"

    @cached_property
    def fingerprint(self) -> str:
        """8 hex digits; part of every id, and of ``system_fingerprint``."""
        facts: tuple[Any, ...] = (
            self.model_source,
            self.dtype,
            self.seed,
            self.row_exact,
            self.max_tokens_default,
        )
        if self.policy != "boundary":
            facts += (self.policy, self.adaptive_sampling)
        if self.attention != "torch":
            facts += (self.attention, self.attention_mode)
        return hashlib.sha256(_encode(facts)).hexdigest()[:8]

    def request_id(self, request: GenerationRequest) -> str:
        """The id of the request's line in the results file."""
        facts: tuple[Any, ...] = (
            request.custom_id,
            request.endpoint,
            request.prompt,
            request.messages,
            request.sampling,
        )
        if request.step != NO_STEP_PARAMS:
            facts += (request.step,)
        return ID_PREFIX + self.fingerprint + hashlib.sha256(_encode(facts)).hexdigest()[:24]


def line_error_id(error: LineError) -> str:
    """The id of an error line: the request's own, where there was a request."""
    return (
        error.identity if error.identity.startswith(ID_PREFIX) else ID_PREFIX + _NO_OPTIONS + error.identity
    )


def fingerprint_of(line_id: str) -> str:
    """The options part of a result line's id."""
    return line_id.removeprefix(ID_PREFIX)[:8]


def render_error(error: LineError) -> bytes:
    """One line, newline included."""
    line_id = line_error_id(error)
    response = None
    if error.status is not None:
        body = {
            "error": {
                "message": error.message,
                "type": "invalid_request_error",
                "param": error.param,
                "code": error.code,
            }
        }
        response = {"status_code": error.status, "request_id": _suffixed("req_", line_id), "body": body}
    failure = {"code": error.code, "message": error.message, "line": error.line_number}
    return _line(line_id, error.custom_id, response, failure)


def render_result(
    request: GenerationRequest,
    line_id: str,
    result: GenerationResult,
    identity: RunIdentity,
    token_text: TokenText,
) -> bytes:
    """One line, newline included; a result whose finish_reason is "error" becomes an error line."""
    if result.finish_reason == "error":
        message = result.detail or "the engine gave no reason"
        return render_error(
            LineError(request.line_number, request.custom_id, "cannot_run", message, 400, line_id)
        )
    chat = request.endpoint == CHAT_ENDPOINT
    choice: dict[str, Any] = {"index": 0}
    if chat:
        choice["message"] = _message(line_id, result)
    else:
        choice["text"] = result.text
    choice["logprobs"] = None
    if result.logprobs is not None:
        choice["logprobs"] = (_chat_logprobs if chat else _completion_logprobs)(result.logprobs, token_text)
    choice["finish_reason"] = result.finish_reason
    generated = len(result.token_ids)
    body = {
        "id": _suffixed("chatcmpl-" if chat else "cmpl-", line_id),
        "object": "chat.completion" if chat else "text_completion",
        "created": 0,
        "model": identity.model,
        "system_fingerprint": f"fp_{identity.fingerprint}",
        "choices": [choice],
        "usage": {
            "prompt_tokens": result.prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": result.prompt_tokens + generated,
        },
        "batchgen": {"token_ids": result.token_ids, "finish_detail": result.detail},
    }
    response = {"status_code": 200, "request_id": _suffixed("req_", line_id), "body": body}
    return _line(line_id, request.custom_id, response, None)


def _message(line_id: str, result: GenerationResult) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": result.text, "refusal": None}
    if result.reasoning is not None:
        message["reasoning_content"] = result.reasoning
    if result.tool_calls:
        message["content"] = result.text or None
        message["tool_calls"] = [
            {
                "id": _suffixed("call_", line_id) + f"_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(result.tool_calls)
        ]
    return message


class TokenText:
    """The text of single tokens, remembered. A token that is no text by itself (a part of a character) is
    shown as ``token_id:N``, and has no bytes."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._known: dict[int, str] = {}

    def __call__(self, token_id: int) -> str:
        if token_id not in self._known:
            text = self._decode([token_id])
            self._known[token_id] = f"token_id:{token_id}" if "\ufffd" in text else text
        return self._known[token_id]

    def entry(self, token_id: int, logprob: float) -> dict[str, Any]:
        """token, logprob and bytes, as the chat API has them."""
        text = self(token_id)
        known = text != f"token_id:{token_id}"
        return {"token": text, "logprob": _finite(logprob), "bytes": list(text.encode()) if known else None}


def _chat_logprobs(logprobs: tuple[TokenLogprob, ...], token_text: TokenText) -> dict[str, Any]:
    content = [
        token_text.entry(item.token_id, item.logprob)
        | {"top_logprobs": [token_text.entry(token, value) for token, value in item.top]}
        for item in logprobs
    ]
    return {"content": content, "refusal": None}


def _completion_logprobs(logprobs: tuple[TokenLogprob, ...], token_text: TokenText) -> dict[str, Any]:
    tokens = [token_text(item.token_id) for item in logprobs]
    offsets = [0]
    for token in tokens:
        offsets.append(offsets[-1] + len(token))
    return {
        "tokens": tokens,
        "token_logprobs": [_finite(item.logprob) for item in logprobs],
        "top_logprobs": [
            {token_text(token): _finite(value) for token, value in item.top} for item in logprobs
        ],
        "text_offset": offsets[:-1],
    }


def _finite(logprob: float) -> float:
    return max(logprob, _LOWEST_LOGPROB)


def _suffixed(prefix: str, line_id: str) -> str:
    return prefix + line_id.removeprefix(ID_PREFIX)


def _line(
    line_id: str, custom_id: str | None, response: dict[str, Any] | None, error: dict[str, Any] | None
) -> bytes:
    return _encode({"id": line_id, "custom_id": custom_id, "response": response, "error": error}) + b"\n"
