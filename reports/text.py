"""Text as a person can read it: control characters made visible, long values cut where they tell most."""

from __future__ import annotations

import re

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
"""What has no look of its own, or changes that of its neighbours: terminal codes, text direction, halves of pairs."""


def escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def visible(text: str) -> str:
    """`text` with every hidden character spelled out; tabs and newlines stay."""
    return HIDDEN.sub(lambda match: escape(match.group()), text)


def encodable(text: str) -> str:
    """`text` with what UTF-8 has no bytes for spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shorten(text: str, width: int, start: int = 0) -> str:
    """At most `width` characters of `text` from `start`; says how long the whole is."""
    if len(text) <= width:
        return text
    start = max(0, min(start, len(text) - width))
    end = "…" if start + width < len(text) else ""
    return f"{'…' if start else ''}{text[start : start + width]}{end} ({len(text):,} characters)"


def common_ends(left: str, right: str) -> tuple[int, int]:
    """How many characters both begin with, and how many of the rest both end with."""
    limit = min(len(left), len(right))
    front = next((i for i in range(limit) if left[i] != right[i]), limit)
    back = next((i for i in range(limit - front) if left[-1 - i] != right[-1 - i]), limit - front)
    return front, back


def shorten_pair(left: str, right: str, width: int) -> tuple[str, str]:
    """Both cut to `width`, so that the first character in which they differ is in sight."""
    front, _ = common_ends(left, right)
    start = max(0, front - width // 4)
    return shorten(left, width, start), shorten(right, width, start)
