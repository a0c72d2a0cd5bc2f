"""Text for the page: escaped, hidden characters shown as codes, the differing part of two values marked."""

from __future__ import annotations

from markupsafe import Markup

from reports.text import HIDDEN, common_ends, escape


def shown(text: str) -> Markup:
    """`text` as it is to be read, never as HTML; what cannot be seen becomes a marked code."""
    parts, end = [], 0
    for match in HIDDEN.finditer(text):
        parts += [
            text[end : match.start()],
            Markup('<span class="code">{}</span>').format(escape(match.group())),
        ]
        end = match.end()
    return Markup("").join([*parts, text[end:]])


def against(text: str | None, other: str | None) -> Markup:
    """`text` with the part marked in which it differs from `other`."""
    if text is None:
        return Markup('<span class="absent">(absent)</span>')
    if other is None or text == other:
        return shown(text)
    front, back = common_ends(text, other)
    end = len(text) - back
    middle = (
        shown(text[front:end]) if end > front else Markup('<span class="gap" title="nothing here"></span>')
    )
    return shown(text[:front]) + Markup("<mark>{}</mark>").format(middle) + shown(text[end:])
