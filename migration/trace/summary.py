"""What `migrate trace` says when the program has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from migration.trace.merge import Merged


def summary(seen: Merged, document: dict[str, Any], output: str) -> str:
    """Lines for people: what was seen of each class, and what to know about how."""
    count = seen.processes
    lines = [f"migrate trace: {count} process{'es' * (count != 1)}, written to {output}"]
    for path, content in document["classes"].items():
        calls = sum(method["calls"] for method in content["methods"].values())
        lines.append(
            f"  {path}: {calls} calls of {len(content['methods'])} methods, "
            f"types of {len(content['attributes'])} attributes"
        )
    if any(name.startswith("wrapping") for name in seen.backends):
        lines.append(
            "  warning: no sys.monitoring there (Python 3.12 has it): methods were wrapped, each call had one "
            "frame more and took 15 to 75 us longer (0 to 230 attributes, as measured); other code was not slower"
        )
    if seen.ended_early:
        lines.append(
            f"  {seen.ended_early} of them did not end in good order: their counts are lower bounds, "
            "no type is missing"
        )
    return "\n".join([*lines, *(f"  {problem}" for problem in seen.problems)])


def unseen(seen: Merged, classes: Sequence[str]) -> tuple[str, ...]:
    """One line for each class of which no instance was seen, with the likely reason."""
    lines: list[str] = []
    for path in classes:
        if seen.instances_seen(path):
            continue
        if not seen.processes:
            why = "no Python process took the probe (started with -I, -E or -S, or with its own PYTHONPATH?)"
        elif path in seen.classes_found:
            why = "the class was defined, but none of its own methods returned on an instance"
        else:
            why = "the module was not imported (for a class of the script itself: __main__:Class)"
        lines.append(f"no instance of {path} was seen: {why}")
    return tuple(lines)
