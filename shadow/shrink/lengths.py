"""The two lengths of a request that can be made smaller: what it asks for, and its prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shadow.shrink.scenario import Request

_LIMITS = ("max_tokens", "max_completion_tokens")


def _body(request: Request) -> Mapping[str, Any]:
    """Request lines hold their parameters under `body`, or (a bare form) beside the id."""
    body = request.get("body")
    return body if isinstance(body, dict) else request


def _with_body(request: Request, body: Mapping[str, Any]) -> Request:
    return {**request, "body": body} if isinstance(request.get("body"), dict) else body


def limit_of(request: Request) -> int | None:
    """max_tokens of a request, where it says so."""
    body = _body(request)
    for name in _LIMITS:
        if isinstance(body.get(name), int):
            return int(body[name])
    return None


def with_limit(request: Request, limit: int) -> Request:
    body = _body(request)
    changed = {name: limit for name in _LIMITS if name in body} or {"max_tokens": limit}
    return _with_body(request, {**body, **changed})


def prompt_length(request: Request) -> int | None:
    """Characters, or token ids, of what a request's prompt (its last message) says."""
    prompt = _prompt(_body(request))
    return None if prompt is None else len(prompt)


def with_prompt_length(request: Request, length: int) -> Request:
    """With the first `length` characters, or token ids."""
    body = _body(request)
    prompt = _prompt(body)
    assert prompt is not None
    if "prompt" in body:
        return _with_body(request, {**body, "prompt": prompt[:length]})
    *before, last = body["messages"]
    return _with_body(request, {**body, "messages": [*before, {**last, "content": prompt[:length]}]})


def _prompt(body: Mapping[str, Any]) -> str | list[int] | None:
    prompt = body.get("prompt")
    if isinstance(prompt, str | list):
        return prompt
    messages = body.get("messages")
    if isinstance(messages, list) and messages and isinstance(messages[-1].get("content"), str):
        return str(messages[-1]["content"])
    return None
