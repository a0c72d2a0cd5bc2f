"""Where each entry of a TOML text stands: `tomllib` checks a text but does not say lines of its entries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_HEADER = re.compile(r"\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
#: What can open or close a value that goes on over several lines; a comment or a string is skipped whole.
_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}]|\n', re.DOTALL
)


def key_lines(text: str) -> dict[str, int]:
    """Path of each entry (`target.file`, `handles[0].name`) -> its line, 1-based, in a valid TOML text."""
    found: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    for line, statement in _statements(text):
        header = _HEADER.match(statement)
        if header and statement.lstrip().startswith("["):
            table = ".".join(_parts(header[2]))
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = f"{table}[{counts[table]}]"
            else:
                owner, dot, rest = table.partition(".")
                table = f"{owner}[{counts[owner]}]{dot}{rest}" if owner in counts else table
            found.setdefault(table, line)
        else:
            path = table
            for part in _parts(statement):
                path = f"{path}.{part}" if path else part
                found.setdefault(path, line)
    return found


def line_of(path: str, lines: Mapping[str, int]) -> int:
    """Line of an entry; of the nearest table around it where it is not there; 0 for none."""
    while path and path not in lines:
        cut = max(path.rfind("."), path.rfind("["))
        path = path[:cut] if cut > 0 else ""
    return lines.get(path, 0)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each header and each `key = value`, as many lines as it has."""
    start, first, line, depth = 0, 1, 1, 0
    for token in _TOKEN.finditer(text + "\n"):
        word = token[0]
        if word == "\n" and depth == 0:
            statement = text[start : token.start()]
            if statement.strip() and not statement.lstrip().startswith("#"):
                yield first, statement
            start, first = token.end(), line + 1
        elif word in ("[", "{"):
            depth += 1
        elif word in ("]", "}"):
            depth -= 1
        line += word.count("\n")


def _parts(text: str) -> list[str]:
    """The parts of a dotted key at the start of a text."""
    found: list[str] = []
    position = 0
    while match := _PART.match(text, position):
        found.append(next(part for part in match.groups() if part is not None))
        position = match.end()
        if text[position : position + 1] != ".":
            break
        position += 1
    return found
