"""The values of tool calls written as `<parameter=name>value</parameter>`: they may be of any length."""

from __future__ import annotations

import re
from collections.abc import Sequence

from batchgen.scheduler.sequences import ActiveSeq

#: More tokens than a tag has, even with one a byte.
TAG = 64
OPENED = re.compile(r"<parameter=[^<>]+>\s*\Z")
CLOSED = re.compile(r"</parameter\s*>\s*\Z")


def advance_parameter(row: ActiveSeq, token: int, texts: Sequence[str]) -> None:
    """Whether the row is inside a value after `token`, its last output. A `</` may be the value's end, or not: it is
    pending until the tag is whole."""
    tools, text = row.tools, _text(token, texts)
    if not tools.inside_parameter:
        if ">" in text and OPENED.search(_tail(row, texts)):
            tools.inside_parameter, tools.parameter_chars = True, 0
        return
    tools.parameter_chars += len(text)
    if not (tools.parameter_close_pending or "/" in text):
        return
    tail = _tail(row, texts)
    if CLOSED.search(tail):
        tools.inside_parameter, tools.parameter_chars, tools.parameter_close_pending = False, 0, False
    else:
        tag = tail[tail.rfind("</") :] if "</" in tail else ""
        tools.parameter_close_pending = bool(tag) and "</parameter>".startswith(tag)


def _tail(row: ActiveSeq, texts: Sequence[str]) -> str:
    return "".join(_text(token, texts) for token in row.output_tokens[-TAG:])


def _text(token: int, texts: Sequence[str]) -> str:
    # A model's vocabulary may be padded beyond its tokenizer's.
    return texts[token] if token < len(texts) else ""
