"""A slice recipe: what moves where, anchored on names, read from TOML.

Every error in the file is collected and reported at once (MG401), never only the first.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from migration.errors import MigrationError

SCHEMA = 1
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class HandleSpec:
    """A narrow, typed view of the worker: attributes listed here are reached through this handle.

    One handle of a recipe is the `rest`: it carries whatever no other one lists, and stands for the
    worker itself. A recipe that names none gets `host`.
    """

    name: str
    protocol: str
    doc: str
    attributes: tuple[str, ...]
    rest: bool


@dataclass(frozen=True)
class Recipe:
    name: str
    source_file: str
    source_class: str
    #: Title of the banner over the methods, "" where `methods` names them.
    section: str
    target_file: str
    handler_class: str
    handles: tuple[HandleSpec, ...]
    methods: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    late_bound: tuple[str, ...] = ()
    decorators: tuple[str, ...] = ()
    #: Where calls between moved methods go: "worker" (through the worker, as before) or "handler".
    siblings: str = "worker"
    #: Whether every stub keeps a copy of the docstring.
    docstrings: bool = False
    #: Folder that imports start from, relative to the repository.
    import_root: str = ""
    #: Environment variables of the gate: <prefix>_NATIVE and <prefix>_COMPARE.
    gate_prefix: str = ""
    #: (method, effect) where the recipe knows better: "pure", "isolated", or "skip: reason".
    effects: tuple[tuple[str, str], ...] = ()
    #: Attributes whose objects the gate calls once and answers from the record.
    taped: tuple[str, ...] = ()
    #: Added lines that one pull request of the port may have, 0 for no limit.
    budget: int = 0
    #: What the recipe was planned on: method -> SHA-256 of its tree. Empty where nothing was recorded.
    planned: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def source_module(self) -> str:
        return module_name(self.source_file, self.import_root)

    @property
    def target_module(self) -> str:
        return module_name(self.target_file, self.import_root)

    @property
    def what(self) -> str:
        """The slice in words: its banner, or how many methods it names."""
        return self.section or "Methods"

    @property
    def prefix(self) -> str:
        return self.gate_prefix or self.name.upper().replace("-", "_").replace(".", "_")

    @property
    def gate_name(self) -> str:
        """Name of the gate in the worker module."""
        return f"_{self.name.upper().replace('-', '_').replace('.', '_')}_GATE"

    @property
    def host(self) -> HandleSpec:
        """The handle that stands for the worker itself and carries what no other handle lists."""
        return next(handle for handle in self.handles if handle.rest)

    def handle_for(self, attribute: str | None) -> HandleSpec:
        """The handle of an attribute; the host for the bare worker and for computed names (None)."""
        for handle in self.handles:
            if attribute in handle.attributes:
                return handle
        return self.host


def module_name(path: str, import_root: str = "") -> str:
    """`a/b/c.py` -> `a.b.c`, `a/b/__init__.py` -> `a.b`; `src/a/b.py` -> `a.b` under the root `src`."""
    parts = PurePosixPath(path).with_suffix("").parts
    root = PurePosixPath(import_root).parts
    parts = parts[len(root) :] if parts[: len(root)] == root else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


_TABLES: dict[str, dict[str, type]] = {
    "": {"schema": int, "name": str, "source": dict, "target": dict, "handles": list, "planned": dict}
    | {"gate": dict, "port": dict},
    "source": {
        "file": str,
        "class": str,
        "section": str,
        "methods": list,
        "stays": list,
        "decorators": list,
        "import_root": str,
    },
    "target": {"file": str, "class": str, "late_bound": list, "siblings": str, "docstrings": bool},
    "handles": {"name": str, "protocol": str, "doc": str, "attributes": list, "rest": bool},
    "planned": {"bodies": dict},
    "gate": {"prefix": str, "effects": dict, "taped": list},
    "port": {"budget": int},
}
_OPTIONAL = {"gate", "prefix", "effects", "taped", "port", "budget", "handles", "planned"}
_OPTIONAL |= {"section", "methods", "stays", "decorators", "import_root"}
_OPTIONAL |= {"late_bound", "siblings", "docstrings", "attributes", "rest"}


class _Reader:
    def __init__(self) -> None:
        self.problems: list[str] = []

    def check(self, table: Mapping[str, Any], schema: str, where: str) -> None:
        known = _TABLES[schema]
        for key in table.keys() - known.keys():
            near = difflib.get_close_matches(key, known, 1)
            self.problems.append(
                f"{where}{key}: unknown entry" + (f", did you mean {near[0]}?" if near else "")
            )
        for key, kind in known.items():
            if key not in table:
                if key not in _OPTIONAL:
                    self.problems.append(f"{where}{key}: missing")
            elif type(table[key]) is not kind:
                self.problems.append(f"{where}{key}: must be {kind.__name__}, is {table[key]!r}")
            elif kind is list and schema != "" and not all(isinstance(item, str) for item in table[key]):
                self.problems.append(f"{where}{key}: must be a list of strings")

    def identifier(self, where: str, value: Any) -> None:
        if isinstance(value, str) and not value.isidentifier():
            self.problems.append(f"{where}: {value!r} is not a Python name")

    def path(self, where: str, value: Any) -> None:
        if not isinstance(value, str):
            return
        path = PurePosixPath(value)
        parts = path.with_suffix("").parts
        if path.suffix != ".py" or path.is_absolute() or not all(part.isidentifier() for part in parts):
            self.problems.append(f"{where}: {value!r} must be a relative path of an importable .py file")


def parse_recipe(text: str, where: str) -> Recipe:
    """Recipe from TOML text; raises MG401 with every problem found."""
    reader = _Reader()
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MigrationError("MG401", f"{where}: {error}") from error
    reader.check(data, "", "")
    if not reader.problems:
        if data["schema"] != SCHEMA:
            reader.problems.append(f"schema: this version reads schema {SCHEMA}, not {data['schema']}")
        reader.check(data["source"], "source", "source.")
        reader.check(data["target"], "target", "target.")
        reader.check(planned := data.get("planned", {"bodies": {}}), "planned", "planned.")
        for method, digest in planned["bodies"].items() if isinstance(planned.get("bodies"), dict) else ():
            if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
                reader.problems.append(f"planned.bodies.{method}: must be a SHA-256 in hexadecimal")
        for index, handle in enumerate(data.get("handles", ())):
            if not isinstance(handle, dict):
                reader.problems.append(f"handles[{index}]: must be a table")
                continue
            reader.check(handle, "handles", f"handles[{index}].")
            reader.identifier(f"handles[{index}].name", handle.get("name"))
            reader.identifier(f"handles[{index}].protocol", handle.get("protocol"))
        for table in ("source", "target"):
            reader.path(f"{table}.file", data[table].get("file"))
            reader.identifier(f"{table}.class", data[table].get("class"))
        reader.check(data.get("gate", {}), "gate", "gate.")
        reader.check(data.get("port", {}), "port", "port.")
        effects = data.get("gate", {}).get("effects", {})
        for method, effect in effects.items() if isinstance(effects, dict) else ():
            if effect not in ("pure", "isolated") and not str(effect).startswith("skip: "):
                reader.problems.append(
                    f"gate.effects.{method}: must be 'pure', 'isolated' or 'skip: <reason>'"
                )
        if bool(data["source"].get("section")) == bool(data["source"].get("methods")):
            reader.problems.append("source: either `section` (a banner) or `methods` (names) must be given")
        if data["target"].get("siblings", "worker") not in ("worker", "handler"):
            reader.problems.append("target.siblings: must be 'worker' or 'handler'")
    if not reader.problems:
        _check_handles(reader, data)
    if reader.problems:
        raise MigrationError("MG401", f"{where}: " + "; ".join(reader.problems))
    source, target = data["source"], data["target"]
    specs = [
        HandleSpec(h["name"], h["protocol"], h["doc"], tuple(h.get("attributes", ())), h.get("rest", False))
        for h in data.get("handles", ())
    ]
    if not any(spec.rest for spec in specs):
        specs.append(host_handle(source["class"]))
    return Recipe(
        name=data["name"],
        source_file=source["file"],
        source_class=source["class"],
        section=source.get("section", ""),
        target_file=target["file"],
        handler_class=target["class"],
        handles=tuple(specs),
        methods=tuple(source.get("methods", ())),
        stays=tuple(source.get("stays", ())),
        late_bound=tuple(target.get("late_bound", ())),
        decorators=tuple(source.get("decorators", ())),
        siblings=target.get("siblings", "worker"),
        docstrings=target.get("docstrings", False),
        import_root=source.get("import_root", ""),
        planned=dict(data.get("planned", {}).get("bodies", {})),
        gate_prefix=data.get("gate", {}).get("prefix", ""),
        effects=tuple(data.get("gate", {}).get("effects", {}).items()),
        taped=tuple(data.get("gate", {}).get("taped", ())),
        budget=data.get("port", {}).get("budget", 0),
    )


def host_handle(class_name: str) -> HandleSpec:
    """The handle of a recipe that has not named everything yet."""
    doc = f"What the methods need from their {class_name}, until the recipe names it in narrower handles."
    return HandleSpec("host", f"{class_name.lstrip('_')}Host", doc, (), True)


def _check_handles(reader: _Reader, data: Mapping[str, Any]) -> None:
    handles = data.get("handles", ())
    if sum(handle.get("rest", False) for handle in handles) > 1:
        reader.problems.append("handles: only one may have `rest = true`")
    for kind in ("name", "protocol"):
        values = [handle[kind] for handle in handles]
        repeated = sorted({value for value in values if values.count(value) > 1})
        reader.problems += [f"handles: {kind} {value} is used twice" for value in repeated]
    owners: dict[str, str] = {}
    for handle in handles:
        for attribute in handle.get("attributes", ()):
            if attribute in owners:
                problem = f"handles: {attribute} is listed by {owners[attribute]} and {handle['name']}"
                reader.problems.append(problem)
            owners[attribute] = handle["name"]
    if data["target"]["class"] in {handle["protocol"] for handle in handles}:
        reader.problems.append("target.class: also the name of a protocol")
