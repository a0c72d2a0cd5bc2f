"""A module cut into stretches of lines that can be parsed one by one, so that what did not change need not be.

The cut is a guess by line beginnings. It is right whenever every piece parses on its own: each then ends where a
statement ends, at the indentation at which the next one begins. Where one does not, the caller parses the whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MEMBER = rb"(?:@|def\b|async[ \t]+def\b)"
_FIRST = re.compile(rb"^([ \t]+)" + _MEMBER, re.MULTILINE)
#: A line at the margin that begins a statement; what closes a bracket, a comment or a string does not.
_OUTSIDE = re.compile(rb"^[A-Za-z_@\x80-\xff]", re.MULTILINE)
_DECORATORS = re.compile(rb"(?:^@.*\n)+\Z", re.MULTILINE)


@dataclass(frozen=True)
class Pieces:
    """`head` and `tail` are what stands before and after the class, `opening` its lines before the first method.

    Each of `members` begins with a method or its decorator. `class_line` and `last_member` are line numbers.
    """

    head: bytes
    opening: bytes
    indent: bytes
    members: tuple[bytes, ...]
    tail: bytes
    class_line: int
    last_member: int


def cut(data: bytes, class_name: str) -> Pieces | None:
    """The pieces of a module with LF line ends; None where the class is not at its margin, or has no method."""
    opens = re.search(rb"^class[ \t]+" + class_name.encode() + rb"\b", data, re.MULTILINE)
    if opens is None:
        return None
    decorators = _DECORATORS.search(data, 0, opens.start())
    start = decorators.start() if decorators else opens.start()
    after = _OUTSIDE.search(data, opens.end())
    end = after.start() if after else len(data)
    first = _FIRST.search(data, opens.end(), end)
    if first is None:
        return None
    indent = first[1]
    starts: list[int] = []
    decorated = False
    for found in re.finditer(rb"^" + indent + _MEMBER, data[:end], re.MULTILINE):
        if found.start() < first.start():
            continue
        if not decorated:
            starts.append(found.start())
        decorated = found[0].endswith(b"@")
    ends = [*starts[1:], end]
    return Pieces(
        data[:start],
        data[start : first.start()],
        indent,
        tuple(data[a:b] for a, b in zip(starts, ends, strict=True)),
        data[end:],
        data.count(b"\n", 0, opens.start()) + 1,
        data.count(b"\n", 0, starts[-1]) + 1,
    )
