"""Which guard ended a row: `ActiveSeq.guard_stop`."""

from __future__ import annotations

from enum import StrEnum


class Guard(StrEnum):
    TOOL_RESPONSE = "tool_response"  # the model wrote what only a tool writes
    STRAY_THINK_ENDS = "stray_think_ends"
    CONTENT_LOOP = "content_loop"
    FUZZY_REPETITION = "fuzzy_repetition"
    INTER_TOOL_PROSE = "inter_tool_prose"
    GRAMMAR_CONTENT = "grammar_content"
    TOOL_BODY = "tool_body"  # a tool call that is never closed
