"""Result lines: the OpenAI shapes, and nothing in them that two runs would not share."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from batchgen.requests import (
    CHAT_ENDPOINT,
    COMPLETIONS_ENDPOINT,
    GenerationRequest,
    GenerationResult,
    LineError,
    RunIdentity,
    StepParams,
    TokenText,
    ToolCall,
    render_error,
    render_result,
)
from batchgen.sampling import SamplingParams, TokenLogprob
from tests.batchgen.requests.fake_worker import FakeTokenizer

IDENTITY = RunIdentity("tiny", "tiny", "float32", 0, False, 128)
CHAT = GenerationRequest(
    "a", 3, CHAT_ENDPOINT, None, ({"role": "user", "content": "hi"},), SamplingParams(), None
)
TEXT = GenerationRequest("a", 3, COMPLETIONS_ENDPOINT, "hi", None, SamplingParams(), None)
LOGPROBS = (TokenLogprob(72, -0.5, ((72, -0.5), (73, -1.5))), TokenLogprob(200, float("-inf"), ()))
RESULT = GenerationResult("a", (72, 200), "H�", "length", 5, None, "max_tokens")


def render(request: GenerationRequest, result: GenerationResult = RESULT) -> dict[str, Any]:
    raw = render_result(
        request, IDENTITY.request_id(request), result, IDENTITY, TokenText(FakeTokenizer().decode)
    )
    assert raw.endswith(b"}\n") and raw.count(b"\n") == 1
    line: dict[str, Any] = json.loads(raw)
    assert list(line) == ["id", "custom_id", "response", "error"]
    return line


def test_a_chat_result_is_a_chat_completion() -> None:
    line = render(CHAT)
    digest = line["id"].removeprefix("batch_req_")
    assert line["custom_id"] == "a" and line["error"] is None
    assert line["response"] == {
        "status_code": 200,
        "request_id": f"req_{digest}",
        "body": {
            "id": f"chatcmpl-{digest}",
            "object": "chat.completion",
            "created": 0,
            "model": "tiny",
            "system_fingerprint": f"fp_{digest[:8]}",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "H�", "refusal": None},
                    "logprobs": None,
                    "finish_reason": "length",
                }
            ],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
            "batchgen": {"token_ids": [72, 200], "finish_detail": "max_tokens"},
        },
    }


def test_a_completion_result_is_a_text_completion() -> None:
    body = render(TEXT)["response"]["body"]
    assert (body["object"], body["id"][:5]) == ("text_completion", "cmpl-")
    assert body["choices"] == [{"index": 0, "text": "H�", "logprobs": None, "finish_reason": "length"}]


def test_chat_logprobs_have_bytes_where_a_token_is_text() -> None:
    choice = render(CHAT, replace(RESULT, logprobs=LOGPROBS))["response"]["body"]["choices"][0]
    assert choice["logprobs"] == {
        "content": [
            {
                "token": "H",
                "logprob": -0.5,
                "bytes": [72],
                "top_logprobs": [
                    {"token": "H", "logprob": -0.5, "bytes": [72]},
                    {"token": "I", "logprob": -1.5, "bytes": [73]},
                ],
            },
            {"token": "token_id:200", "logprob": -9999.0, "bytes": None, "top_logprobs": []},
        ],
        "refusal": None,
    }


def test_completion_logprobs_are_parallel_lists() -> None:
    choice = render(TEXT, replace(RESULT, logprobs=LOGPROBS))["response"]["body"]["choices"][0]
    assert choice["logprobs"] == {
        "tokens": ["H", "token_id:200"],
        "token_logprobs": [-0.5, -9999.0],
        "top_logprobs": [{"H": -0.5, "I": -1.5}, {}],
        "text_offset": [0, 1],
    }


def test_an_error_of_the_engine_is_an_error_line_of_its_request() -> None:
    line = render(CHAT, GenerationResult("a", (), "", "error", 5, None, "needs 9 pages, the pool has 4"))
    assert line["error"] == {"code": "cannot_run", "message": "needs 9 pages, the pool has 4", "line": 3}
    assert line["response"]["status_code"] == 400
    assert line["id"] == IDENTITY.request_id(CHAT)


@pytest.mark.parametrize("status", [None, 404])
def test_an_error_line_has_a_response_only_where_the_line_was_understood(status: int | None) -> None:
    error = LineError(9, None, "some_code", "what is wrong", status, "f" * 24, "url")
    line = json.loads(render_error(error))
    assert line["id"] == "batch_req_00000000" + "f" * 24
    assert line["error"] == {"code": "some_code", "message": "what is wrong", "line": 9}
    if status is None:
        assert line["response"] is None
    else:
        assert line["response"]["status_code"] == 404
        assert line["response"]["body"]["error"] == {
            "message": "what is wrong",
            "type": "invalid_request_error",
            "param": "url",
            "code": "some_code",
        }


@pytest.mark.parametrize(
    "other",
    [
        replace(IDENTITY, model_source="tiny-dual"),
        replace(IDENTITY, dtype="bfloat16"),
        replace(IDENTITY, seed=1),
        replace(IDENTITY, row_exact=True),
        replace(IDENTITY, max_tokens_default=64),
    ],
)
def test_the_id_changes_with_every_option_that_changes_results(other: RunIdentity) -> None:
    assert other.request_id(CHAT) != IDENTITY.request_id(CHAT)
    assert other.fingerprint != IDENTITY.fingerprint


@pytest.mark.parametrize(
    "other",
    [
        replace(CHAT, custom_id="b"),
        replace(CHAT, messages=({"role": "system", "content": "hi"},)),
        replace(CHAT, sampling=SamplingParams(temperature=0.5)),
        replace(CHAT, endpoint=COMPLETIONS_ENDPOINT),
    ],
)
def test_the_id_changes_with_everything_that_a_request_asks(other: GenerationRequest) -> None:
    assert IDENTITY.request_id(other) != IDENTITY.request_id(CHAT)


def test_the_id_does_not_depend_on_where_in_the_file_a_request_stands() -> None:
    assert IDENTITY.request_id(replace(CHAT, line_number=8)) == IDENTITY.request_id(CHAT)


def test_a_chat_result_has_what_was_thought_and_the_calls_beside_its_content() -> None:
    called = replace(
        RESULT, text="", finish_reason="tool_calls", reasoning="hm", tool_calls=(ToolCall("f", '{"a": 1}'),)
    )
    line = render(CHAT, called)
    digest = line["id"].removeprefix("batch_req_")
    assert line["response"]["body"]["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "reasoning_content": "hm",
        "tool_calls": [
            {
                "id": f"call_{digest}_0",
                "type": "function",
                "function": {"name": "f", "arguments": '{"a": 1}'},
            }
        ],
    }


def test_what_is_asked_of_the_step_policy_is_part_of_the_id_only_where_something_is() -> None:
    assert IDENTITY.request_id(replace(CHAT, step=StepParams())) == IDENTITY.request_id(CHAT)
    assert IDENTITY.request_id(replace(CHAT, step=StepParams(top_k=1))) != IDENTITY.request_id(CHAT)
    assert replace(IDENTITY, policy="step").fingerprint != IDENTITY.fingerprint
    assert replace(IDENTITY, policy="step", adaptive_sampling=True).fingerprint != IDENTITY.fingerprint
