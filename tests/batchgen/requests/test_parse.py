"""Request lines: what is understood, ignored, refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchgen.requests import (
    GenerationRequest,
    LineError,
    RequestDefaults,
    StepParams,
    parse_line,
    parse_requests,
)

DEFAULTS = RequestDefaults(max_tokens=33, seed=5)
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO = [{"role": "user", "content": "hello"}]


def line(url: str = CHAT, custom_id: str = "a", **body: Any) -> bytes:
    if url == CHAT and "messages" not in body:
        body["messages"] = HELLO
    if url == COMPLETIONS and "prompt" not in body:
        body["prompt"] = "hello"
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}).encode()


def accept(raw: bytes, defaults: RequestDefaults = DEFAULTS) -> GenerationRequest:
    parsed = parse_line(raw, 7, defaults)
    assert isinstance(parsed, GenerationRequest), parsed
    return parsed


def refuse(raw: bytes, defaults: RequestDefaults = DEFAULTS) -> LineError:
    parsed = parse_line(raw, 7, defaults)
    assert isinstance(parsed, LineError), parsed
    assert parsed.line_number == 7
    return parsed


def test_a_chat_line_with_every_supported_field() -> None:
    request = accept(
        line(
            model="tiny",
            messages=[
                {"role": "developer", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "assistant", "content": "c", "refusal": None, "annotations": []},
            ],
            max_completion_tokens=9,
            temperature=0.5,
            top_p=0.25,
            stop=["x", "yy"],
            seed=-3,
            logprobs=True,
            top_logprobs=4,
            ignore_eos=True,
        )
    )
    assert request.messages == (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "c"},
    )
    assert (request.prompt, request.model, request.line_number) == (None, "tiny", 7)
    assert request.max_tokens_given
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.5, 0.25, 9)
    assert (sampling.stop, sampling.seed, sampling.ignore_eos) == (("x", "yy"), -3, True)
    assert (sampling.logprobs, sampling.top_logprobs) == (True, 4)


def test_a_completion_line_takes_text_or_token_ids() -> None:
    text = accept(line(COMPLETIONS, prompt="once", max_tokens=4, logprobs=0, stop="\n"))
    assert (text.prompt, text.messages, text.sampling.stop) == ("once", None, ("\n",))
    assert (text.sampling.logprobs, text.sampling.top_logprobs) == (True, 0)
    assert accept(line(COMPLETIONS, prompt=[1, 2, 3])).prompt == (1, 2, 3)


def test_what_a_line_does_not_say_comes_from_the_run() -> None:
    request = accept(line())
    assert (request.sampling.max_tokens, request.max_tokens_given, request.sampling.temperature) == (
        33,
        False,
        0.0,
    )
    assert not request.sampling.logprobs
    again = accept(line()).sampling.seed
    assert request.sampling.seed == again >= 0
    assert accept(line(custom_id="b")).sampling.seed != again
    assert accept(line(), RequestDefaults(33, 6)).sampling.seed != again


@pytest.mark.parametrize(
    "body",
    [
        {"user": "u", "metadata": {"k": "v"}, "store": True, "service_tier": "flex"},
        {
            "n": 1,
            "stream": False,
            "presence_penalty": 0.0,
            "logit_bias": {},
            "tools": [],
            "tool_choice": "auto",
        },
        {"temperature": None, "stop": None, "seed": None, "tools": None, "nonsense": None, "logprobs": None},
        {"response_format": {"type": "text"}, "modalities": ["text"]},
    ],
)
def test_fields_that_ask_for_nothing_change_nothing(body: dict[str, Any]) -> None:
    assert accept(line(**body)) == accept(line())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"n": 2}, "n: 2 is not supported"),
        ({"stream": True}, "stream: true is not supported"),
        ({"presence_penalty": 0.5}, "presence_penalty: 0.5"),
        ({"tools": [{"type": "function"}]}, "tools: "),
        ({"response_format": {"type": "json_object"}}, "response_format: "),
        ({"top_k": 5}, "top_k: 5 needs --policy step; leave it out"),
        ({"prompt": "x"}, "prompt is not supported"),
    ],
)
def test_a_field_that_would_change_the_meaning_is_refused_by_name(body: dict[str, Any], words: str) -> None:
    error = refuse(line(**body))
    assert (error.code, error.status, error.custom_id, error.param) == (
        "unsupported_field",
        400,
        "a",
        next(iter(body)),
    )
    assert words in error.message


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": 2.5},
        {"temperature": "1"},
        {"top_p": 0},
        {"max_tokens": 0},
        {"max_tokens": True},
        {"max_tokens": 3, "max_completion_tokens": 4},
        {"stop": ["a", "b", "c", "d", "e"]},
        {"stop": ""},
        {"stop": [""]},
        {"seed": 2**63},
        {"top_logprobs": 2},
        {"logprobs": True, "top_logprobs": 21},
        {"messages": []},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": [{"role": "user", "content": "x", "tool_calls": []}]},
        {"messages": "hello"},
        {"model": 3},
    ],
)
def test_a_wrong_value_in_a_chat_body_is_a_400_of_its_request(body: dict[str, Any]) -> None:
    error = refuse(line(**body))
    assert (error.code, error.status, error.custom_id) == ("invalid_body", 400, "a")


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": []},
        {"prompt": [-1]},
        {"prompt": ["a", "b"]},
        {"prompt": [[1]]},
        {"logprobs": True},
        {"prompt": 1},
    ],
)
def test_a_wrong_value_in_a_completion_body_is_a_400_of_its_request(body: dict[str, Any]) -> None:
    assert refuse(line(COMPLETIONS, **body)).code == "invalid_body"


@pytest.mark.parametrize(
    ("raw", "code", "status", "custom_id"),
    [
        (b"{not json", "invalid_json", None, None),
        (b"\xff\xfe", "invalid_json", None, None),
        (b"[1]", "invalid_line", None, None),
        (b'"x"', "invalid_line", None, None),
        (b'{"custom_id": "c", "url": "/v1/completions"}', "invalid_line", None, "c"),
        (b'{"custom_id": 4, "url": "/v1/completions", "body": {}}', "invalid_line", None, None),
        (b'{"custom_id": "", "url": "/v1/completions", "body": {}}', "invalid_line", None, None),
        (b'{"custom_id": "c", "url": "/v1/embeddings", "body": {}}', "invalid_url", 404, "c"),
        (
            b'{"custom_id": "c", "method": "GET", "url": "/v1/completions", "body": {}}',
            "invalid_method",
            400,
            "c",
        ),
        (
            b'{"custom_id": "c", "url": "/v1/completions", "body": ' + b'{"a":' * 9999,
            "invalid_json",
            None,
            None,
        ),
        (b'{"custom_id": "\\ud800", "url": "/v1/completions", "body": {}}', "invalid_json", None, None),
    ],
)
def test_a_line_that_is_no_request_keeps_what_is_readable_of_it(
    raw: bytes, code: str, status: int | None, custom_id: str | None
) -> None:
    error = refuse(raw)
    assert (error.code, error.status, error.custom_id) == (code, status, custom_id)


def test_another_model_is_refused_unless_any_is_allowed() -> None:
    only_tiny = RequestDefaults(models=frozenset({"tiny"}))
    assert accept(line(model="tiny"), only_tiny).model == "tiny"
    assert accept(line(), only_tiny).model is None
    error = refuse(line(model="gpt-4o"), only_tiny)
    assert (error.code, error.status) == ("model_not_found", 404)
    assert "gpt-4o" in error.message and "tiny" in error.message
    assert accept(line(model="gpt-4o")).model == "gpt-4o"


def test_line_numbers_count_blank_lines_and_a_byte_order_mark_is_no_part_of_a_line() -> None:
    lines = [b"\xef\xbb\xbf" + line(custom_id="a") + b"\r\n", b"\n", b"  \n", line(custom_id="b"), b"oops\n"]
    requests, errors = parse_requests(lines, DEFAULTS)
    assert [(r.custom_id, r.line_number) for r in requests] == [("a", 1), ("b", 4)]
    assert [(e.code, e.line_number) for e in errors] == [("invalid_json", 5)]


def test_a_repeated_custom_id_names_both_lines_and_the_first_runs() -> None:
    lines = [
        line(custom_id="x"),
        line(custom_id="y"),
        line(custom_id="x", max_tokens=3),
        b'{"custom_id": "y"}',
    ]
    requests, errors = parse_requests(lines, DEFAULTS)
    assert [r.line_number for r in requests] == [1, 2]
    assert [(e.code, e.line_number, e.custom_id) for e in errors] == [
        ("duplicate_custom_id", 3, "x"),
        ("duplicate_custom_id", 4, "y"),
    ]
    assert errors[0].message == "custom_id 'x' of line 3 is already used by line 1"


def test_equal_wrong_lines_have_different_identities() -> None:
    _, errors = parse_requests([b"oops\n", b"oops\n"], DEFAULTS)
    assert errors[0].identity != errors[1].identity


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = st.sampled_from(
    [
        "messages",
        "prompt",
        "max_tokens",
        "stop",
        "seed",
        "logprobs",
        "top_logprobs",
        "n",
        "stream",
        "tools",
        "model",
        "z",
    ]
)


@settings(deadline=None)
@given(
    url=st.sampled_from([CHAT, COMPLETIONS, "/x"]),
    body=st.dictionaries(_FIELDS, _JSON, max_size=5) | _JSON,
    custom_id=st.text(max_size=3) | _JSON,
)
def test_no_line_of_json_raises(url: str, body: Any, custom_id: Any) -> None:
    raw = json.dumps({"custom_id": custom_id, "url": url, "body": body}).encode()
    parsed = parse_line(raw, 1, DEFAULTS)
    assert isinstance(parsed, GenerationRequest | LineError)
    if isinstance(custom_id, str) and custom_id:
        assert parsed.custom_id == custom_id


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_raise(raw: bytes) -> None:
    assert isinstance(parse_line(raw, 1, DEFAULTS), LineError)


STEP = RequestDefaults(max_tokens=33, seed=5, policy="step")
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def test_what_only_the_step_policy_can_do_reaches_the_request_under_it() -> None:
    request = accept(
        line(
            top_k=40,
            min_p=0.1,
            repetition_penalty=1.2,
            presence_penalty=0.5,
            frequency_penalty=-0.5,
            logit_bias={"7": 2, "65": -100},
            min_tokens=3,
            timeout=2.5,
            enable_thinking=True,
            thinking_budget=9,
            tools=[TOOL],
            tool_choice="required",
            n=1,
        ),
        STEP,
    )
    assert request.step == StepParams(
        top_k=40,
        min_p=0.1,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias=((7, 2.0), (65, -100.0)),
        min_tokens=3,
        enable_thinking=True,
        thinking_budget=9,
        tools=(TOOL,),
        tool_choice="required",
        timeout=2.5,
    )


def test_values_that_ask_for_nothing_are_the_same_request_under_both_policies() -> None:
    neutral = line(top_k=-1, min_p=0, repetition_penalty=1, min_tokens=0, tools=[], tool_choice="auto")
    assert accept(neutral, STEP) == accept(neutral) == accept(line())


def test_thinking_may_be_asked_for_as_an_argument_of_the_template() -> None:
    raw = line(chat_template_kwargs={"enable_thinking": False})
    assert accept(raw, STEP).step.enable_thinking is False


@pytest.mark.parametrize(
    ("raw", "param", "words"),
    [
        (line(min_tokens=34), "min_tokens", "min_tokens 34 is more than max_tokens 33"),
        (line(tool_choice="required"), "tool_choice", "needs tools"),
        (line(thinking_budget=5), "thinking_budget", "needs enable_thinking: true"),
        (
            line(enable_thinking=True, chat_template_kwargs={"enable_thinking": False}),
            "enable_thinking",
            "are both given and differ",
        ),
        (line(tools=[{"type": "function"}]), None, "missing required field `function`"),
        (line(tools=[TOOL], tool_choice="look_up"), None, "`$.tool_choice`"),
        (line(logit_bias={"x": 1}), None, "logit_bias"),
        (line(COMPLETIONS, tools=[TOOL]), "tools", "tools is not supported"),
        (line(COMPLETIONS, enable_thinking=True), "enable_thinking", "enable_thinking is not supported"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(raw: bytes, param: str | None, words: str) -> None:
    error = refuse(raw, STEP)
    assert (error.status, error.param) == (400, param)
    assert words in error.message


@pytest.mark.parametrize(
    "body", [{"enable_thinking": False}, {"tools": [TOOL]}, {"timeout": 1}, {"min_tokens": 1}]
)
def test_the_boundary_policy_says_which_policy_can(body: dict[str, Any]) -> None:
    error = refuse(line(**body))
    assert (error.code, error.param) == ("unsupported_field", next(iter(body)))
    assert "needs --policy step" in error.message
