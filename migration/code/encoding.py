"""Source files in any encoding that Python reads, seen as UTF-8 and written back as they were.

A file with a coding cookie other than UTF-8 is recoded, and its cookie says so in the recoded text:
that text is a whole Python file of its own, and every byte offset counts the bytes that `ast` counts.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from migration.errors import MigrationError

BOM = codecs.BOM_UTF8
#: The pattern of PEP 263, on the first two lines; a second line counts only below a blank or comment line.
_COOKIE = re.compile(rb"^([ \t\f]*#.*?coding[:=][ \t]*)([-\w.]+)", re.ASCII)
_BLANK = re.compile(rb"^[ \t\f]*(?:#.*)?$")
_NEWLINE = re.compile(rb"\r\n|\r|\n")
_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n)?")
_LATIN = ("latin-1", "iso-8859-1", "iso-latin-1")


@dataclass(frozen=True)
class Text:
    """A file as UTF-8 (`data`), and what is needed to write a changed version back."""

    path: str
    data: bytes
    encoding: str
    cookie: bytes | None

    def restore(self, data: bytes) -> bytes:
        """The bytes of the file once its text is `data`; MG302 where its encoding cannot spell it."""
        if self.cookie is None:
            return data
        found = _cookie(data)
        if found is None or data[found[0] : found[1]] != b"utf-8":
            raise MigrationError("MG302", f"{self.path}:1: the coding line is no longer where it was")
        start, end = found
        text = (data[:start] + self.cookie + data[end:]).decode()
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError as error:
            line = line_at(text.encode(), len(text[: error.start].encode()))
            message = f"{self.path}:{line}: {text[error.start]!r} does not exist in {self.encoding}"
            raise MigrationError("MG302", message) from error


def read_text(path: str, data: bytes) -> Text:
    """The file as UTF-8; MG302 with the line where Python could not read it or it does not recode exactly."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise MigrationError("MG302", f"{path}:1: UTF-16, which Python does not run; save it as UTF-8")
    found = _cookie(data)
    if found is None:
        _check_utf8(path, data, "add a coding line, or save the file as UTF-8")
        return Text(path, data, "utf-8", None)
    cookie = data[found[0] : found[1]]
    name = _normal(cookie.decode())
    where = f"{path}:{coding_line(data)}"
    try:
        codec = codecs.lookup(name).name
        if codec == "utf-8":
            _check_utf8(path, data, "save the file as UTF-8")
            return Text(path, data, codec, None)
        if data.startswith(BOM):
            message = f"{where}: coding {name}, but the file begins with the mark of UTF-8"
            raise MigrationError("MG302", message)
        text = data.decode(codec)
        exact = text.encode(codec) == data
    except UnicodeDecodeError as error:
        where = f"{path}:{line_at(data, error.start)}"
        message = f"{where}: byte 0x{data[error.start]:02x} is not {name}; correct the coding line"
        raise MigrationError("MG302", message) from error
    except (LookupError, UnicodeError) as error:
        message = f"{where}: coding {name} is none that Python reads; name the one that the file is in"
        raise MigrationError("MG302", message) from error
    view = text.encode()
    found = _cookie(view)
    if not exact or found is None or view[found[0] : found[1]] != cookie:
        message = f"{where}: coding {name} does not give the same bytes back; save the file as UTF-8"
        raise MigrationError("MG302", message)
    return Text(path, view[: found[0]] + b"utf-8" + view[found[1] :], codec, cookie)


def as_utf8(data: bytes) -> bytes:
    """A Python file as UTF-8 with a coding line that says so; unchanged where it is that already, or unreadable."""
    if _cookie(data) is None:
        return data
    try:
        return read_text("", data).data
    except MigrationError:
        return data


def coding_line(data: bytes) -> int:
    """The line that names the encoding, 0 where none does."""
    found = _cookie(data)
    return line_at(data, found[0]) if found else 0


def line_at(data: bytes, offset: int) -> int:
    """The 1-based line of a byte."""
    return len(_NEWLINE.findall(data, 0, offset)) + 1


def _normal(name: str) -> str:
    """The names that Python itself rewrites before it looks up a codec (`latin-1-unix`, `utf-8-sig`)."""
    lowered = name[:12].lower().replace("_", "-")
    for known, meant in (("utf-8", "utf-8"), *((latin, "iso-8859-1") for latin in _LATIN)):
        if lowered == known or lowered.startswith(known + "-"):
            return meant
    return name


def _cookie(data: bytes) -> tuple[int, int] | None:
    """Where the encoding is named, None where it is not."""
    start = len(BOM) if data.startswith(BOM) else 0
    for _ in range(2):
        line = _LINE.match(data, start)
        assert line is not None
        if match := _COOKIE.match(line[1]):
            return start + match.start(2), start + match.end(2)
        if not _BLANK.match(line[1]):
            return None
        start = line.end()
    return None


def _check_utf8(path: str, data: bytes, advice: str) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise MigrationError("MG302", f"{path}:{line_at(data, error.start)}: {what}; {advice}") from error
