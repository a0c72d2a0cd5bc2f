"""The files of the traced processes as one: facts added up, in an order that does not depend on the run."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = 1

Fact = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Merged:
    """Counts of (class, kind, member, parameter, type), and remarks of the processes about themselves."""

    facts: dict[Fact, int]
    backends: dict[str, int]
    classes_found: frozenset[str]
    modules: frozenset[str]
    problems: tuple[str, ...]
    ended_early: int

    @property
    def processes(self) -> int:
        return sum(self.backends.values())

    def instances_seen(self, path: str) -> bool:
        """True when at least one method of the class ran on an instance of it."""
        return (path, "state", "", "", "") in self.facts


def merge(folder: Path) -> Merged:
    """Add up all `*.jsonl` of a folder; the last line of a process that was killed may be cut short."""
    facts: Counter[Fact] = Counter()
    backends: Counter[str] = Counter()
    notes: dict[str, set[str]] = {"class": set(), "module": set(), "problem": set()}
    ended_early = 0
    for file in sorted(folder.glob("*.jsonl")):
        ended = False
        counts: dict[Fact, int] = {}
        for line in file.read_bytes().split(b"\n")[:-1]:
            *fact, count = json.loads(line)
            path, kind, member, detail, name = fact
            if path:
                counts[path, kind, member, detail, name] = count
            elif kind == "process":
                backends[member] += 1
            elif kind in notes:
                notes[kind].add(member)
            else:
                ended = True
        facts.update(counts)
        ended_early += not ended
    found, modules, problems = (notes[kind] for kind in ("class", "module", "problem"))
    return Merged(
        dict(facts),
        dict(backends),
        frozenset(found),
        frozenset(modules),
        tuple(sorted(problems)),
        ended_early,
    )


def as_document(seen: Merged, classes: list[str]) -> dict[str, Any]:
    """The content of TYPES.json (its schema is in docs/protocols.md), keys sorted."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "backends": dict(sorted(seen.backends.items())),
        "ended_early": seen.ended_early,
        "modules": sorted(seen.modules),
        "classes": {},
    }
    for path in sorted(set(classes)):
        states = seen.facts.get((path, "state", "", "", ""), 0)
        document["classes"][path] = {"states": states, "attributes": {}, "methods": {}}
    for (path, kind, member, detail, name), count in sorted(seen.facts.items()):
        content = document["classes"].get(path)
        if content is None or kind == "state":
            continue
        if kind == "attribute":
            content["attributes"].setdefault(member, {})[name] = count
            continue
        method = content["methods"].setdefault(member, {"calls": 0, "parameters": {}, "returns": {}})
        if kind == "call":
            method["calls"] = count
        elif kind == "return":
            method["returns"][name] = count
        else:
            method["parameters"].setdefault(detail, {})[name] = count
    return document
