"""Parsing, and what to say about a file that does not parse: newer Python, Python 2, or a plain mistake."""

from __future__ import annotations

import ast
import re
import sys
import warnings

from migration.code.collector import no_collections
from migration.code.encoding import line_at
from migration.code.literals import Field, Unreadable, is_formatted, prefix, read_literal, spans
from migration.errors import MigrationError

_NEWER: tuple[tuple[str, tuple[int, int], re.Pattern[str]], ...] = (
    ("a default of a type parameter", (3, 13), re.compile(r"\s*(?:async\s+def|def|class)\s+\w+\s*\[[^\]]*=")),
    ("a default of a type parameter", (3, 13), re.compile(r"\s*type\s+\w+\s*\[[^\]]*=[^\]]*\]\s*=")),
    ("a type parameter list", (3, 12), re.compile(r"\s*(?:async\s+def|def|class)\s+\w+\s*\[")),
    ("the `type` statement", (3, 12), re.compile(r"\s*type\s+\w+\s*(?:\[.*\]\s*)?=")),
    ("a lazy import", (3, 15), re.compile(r"\s*lazy\s+(?:import|from)\s")),
    ("a t-string", (3, 14), re.compile(r"""(?:.*\W)?(?:[tT][rR]?|[rR][tT])["']""")),
    ("unpacking in a comprehension", (3, 15), re.compile(r".*[\[({]\s*\*\*?[^,]*\sfor\s")),
)
_EXCEPT = re.compile(r"\s*except\*?\s+[\w.]+(?:\s*,\s*[\w.]+)*\s*,\s*(?P<last>[\w.]+)\s*:")
_PYTHON_2 = re.compile(
    r"""\s*(?:print|exec)\s+[^\s=(]|\s*print\s*>>|\s*raise\s+[\w.]+\s*,|.*<>|.*`|.*\b0[0-7]+\b|.*\b[uU][rR]["']|.*\b\d+[lL]\b"""
)


def parse(path: str, data: bytes) -> ast.Module:
    """The tree of UTF-8 `data`; raises MG301, MG316 or MG317 with the line where the parser stopped."""
    try:
        with no_collections(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the code that is read: they are its authors'
            return ast.parse(data)
    except (RecursionError, MemoryError) as error:
        message = f"{path}: it nests deeper than Python's own parser follows; split the statement"
        raise MigrationError("MG317", message) from error
    except (SyntaxError, ValueError) as error:
        raise explain(path, data, error) from error


def parse_or_none(data: bytes) -> ast.Module | None:
    """The tree of a file that is only looked at; None where it does not parse, for whatever reason."""
    found = _tree(data, "exec")
    return found if isinstance(found, ast.Module) else None


def expression_or_none(text: bytes | str) -> ast.expr | None:
    """The tree of one expression; None where it is none."""
    found = _tree(text, "eval")
    return found.body if isinstance(found, ast.Expression) else None


def _tree(text: bytes | str, mode: str) -> ast.AST | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def explain(path: str, data: bytes, error: SyntaxError | ValueError) -> MigrationError:
    """One line: where the parser stopped, why, and which Python would go on."""
    if (at := data.find(b"\0")) >= 0:
        message = f"{path}:{line_at(data, at)}: a null byte, which no Python file may hold; remove it"
        return MigrationError("MG301", message)
    if not isinstance(error, SyntaxError):
        return MigrationError("MG301", f"{path}: {error}")
    lines = data.decode("utf-8", "replace").splitlines()
    number = min(max(error.lineno or 1, 1), max(len(lines), 1))
    if sys.version_info < (3, 12):
        number = _newer_field(data, number) or number
    where = f"{path}:{number}: {error.msg}"
    if "too many nested" in error.msg:
        return MigrationError("MG317", f"{where}; split the expression")
    text = data.splitlines()[number - 1].decode("utf-8", "replace") if lines else ""
    if newer := _newer(data, number, text):
        what, (major, minor) = newer
        version = f"{major}.{minor}"
        running = f"{sys.version_info[0]}.{sys.version_info[1]}"
        message = f"{where}: {what} needs Python {version}, this is {running}: run migrate under {version}"
        return MigrationError("MG316", message)
    old = _EXCEPT.match(text)
    if "Missing parentheses in call to" in error.msg or old or _PYTHON_2.match(text):
        return MigrationError("MG301", f"{where}: it looks like Python 2; port the file to Python 3 first")
    return MigrationError("MG301", where)


def _newer(data: bytes, number: int, text: str) -> tuple[str, tuple[int, int]] | None:
    """A construct on that line that a newer Python than the running one has, and which."""
    running = sys.version_info[:2]
    if running < (3, 12) and _newer_field(data, number):
        return "an f-string with quotes, backslashes, comments or line ends in a field", (3, 12)
    for what, version, pattern in _NEWER:
        if running < version and pattern.match(text):
            return what, version
    names = _EXCEPT.match(text)
    # `except ValueError, e:` is Python 2; the names of exception classes begin with a capital.
    if running < (3, 14) and names and names["last"].rpartition(".")[2][:1].isupper():
        return "`except A, B:` without brackets", (3, 14)
    return None


def _newer_field(data: bytes, number: int) -> int | None:
    """The line of a field, in an f-string on line `number`, that is whole by the rules of 3.12 only."""
    try:
        for span in spans(data, nested=True):
            if span.comment or not line_at(data, span.start) <= number <= line_at(data, span.end):
                continue
            if is_formatted(prefix(data, span.start)):
                quote = data[span.start : span.start + 1]
                long = data.startswith(quote * 3, span.start)
                stops = (b"\\", b"#", quote * 3) if long else (b"\\", b"#", b"\n", b"\r", quote)
                for field in read_literal(data, span.start).fields:
                    if _holds(data, field, stops):
                        return line_at(data, field.start)
    except Unreadable:
        pass  # then it is no f-string of any Python
    return None


def _holds(data: bytes, field: Field, stops: tuple[bytes, ...]) -> bool:
    text = data[field.expression : field.expression_end]
    return any(stop in text for stop in stops) or any(_holds(data, inner, stops) for inner in field.fields)
