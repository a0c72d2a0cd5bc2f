"""Prompts become token ids; what the model cannot take is refused with numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from batchgen.requests import (
    CHAT_ENDPOINT,
    COMPLETIONS_ENDPOINT,
    GenerationRequest,
    LineError,
    StepParams,
    TokenizedRequest,
    prepare_request,
)
from batchgen.sampling import SamplingParams
from tests.batchgen.requests.fake_worker import BOS, FakeTokenizer

CHAT = GenerationRequest(
    "a", 3, CHAT_ENDPOINT, None, ({"role": "user", "content": "hi"},), SamplingParams(max_tokens=10), None
)
TEXT = GenerationRequest("a", 3, COMPLETIONS_ENDPOINT, "hello", None, SamplingParams(max_tokens=10), None)


def prepare(request: GenerationRequest, context: int = 64) -> TokenizedRequest | LineError:
    return prepare_request(request, "batch_req_x", FakeTokenizer(), context)


def test_chat_goes_through_the_template_and_a_completion_does_not() -> None:
    assert prepare(CHAT) == TokenizedRequest("a", (BOS, *b"user:hi\n"), CHAT.sampling)
    assert prepare(TEXT) == TokenizedRequest("a", tuple(b"hello"), TEXT.sampling)
    assert prepare(replace(TEXT, prompt=(4, 5))) == TokenizedRequest("a", (4, 5), TEXT.sampling)


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (replace(TEXT, prompt=""), "invalid_prompt", "prompt is empty"),
        (
            replace(TEXT, prompt=(4, 257)),
            "invalid_prompt",
            "token id 257 is outside of the vocabulary of 257",
        ),
        (replace(CHAT, messages=({"role": "assistant", "content": "x"},)), "invalid_prompt", "cannot begin"),
        (
            replace(TEXT, prompt="x" * 55),
            "context_length_exceeded",
            "55 tokens and max_tokens 10 .* context of 64",
        ),
        (
            replace(TEXT, prompt="x" * 64, max_tokens_given=False),
            "context_length_exceeded",
            "prompt of 64 tokens does not fit into the model's context of 64",
        ),
    ],
)
def test_what_the_model_cannot_take_is_refused(request_: GenerationRequest, code: str, words: str) -> None:
    error = prepare(request_)
    assert isinstance(error, LineError)
    assert (error.code, error.status, error.line_number, error.identity) == (code, 400, 3, "batch_req_x")
    with pytest.raises(ValueError, match=words):
        raise ValueError(error.message)


def test_a_request_may_fill_the_context_to_its_last_token() -> None:
    assert isinstance(prepare(replace(TEXT, prompt="x" * 54)), TokenizedRequest)


def test_a_request_that_names_no_limit_gets_what_is_left_of_the_context() -> None:
    prepared = prepare(replace(TEXT, prompt="x" * 60, max_tokens_given=False))
    assert isinstance(prepared, TokenizedRequest)
    assert prepared.sampling.max_tokens == 4


class ThinkingTokenizer(FakeTokenizer):
    special_tokens: ClassVar[dict[str, int]] = {"</think>": 1, "<tool_call>": 2}

    def encode_chat(self, messages: list[dict[str, str]], **variables: Any) -> list[int]:
        return [*super().encode_chat(messages), *repr(sorted(variables.items())).encode()]


def test_tools_and_thinking_reach_the_template_of_a_model_that_has_their_tokens() -> None:
    asked = replace(CHAT, step=StepParams(tools=({"type": "function"},), enable_thinking=True))
    prepared = prepare_request(asked, "batch_req_x", ThinkingTokenizer(), 200)
    assert isinstance(prepared, TokenizedRequest) and prepared.step == asked.step
    assert bytes(prepared.prompt_token_ids[1:]).endswith(
        b"[('enable_thinking', True), ('tools', [{'type': 'function'}])]"
    )


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (StepParams(tools=({"type": "function"},)), "tools: this model has no <tool_call> token"),
        (StepParams(enable_thinking=True), "enable_thinking: this model has no </think> token"),
        (StepParams(logit_bias=((1, 1.0), (257, 1.0))), "logit_bias: token id 257 is outside"),
    ],
)
def test_what_the_model_has_no_token_for_is_refused(step: StepParams, words: str) -> None:
    error = prepare(replace(CHAT, step=step))
    assert isinstance(error, LineError) and words in error.message
    assert error.param == error.message.partition(":")[0]
