"""A class of any length, made of the methods of our own worker under new names."""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.copies import tree_before

ROOT = Path(__file__).resolve().parents[1]
CLASS = "BatchGenWorker"


def monolith(lines: int) -> str:
    """The worker module before its slices, with copies of its methods appended until it has at least `lines` lines."""
    text = (tree_before(ROOT).read("batchgen/batchgen_worker.py") or b"").decode()
    start = text.index(f"class {CLASS}")
    body = text[text.index("\n", start) + 1 :]
    methods = [m for m in re.split(r"(?m)^(?=\t(?:@|def |async def ))", body)[1:] if "def __" not in m]
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


def ten_methods(text: str) -> list[str]:
    """Names of ten methods of the class, spread over the file."""
    body = text[text.index(f"class {CLASS}") :]
    names = re.findall(r"(?m)^\tdef (_[a-z]\w*)\(self", body)
    names = [name for name in dict.fromkeys(names) if names.count(name) == 1]
    return names[:: max(1, len(names) // 10)][:10]
