"""What the wild job works on: the rows of corpus.toml as values."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Everything that the job downloads and writes; git ignores it.
OUT = HERE.parent / "out" / "wild"


@dataclass(frozen=True)
class Package:
    """One distribution on PyPI, pinned by version and hash."""

    name: str
    version: str
    file: str
    sha256: str
    #: (file relative to the unpacked folder, class): what `migrate` is tried on.
    classes: tuple[tuple[str, str], ...]
    #: The wanted files of a wheel; empty for all of its .py files.
    only: tuple[str, ...]

    @property
    def is_wheel(self) -> bool:
        return self.file.endswith(".whl")

    @property
    def folder(self) -> Path:
        """Where it lies unpacked; treat it as read-only."""
        return OUT / "src" / f"{self.name}-{self.version}"


@lru_cache(maxsize=1)
def corpus() -> dict[str, Package]:
    """Every package of corpus.toml by name."""
    rows = tomllib.loads((HERE / "corpus.toml").read_text(encoding="utf-8"))
    return {name: _package(name, row) for name, row in rows.items()}


def _package(name: str, row: dict[str, object]) -> Package:
    wanted = {"version", "file", "sha256", "classes", "only"}
    if unknown := row.keys() - wanted:
        raise ValueError(f"corpus.toml: [{name}] has unknown entries: {', '.join(sorted(unknown))}")
    classes = [str(entry).split(" :: ") for entry in _strings(row.get("classes", []))]
    return Package(
        name=name,
        version=str(row["version"]),
        file=str(row["file"]),
        sha256=str(row["sha256"]),
        classes=tuple((file, class_name) for file, class_name in classes),
        only=_strings(row.get("only", [])),
    )


def _strings(value: object) -> tuple[str, ...]:
    assert isinstance(value, list), value
    return tuple(str(item) for item in value)
