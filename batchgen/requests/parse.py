"""Request lines in the OpenAI batch format, decoded and checked.

What is understood: ``/v1/chat/completions`` (messages of role system, developer, user, assistant, content a
string or a list of text parts, which are joined by newlines) and ``/v1/completions`` (prompt a string or a
list of token ids), with the fields of the body structs below. What happens to other fields of a body:

- ``IGNORED`` fields do not change the text and are dropped;
- ``NEUTRAL`` fields are accepted with a value that asks for nothing (``n: 1``, ``stream: false``);
- so are, under the boundary policy, those of ``step_fields``: only the step policy can do what they ask for;
- a field that is null counts as absent;
- anything else is refused, because dropping it would change what the line means.

Omitted ``temperature`` means 0: the most likely token, always. Omitted ``seed`` is derived from the run's
seed and the custom_id, so that a sampled run repeats exactly and equal prompts still differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from batchgen.requests.step_fields import CHAT_ONLY, STEP_FIELDS, StepBody, problem_of, step_params
from batchgen.requests.types import CHAT_ENDPOINT, COMPLETIONS_ENDPOINT, GenerationRequest, LineError
from batchgen.sampling import SamplingParams

IGNORED = frozenset(
    (
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
    )
)
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "stream": (False,),
    "echo": (False,),
    "suffix": ("",),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
}

_Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Positive = Annotated[int, Meta(ge=1)]
_TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
_StopString = Annotated[str, Meta(min_length=1)]


class _Part(Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class _Message(Struct, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[_Part], Meta(min_length=1)]
    name: str | None = None
    refusal: None = None
    annotations: Annotated[list[Any], Meta(max_length=0)] | None = None


class _Body(StepBody, forbid_unknown_fields=True, kw_only=True):
    model: str | None = None
    max_tokens: _Positive | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    stop: _StopString | Annotated[list[_StopString], Meta(max_length=4)] = msgspec.field(default_factory=list)
    seed: _Int64 | UnsetType = UNSET
    ignore_eos: bool = False


class _ChatBody(_Body, kw_only=True):
    messages: Annotated[list[_Message], Meta(min_length=1)]
    max_completion_tokens: _Positive | None = None
    logprobs: bool = False
    top_logprobs: _TopLogprobs = 0


class _CompletionBody(_Body, kw_only=True):
    prompt: str | Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)]
    logprobs: _TopLogprobs | None = None


class _Line(Struct):
    custom_id: Annotated[str, Meta(min_length=1)]
    url: str
    body: dict[str, Any]
    method: str = "POST"


class _CustomId(Struct):
    custom_id: str | None = None


_AnyBody = TypeVar("_AnyBody", bound=_Body)
_LINE = msgspec.json.Decoder(_Line)
_CUSTOM_ID = msgspec.json.Decoder(_CustomId)


@dataclass(frozen=True)
class RequestDefaults:
    """What a line that does not say gets, the model names that a line may say (None: any), and the policy that the
    requests run under: it decides what they may ask for."""

    max_tokens: int = 128
    seed: int = 0
    models: frozenset[str] | None = None
    policy: str = "boundary"


class _Refused(ValueError):
    def __init__(
        self, code: str, message: str, *, status: int | None = 400, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.status, self.param = code, status, param


def parse_requests(
    lines: Iterable[bytes], defaults: RequestDefaults
) -> tuple[tuple[GenerationRequest, ...], tuple[LineError, ...]]:
    """Decode the lines of a requests file, in order; blank lines are skipped, line numbers start at 1.

    A second line with a custom_id already used becomes an error that names both lines; the first one runs.
    """
    requests: list[GenerationRequest] = []
    errors: list[LineError] = []
    first_use: dict[str, int] = {}
    for number, raw in enumerate(lines, 1):
        text = raw.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else raw.strip()
        if not text:
            continue
        parsed = parse_line(text, number, defaults)
        custom_id = parsed.custom_id
        if custom_id is not None and first_use.setdefault(custom_id, number) != number:
            message = (
                f"custom_id {custom_id!r} of line {number} is already used by line {first_use[custom_id]}"
            )
            parsed = LineError(
                number, custom_id, "duplicate_custom_id", message, 400, _identity(number, text)
            )
        if isinstance(parsed, LineError):
            errors.append(parsed)
        else:
            requests.append(parsed)
    return tuple(requests), tuple(errors)


def parse_line(raw: bytes, line_number: int, defaults: RequestDefaults) -> GenerationRequest | LineError:
    """One line, decoded and checked; what is wrong with it is returned, not raised."""
    custom_id: str | None = None
    try:
        line = _decode_envelope(raw)
        custom_id = line.custom_id
        return _build(line, line_number, defaults)
    except _Refused as refused:
        if custom_id is None:
            custom_id = _custom_id_of(raw)
        return LineError(
            line_number,
            custom_id,
            refused.code,
            str(refused),
            refused.status,
            _identity(line_number, raw),
            refused.param,
        )


def _decode_envelope(raw: bytes) -> _Line:
    try:
        line = _LINE.decode(raw)
    except msgspec.ValidationError as error:
        raise _Refused("invalid_line", f"not a batch request: {error}", status=None) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Refused("invalid_json", f"not valid JSON: {error}", status=None) from error
    if line.method != "POST":
        raise _Refused("invalid_method", f"method is {line.method!r}; only 'POST' is known", param="method")
    if line.url not in (CHAT_ENDPOINT, COMPLETIONS_ENDPOINT):
        message = f"url is {line.url!r}; known are {CHAT_ENDPOINT!r} and {COMPLETIONS_ENDPOINT!r}"
        raise _Refused("invalid_url", message, status=404, param="url")
    return line


def _build(line: _Line, line_number: int, defaults: RequestDefaults) -> GenerationRequest:
    fields = _meaningful_fields(line.body, defaults.policy)
    prompt: str | tuple[int, ...] | None = None
    messages: tuple[Mapping[str, str], ...] | None = None
    body: _ChatBody | _CompletionBody
    if line.url == CHAT_ENDPOINT:
        body = chat = _convert(fields, _ChatBody)
        messages = tuple(_message(m) for m in chat.messages)
        limit, logprobs, top = chat.max_completion_tokens or chat.max_tokens, chat.logprobs, chat.top_logprobs
        if top and not logprobs:
            raise _Refused("invalid_body", "top_logprobs needs logprobs: true", param="top_logprobs")
        if chat.max_tokens is not None and limit != chat.max_tokens:
            message = "max_tokens and max_completion_tokens are both given and differ"
            raise _Refused("invalid_body", message, param="max_tokens")
    else:
        body = completion = _convert(fields, _CompletionBody)
        prompt = completion.prompt if isinstance(completion.prompt, str) else tuple(completion.prompt)
        limit, logprobs, top = (
            completion.max_tokens,
            completion.logprobs is not None,
            completion.logprobs or 0,
        )
    if body.model is not None and defaults.models is not None and body.model not in defaults.models:
        message = f"model {body.model!r} is not the one of this run ({', '.join(sorted(defaults.models))})"
        raise _Refused("model_not_found", message, status=404, param="model")
    max_tokens = limit or defaults.max_tokens
    problem = problem_of(body, max_tokens)
    if problem is not None:
        raise _Refused("invalid_body", problem[1], param=problem[0])
    sampling = SamplingParams(
        temperature=body.temperature,
        top_p=body.top_p,
        max_tokens=max_tokens,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop),
        seed=body.seed if isinstance(body.seed, int) else derived_seed(defaults.seed, line.custom_id),
        logprobs=logprobs,
        top_logprobs=top,
        ignore_eos=body.ignore_eos,
    )
    return GenerationRequest(
        custom_id=line.custom_id,
        line_number=line_number,
        endpoint=line.url,
        prompt=prompt,
        messages=messages,
        sampling=sampling,
        model=body.model,
        max_tokens_given=limit is not None,
        step=step_params(body),
    )


def _meaningful_fields(body: Mapping[str, Any], policy: str) -> dict[str, Any]:
    fields = {}
    neutral = NEUTRAL if policy == "step" else NEUTRAL | STEP_FIELDS
    for name, value in body.items():
        if name in neutral:
            if value is not None and value not in neutral[name]:
                shown = msgspec.json.encode(value).decode()
                why = "needs --policy step" if name in STEP_FIELDS else "is not supported"
                raise _Refused("unsupported_field", f"{name}: {shown[:80]} {why}; leave it out", param=name)
        elif value is not None and name not in IGNORED:
            fields[name] = value
    return fields


def _convert(fields: dict[str, Any], kind: type[_AnyBody]) -> _AnyBody:
    for name in fields:
        known = kind.__struct_fields__
        if name not in known or (kind is _CompletionBody and name in CHAT_ONLY):
            message = f"{name} is not supported; leaving it out silently would change what the request means"
            raise _Refused("unsupported_field", message, param=name)
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise _Refused("invalid_body", f"body: {error}") from error


def _message(message: _Message) -> dict[str, str]:
    content = (
        message.content if isinstance(message.content, str) else "\n".join(p.text for p in message.content)
    )
    return {"role": "system" if message.role == "developer" else message.role, "content": content}


def derived_seed(run_seed: int, custom_id: str) -> int:
    """The 63-bit seed of a request that names none."""
    return int.from_bytes(hashlib.sha256(f"{run_seed}:{custom_id}".encode()).digest()[:8]) >> 1


def _custom_id_of(raw: bytes) -> str | None:
    """The custom_id of a line that is not a request, where it has a readable one."""
    try:
        return _CUSTOM_ID.decode(raw).custom_id or None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _identity(line_number: int, raw: bytes) -> str:
    return hashlib.sha256(b"%d:%b" % (line_number, raw)).hexdigest()[:24]
