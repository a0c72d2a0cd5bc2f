"""The fields of a request body that only the step policy can honour."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from batchgen.requests.types import StepParams

#: Field -> the values that ask for nothing, with which the boundary policy takes a request all the same.
STEP_FIELDS: dict[str, tuple[Any, ...]] = {
    "top_k": (0, -1),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "min_tokens": (0,),
    "timeout": (),
    "enable_thinking": (),
    "thinking_budget": (),
    "chat_template_kwargs": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
}

CHAT_ONLY = frozenset(("enable_thinking", "thinking_budget", "chat_template_kwargs", "tools", "tool_choice"))

_Penalty = Annotated[float, Meta(ge=-2, le=2)]
_Bias = Annotated[float, Meta(ge=-100, le=100)]
_TokenId = Annotated[str, Meta(pattern="^[0-9]+$")]


class Function(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Struct, forbid_unknown_fields=True):
    type: Literal["function"]
    function: Function


class TemplateArguments(Struct, forbid_unknown_fields=True):
    enable_thinking: bool | None = None


class StepBody(Struct, kw_only=True):
    """The fields themselves; those of `CHAT_ONLY` make no sense in a completion."""

    top_k: Annotated[int, Meta(ge=-1)] = 0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] = 1.0
    presence_penalty: _Penalty = 0.0
    frequency_penalty: _Penalty = 0.0
    logit_bias: dict[_TokenId, _Bias] = msgspec.field(default_factory=dict)
    min_tokens: Annotated[int, Meta(ge=0)] = 0
    timeout: Annotated[float, Meta(gt=0)] | None = None
    enable_thinking: bool | None = None
    thinking_budget: Annotated[int, Meta(ge=1)] | None = None
    chat_template_kwargs: TemplateArguments | None = None
    tools: list[Tool] = msgspec.field(default_factory=list)
    tool_choice: Literal["auto", "none", "required"] = "auto"

    def wants_thinking(self) -> bool | None:
        asked = self.chat_template_kwargs
        if asked is not None and self.enable_thinking is None:
            return asked.enable_thinking
        return self.enable_thinking


def problem_of(body: StepBody, max_tokens: int) -> tuple[str, str] | None:
    """(the field, what is wrong with it) where fields do not go together."""
    if body.min_tokens > max_tokens:
        return "min_tokens", f"min_tokens {body.min_tokens} is more than max_tokens {max_tokens}"
    if body.tool_choice == "required" and not body.tools:
        return "tool_choice", 'tool_choice: "required" needs tools'
    asked = body.chat_template_kwargs
    if asked is not None and None not in (asked.enable_thinking, body.enable_thinking):
        if asked.enable_thinking != body.enable_thinking:
            message = "enable_thinking and chat_template_kwargs.enable_thinking are both given and differ"
            return "enable_thinking", message
    if body.thinking_budget is not None and not body.wants_thinking():
        return "thinking_budget", "thinking_budget needs enable_thinking: true"
    return None


def step_params(body: StepBody) -> StepParams:
    return StepParams(
        top_k=max(body.top_k, 0),
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=tuple(sorted((int(token), bias) for token, bias in body.logit_bias.items())),
        min_tokens=body.min_tokens,
        timeout=body.timeout,
        enable_thinking=body.wants_thinking(),
        thinking_budget=body.thinking_budget,
        tools=tuple(_plain(tool) for tool in body.tools),
        tool_choice=body.tool_choice,
    )


def _plain(tool: Tool) -> dict[str, Any]:
    """As templates expect it: without what was not given."""
    function = {
        name: value for name, value in msgspec.structs.asdict(tool.function).items() if value is not None
    }
    return {"type": tool.type, "function": function}
