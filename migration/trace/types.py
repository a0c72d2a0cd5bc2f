"""What a trace says about one class: the type of each place that was recorded, and how it is known.

Pure apart from `load_types`; imports nothing of migrate but its errors.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migration.errors import MigrationError
from migration.trace.merge import SCHEMA
from migration.trace.unions import one_type, qualified_names

#: Modules of the names that the probe gives to types of its own accord.
_STANDARD = frozenset({"collections", "collections.abc", "types", "typing"})


@dataclass(frozen=True)
class Traced:
    """The type of one place.

    `text` has module-qualified names, and is "Any" where `evidence` says why; `classes` gives for each
    name in it that is not built in the (module, name) to import.
    """

    text: str
    evidence: str
    classes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class TracedTypes:
    """What a trace recorded of one class; every lookup gives None for a place that it did not see."""

    class_path: str
    attributes: Mapping[str, Mapping[str, int]]
    parameters: Mapping[tuple[str, str], Mapping[str, int]]
    returns: Mapping[str, Mapping[str, int]]
    modules: frozenset[str]
    calls: int

    def type_of(self, attribute: str) -> Traced | None:
        """Type of an instance attribute, or of a property that was read."""
        return self._typed(self.attributes.get(attribute) or self.returns.get(f"{attribute}.getter"))

    def parameter_of(self, method: str, parameter: str) -> Traced | None:
        """Type of a parameter (`*args`, `**kwargs`: of their elements)."""
        return self._typed(self.parameters.get((method, parameter)))

    def return_of(self, method: str) -> Traced | None:
        """Type of what a method returns; of an `async def` what awaiting it gives."""
        return self._typed(self.returns.get(method))

    def _typed(self, counts: Mapping[str, int] | None) -> Traced | None:
        if not counts:
            return None
        text, problem = one_type(counts)
        evidence = f"traced in {self.calls} call{'s' * (self.calls != 1)}"
        if problem:
            return Traced(text, f"{evidence}: {problem}")
        return Traced(text, evidence, tuple(sorted(set(self._classes(text)))))

    def _classes(self, text: str) -> Iterator[tuple[str, str]]:
        for name in qualified_names(ast.parse(text, mode="eval").body):
            parts = name.split(".")
            ends = [n for n in range(1, len(parts)) if ".".join(parts[:n]) in self.modules | _STANDARD]
            if ends:
                yield ".".join(parts[: ends[-1]]), ".".join(parts[ends[-1] :])


def load_types(path: Path, class_path: str | None = None) -> TracedTypes:
    """What a file of `migrate trace` says of a class (default: its only one).

    MG303 when the file does not exist, MG521 when it is none of ours, MG524 when the class is not in it.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MigrationError("MG303", f"{path} does not exist") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise MigrationError("MG521", f"{path}: {error}") from error
    return parse_types(document, class_path, str(path))


def parse_types(document: Any, class_path: str | None, where: str) -> TracedTypes:
    """`load_types` for a document that has been read."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else None
        raise MigrationError("MG521", f"{where}: schema {found!r}, this version reads {SCHEMA}")
    try:
        classes: dict[str, Any] = document["classes"]
        if class_path is None and len(classes) == 1:
            class_path = next(iter(classes))
        if class_path is None or class_path not in classes:
            message = f"{where}: {class_path or 'which class'}? It has {', '.join(classes) or 'none'}"
            raise MigrationError("MG524", message)
        content = classes[class_path]
        methods: dict[str, Any] = content["methods"]
        return TracedTypes(
            class_path,
            {name: dict(counts) for name, counts in content["attributes"].items()},
            {
                (name, parameter): dict(counts)
                for name, method in methods.items()
                for parameter, counts in method["parameters"].items()
            },
            {name: dict(method["returns"]) for name, method in methods.items()},
            frozenset(document["modules"]),
            sum(method["calls"] for method in methods.values()),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MigrationError("MG521", f"{where}: {type(error).__name__}: {error}") from error
