"""A class of any length, made of the methods of our own worker under new names."""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.copies import tree_before

ROOT = Path(__file__).resolve().parents[1]
CLASS = "BatchGenWorker"
RECIPE = """\
schema = 1
name = "ten"
[source]
file = "app/worker.py"
class = "{name}"
methods = [{methods}]
[target]
file = "app/handler.py"
class = "TenMethods"
"""
#: Ports them in memory only: exit code 1, "would move".
PORT_TEN = ("port", "ten.toml", "--cut", "--check")


def write_project(root: Path, lines: int) -> None:
    """A repository with a class of so many lines, and a recipe for ten of its methods."""
    text = monolith(lines)
    (root / "app").mkdir(parents=True)
    (root / "app" / "__init__.py").write_text("", encoding="utf-8")
    (root / "app" / "worker.py").write_text(text, encoding="utf-8")
    methods = ", ".join(f'"{name}"' for name in ten_methods(text))
    (root / "ten.toml").write_text(RECIPE.format(name=CLASS, methods=methods), encoding="utf-8")


def monolith(lines: int) -> str:
    """The worker module before its slices, with copies of its methods appended until it has at least `lines` lines;
    without its last methods where it is longer."""
    text = (tree_before(ROOT).read("batchgen/batchgen_worker.py") or b"").decode()
    start = text.index(f"class {CLASS}")
    body = text[text.index("\n", start) + 1 :]
    pieces = re.split(r"(?m)^(?=\t(?:@|def |async def ))", body)[1:]
    if text.count("\n") > lines:
        return _shortened(text, pieces, lines)
    methods = [m for m in pieces if "def __" not in m]
    whole = [m for m in methods if m.lstrip().startswith(("def ", "async def "))]
    parts, count, copy = [text.rstrip("\n") + "\n\n"], text.count("\n"), 1
    while count < lines:
        copy += 1
        for method in whole:
            renamed = re.sub(r"def (\w+)", rf"def \1_{copy}", method, count=1)
            parts.append(renamed.rstrip("\n") + "\n\n")
            count += renamed.count("\n")
            if count >= lines:
                break
    return "".join(parts)


def _shortened(text: str, pieces: list[str], lines: int) -> str:
    """Without the last of its pieces (methods and decorators), but for the first, until it is short enough."""
    while len(pieces) > 1 and (text.count("\n") > lines or pieces[-1].startswith("\t@")):
        text = text.removesuffix(pieces.pop())
    return text


def ten_methods(text: str) -> list[str]:
    """Names of ten methods of the class, spread over the file."""
    body = text[text.index(f"class {CLASS}") :]
    names = re.findall(r"(?m)^\tdef (_[a-z]\w*)\(self", body)
    names = [name for name in dict.fromkeys(names) if names.count(name) == 1]
    return names[:: max(1, len(names) // 10)][:10]
