"""Shadow runs that a tree has kept: report files, and what gates wrote in compare mode."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.json_report import from_json
from reports.model import Report, Status

_SKIPPED = {"node_modules", "__pycache__", "site-packages"}
_ENDINGS = (".json", ".jsonl")
#: A report is kept below a megabyte; what gates wrote grows, and its summaries stand at its end.
_LARGEST, _TAIL = 32 << 20, 1 << 20
_GATE_WORDS = {0: "equal", 1: "diverged", 2: "harness failed", 3: "coverage short"}


@dataclass(frozen=True)
class Evidence:
    """One run. `compared` counts values or calls by what they are; `current`: it ran this very file of the class
    (None where the run does not say which). `gate` is the gate it is of, "" for a run of whole workers."""

    path: str
    kind: str
    gate: str
    worker: str
    verdict: str
    headline: str
    compared: tuple[tuple[str, int], ...]
    current: bool | None
    modified: float

    @property
    def total(self) -> int:
        return sum(count for _, count in self.compared)


def find_evidence(root: Path) -> tuple[Evidence, ...]:
    """Every run in the tree and in its out/, the newest file first."""
    found = [one for path in _candidates(root) for one in _read(root, path)]
    return tuple(sorted(found, key=lambda one: (-one.modified, one.path, one.gate)))


def about(
    found: Sequence[Evidence], prefixes: Sequence[str], source_file: str, digest: str
) -> list[Evidence]:
    """The runs of one slice: those of its gates, and those of workers of its file; of this very file first."""
    mine = []
    for one in found:
        if one.gate in prefixes:
            mine.append(one)
        elif not one.gate and Path(one.worker.partition(" (sha256 ")[0]).as_posix().endswith(
            f"/{source_file}"
        ):
            known = one.worker.partition(" (sha256 ")[2].rstrip(")")
            mine.append(_dated(one, bool(known) and digest.startswith(known)))
    return sorted(mine, key=lambda one: one.current is False)


def digest_of(file: Path) -> str:
    """As the harness names a worker's file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _dated(one: Evidence, current: bool) -> Evidence:
    values = (one.path, one.kind, one.gate, one.worker, one.verdict, one.headline, one.compared)
    return Evidence(*values, current, one.modified)


def _candidates(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED
            and not name.startswith(".")
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
        )
        yield from (Path(folder) / name for name in sorted(files) if name.endswith(_ENDINGS))


def _read(root: Path, path: Path) -> Iterator[Evidence]:
    """The runs in one file; none where it is something else, or cannot be read."""
    try:
        size, modified = path.stat().st_size, path.stat().st_mtime
        with open(path, "rb") as file:
            head = file.read(400)
            where = path.relative_to(root).as_posix()
            if b'"report/1"' in head and size <= _LARGEST:
                yield from _of_report(where, from_json(head + file.read()), modified)
            elif head.startswith(b'{"record"'):
                file.seek(max(0, size - _TAIL))
                yield from _of_gates(where, file.read(), modified)
    except (OSError, ValueError):
        return


def _of_report(path: str, report: Report, modified: float) -> Iterator[Evidence]:
    facts = {fact.name: fact.value for fact in report.facts}
    worker = facts.get("candidate worker", "")
    compared = tuple((check.name, check.count) for check in report.checks)
    if not worker:
        return
    verdict = report.verdict.status.value
    if report.verdict.status is Status.PASS and not any(count for _, count in compared):
        verdict = Status.SHORT.value
    yield Evidence(path, report.title, "", worker, verdict, report.verdict.headline, compared, None, modified)


def _of_gates(path: str, text: bytes, modified: float) -> Iterator[Evidence]:
    """The last summary of each gate: the file is appended to, run after run."""
    last: dict[str, Evidence] = {}
    for line in text.splitlines():
        try:
            value = json.loads(line)
            if value["record"] != "summary":
                continue
            compared = tuple((name, int(count["compared"])) for name, count in value["methods"].items())
            verdict = _GATE_WORDS[value["verdict"]]
            gate, said = str(value["gate"]), str(value["line"])
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # the first line may be the end of one, the last one may be half written
        if verdict == "equal" and not any(count for _, count in compared):
            verdict = _GATE_WORDS[3]
        last[gate] = Evidence(path, "compare mode", gate, "", verdict, said, compared, None, modified)
    yield from last.values()
