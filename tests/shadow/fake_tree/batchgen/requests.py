import json
from dataclasses import dataclass


@dataclass(frozen=True)
class RequestDefaults:
    max_tokens: int = 8


@dataclass(frozen=True)
class LineError:
    line_number: int


@dataclass(frozen=True)
class Request:
    custom_id: str
    prompt: tuple[int, ...]
    max_tokens: int


def parse_requests(lines, defaults):
    requests, errors = [], []
    for number, line in enumerate(lines, 1):
        try:
            body = json.loads(line)
            request = Request(body["custom_id"], tuple(body["prompt"]), body["max_tokens"])
        except (ValueError, KeyError):
            errors.append(LineError(number))
        else:
            requests.append(request)
    return requests, errors


def prepare_request(request, identity, tokenizer, context_length):
    fits = len(request.prompt) + request.max_tokens <= context_length
    return request if fits else LineError(0)
