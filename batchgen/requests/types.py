"""The values that pass between request lines, the worker and result lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchgen.sampling import SamplingParams, TokenLogprob

CHAT_ENDPOINT = "/v1/chat/completions"
COMPLETIONS_ENDPOINT = "/v1/completions"


@dataclass(frozen=True)
class StepParams:
    """What a request may ask of the step policy alone; the defaults ask for nothing.

    `tools` are function definitions as the API has them; `tool_choice` is "auto", "none" or "required".
    `enable_thinking` None leaves it to the model's template. `thinking_budget` counts tokens. `timeout` is in seconds
    from the start of the run.
    """

    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    enable_thinking: bool | None = None
    thinking_budget: int | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str = "auto"
    timeout: float | None = None


NO_STEP_PARAMS = StepParams()


@dataclass(frozen=True)
class GenerationRequest:
    """One valid line of a requests file. Exactly one of ``prompt`` and ``messages`` is set."""

    custom_id: str
    line_number: int
    endpoint: str
    prompt: str | tuple[int, ...] | None
    messages: tuple[Mapping[str, str], ...] | None
    sampling: SamplingParams
    model: str | None
    max_tokens_given: bool = True
    step: StepParams = NO_STEP_PARAMS


@dataclass(frozen=True)
class LineError:
    """A line that cannot run. ``status`` is the HTTP status of a request that was understood but refused;
    None for a line that is not a request at all. ``identity`` names the line in the results file."""

    line_number: int
    custom_id: str | None
    code: str
    message: str
    status: int | None
    identity: str
    param: str | None = None


@dataclass(frozen=True)
class TokenizedRequest:
    """What the worker needs of a request."""

    custom_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    step: StepParams = NO_STEP_PARAMS


@dataclass(frozen=True)
class ToolCall:
    """A call that the model made; ``arguments`` is JSON."""

    name: str
    arguments: str


@dataclass(frozen=True)
class GenerationResult:
    """What the worker gives back.

    ``finish_reason``: "stop", "length" or "error"; under the step policy also "tool_calls", "timeout" and
    "cancelled". ``detail``: "eos", "stop_string", "repetition", "max_tokens", the guard that ended it, or the text of
    the error. ``logprobs``: one entry per token id, where the request asked for them. ``reasoning``: what the model
    thought before ``text``.
    """

    custom_id: str
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str
    prompt_tokens: int
    logprobs: tuple[TokenLogprob, ...] | None
    detail: str | None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class WorkerProgress:
    """Where a batch stands. Tokens count since the worker was built, requests of this batch, pages of this
    rank (GPU) and of its node (host)."""

    generated_tokens: int
    prompt_tokens: int
    completed: int
    total: int
    running: int
    queued: int
    on_hold: int
    gpu_pages_used: int
    gpu_pages_total: int
    host_pages_used: int
    host_pages_total: int


class RunError(RuntimeError):
    """A run that cannot go on; the message is one line for the user."""

    exit_code = 2


class UsageError(RunError):
    """The options cannot work together, or not here."""

    exit_code = 64


class AgreedUsageError(UsageError):
    """One that every rank has raised alike: it is of none in particular."""


class RequestsUnreadableError(RunError):
    exit_code = 66


class OutputConflictError(RunError):
    """The results file holds lines of other requests or of other options."""

    exit_code = 65


class OutputError(RunError):
    """The results file cannot be written."""

    exit_code = 74


class OutputBusyError(RunError):
    """Another process is writing the results file."""

    exit_code = 75
