"""A slice recipe: what moves where, anchored on names, read from TOML.

Every error in the file is collected and reported at once (MG401), never only the first.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from migration.errors import MigrationError
from migration.patterns import RewriteSpec, normal
from migration.recipe_check import SCHEMA, problems, rewrite_spec

__all__ = [
    "SCHEMA",
    "HandleSpec",
    "Recipe",
    "RewriteSpec",
    "SnapshotSpec",
    "host_handle",
    "module_name",
    "parse_recipe",
]


@dataclass(frozen=True)
class HandleSpec:
    """What moved code reaches under one name, typed by a Protocol.

    With `attributes` it is a narrow view of the worker. With `expressions` it is the object that they
    give: the first says where it is read at each use, the others stand for the same object. With an
    `adapter` (`module:Class`) it is what that class makes of a function that gives the object, or the
    worker. One handle of a recipe is the `rest`: it carries whatever no other one lists, and stands for
    the worker itself. A recipe that names none gets `host`. One may be the `request`: it is no parameter of
    the constructor, but bound by `on` to a copy of the handler; `for_worker` binds the worker.
    """

    name: str
    protocol: str
    doc: str
    attributes: tuple[str, ...]
    rest: bool
    expressions: tuple[str, ...] = ()
    adapter: str = ""
    #: The Protocol word for word, or `module:Name` of one that is there already; "" where it is inferred.
    protocol_text: str = ""
    protocol_from: str = ""
    request: bool = False

    @property
    def is_given(self) -> bool:
        """True where the recipe says what the Protocol is."""
        return bool(self.protocol_text or self.protocol_from)

    @property
    def is_worker(self) -> bool:
        """True where the handle is the worker itself, seen in part."""
        return not (self.expressions or self.adapter)


@dataclass(frozen=True)
class SnapshotSpec:
    """Configuration that is read once, when a handler is made, into a frozen dataclass `class_name`.

    `fields` are paths from the worker (`args.max_tokens`); the last part is the name of the field.
    """

    name: str
    class_name: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class HasattrSpec:
    """What becomes of the `hasattr` and `getattr` calls on self in moved code.

    `apply` are verdicts ("always", "never") whose calls are replaced. Of the attributes in `constant` every
    call must be proved; those in `optional` are declared in `__init__` before they move, `places` says behind
    which other attribute; `capability` are methods of some subclasses. `accept` are obstacles to a proof that
    the recipe vouches for, each with its reason.
    """

    apply: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    capability: tuple[str, ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    accept: tuple[tuple[str, str], ...] = ()

    @property
    def accepted(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.accept)


@dataclass(frozen=True)
class AdapterEntry:
    """An adapter class to be written: the Protocol of `handle` on the class `wraps` (`module:Class`).

    `members` are (member of the Protocol, name in the wrapped class, ((parameter of the member, parameter of
    the wrapped method), ...)); a member that is not listed keeps its name.
    """

    handle: str
    name: str
    file: str
    wraps: str
    members: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = ()


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
    #: `module:Class`, written by hand, that the handler class inherits from; "" for none.
    base: str = ""
    #: Whether every stub keeps a copy of the docstring.
    docstrings: bool = False
    #: Folder that imports start from, relative to the repository.
    import_root: str = ""
    #: Environment variables of the gate: <prefix>_NATIVE and <prefix>_COMPARE.
    gate_prefix: str = ""
    #: (method, effect) where the recipe knows better: "pure", "isolated", "planned" or "skip: reason".
    effects: tuple[tuple[str, str], ...] = ()
    #: Attributes whose objects the gate calls once and answers from the record.
    taped: tuple[str, ...] = ()
    #: Attributes that hold callables of the caller: called once and answered from the record.
    callbacks: tuple[str, ...] = ()
    #: Classes, as `package.module.Name`, whose attributes moved code sets: put back for the handler, and compared.
    shared: tuple[str, ...] = ()
    #: (part, methods): parts of the gate that have flags of their own.
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    #: `module:Class`, written by hand, that stubs, gates and delegates call instead of the handler; "" for none.
    route: str = ""
    #: Added lines that one pull request of the port may have, 0 for no limit.
    budget: int = 0
    #: What the recipe was planned on: method -> SHA-256 of its tree. Empty where nothing was recorded.
    planned: Mapping[str, str] = field(default_factory=dict, hash=False)
    rewrites: tuple[RewriteSpec, ...] = ()
    snapshot: SnapshotSpec | None = None
    adapters: tuple[AdapterEntry, ...] = ()
    hasattr: HasattrSpec | None = None
    #: File of `migrate trace` that types what the class leaves open, "" for none.
    types: str = ""
    #: File for strict fakes of the Protocols, "" for none.
    fakes: str = ""
    #: Files written by hand that belong to the slice.
    human: tuple[str, ...] = ()
    #: Only a part of the slice: what the recipe declares need not occur in it.
    partial: bool = False

    @property
    def source_module(self) -> str:
        return module_name(self.source_file, self.import_root)

    @property
    def target_module(self) -> str:
        return module_name(self.target_file, self.import_root)

    @property
    def served(self) -> tuple[str, str]:
        """(module, class) that the class's own methods call: the route, or the handler."""
        module, _, name = self.route.partition(":")
        return (module, name) if self.route else (self.target_module, self.handler_class)

    @property
    def generated(self) -> tuple[str, ...]:
        """Files that the slice adds beside the handler module."""
        adapters = dict.fromkeys(adapter.file for adapter in self.adapters)
        return (*adapters, *([self.fakes] if self.fakes else []))

    @property
    def what(self) -> str:
        """The slice in words: its banner, or how many methods it names."""
        return self.section or "Methods"

    @property
    def prefix(self) -> str:
        return self.gate_prefix or self.name.upper().replace("-", "_").replace(".", "_")

    @property
    def switches(self) -> tuple[str, ...]:
        """The variables that switch the gate and its parts."""
        prefixes = (self.prefix, *(f"{self.prefix}_{part}" for part, _ in self.parts))
        return tuple(f"{prefix}_{word}" for prefix in prefixes for word in ("NATIVE", "COMPARE"))

    @property
    def gate_name(self) -> str:
        """Name of the gate in the worker module."""
        return f"_{self.name.upper().replace('-', '_').replace('.', '_')}_GATE"

    @property
    def request(self) -> HandleSpec | None:
        """The handle that `on` binds."""
        return next((handle for handle in self.handles if handle.request), None)

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


def parse_recipe(text: str, where: str) -> Recipe:
    """Recipe from TOML text; raises MG401 with every problem found."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MigrationError("MG401", f"{where}: {error}") from error
    if found := problems(text, data):
        raise MigrationError("MG401", f"{where}: {found}")
    source, target = data["source"], data["target"]
    adapters = tuple(map(_adapter, data.get("adapters", ())))
    root = source.get("import_root", "")
    made = {one.handle: f"{module_name(one.file, root)}:{one.name}" for one in adapters}
    specs = [_handle(entry, made) for entry in data.get("handles", ())]
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
        base=target.get("base", ""),
        docstrings=target.get("docstrings", False),
        import_root=source.get("import_root", ""),
        planned=dict(data.get("planned", {}).get("bodies", {})),
        gate_prefix=data.get("gate", {}).get("prefix", ""),
        effects=tuple(data.get("gate", {}).get("effects", {}).items()),
        taped=tuple(data.get("gate", {}).get("taped", ())),
        callbacks=tuple(data.get("gate", {}).get("callbacks", ())),
        shared=tuple(data.get("gate", {}).get("shared", ())),
        parts=tuple((part, tuple(names)) for part, names in data.get("gate", {}).get("parts", {}).items()),
        route=data.get("gate", {}).get("route", ""),
        budget=data.get("port", {}).get("budget", 0),
        rewrites=tuple(map(rewrite_spec, data.get("rewrites", ()))),
        snapshot=_snapshot(data.get("snapshot")),
        adapters=adapters,
        hasattr=_hasattr(data.get("hasattr")),
        types=target.get("types", ""),
        fakes=target.get("fakes", ""),
        human=tuple(data.get("human", {}).get("files", ())),
    )


def _adapter(entry: Mapping[str, Any]) -> AdapterEntry:
    members = []
    for member, to in entry.get("members", {}).items():
        found: Mapping[str, Any] = {"name": to} if isinstance(to, str) else to
        parameters = tuple(found.get("parameters", {}).items())
        members.append((member, found.get("name", member), parameters))
    return AdapterEntry(entry["handle"], entry["name"], entry["file"], entry["wraps"], tuple(members))


def _handle(entry: Mapping[str, Any], adapters: Mapping[str, str]) -> HandleSpec:
    return HandleSpec(
        entry["name"],
        entry["protocol"],
        entry["doc"],
        tuple(entry.get("attributes", ())),
        entry.get("rest", False),
        tuple(map(normal, entry.get("expressions", ()))),
        entry.get("adapter", "") or adapters.get(entry["name"], ""),
        textwrap.dedent(entry.get("protocol_text", "")).strip("\n"),
        entry.get("protocol_from", ""),
        entry.get("request", False),
    )


def _snapshot(entry: Mapping[str, Any] | None) -> SnapshotSpec | None:
    return SnapshotSpec(entry["name"], entry["class"], tuple(entry["fields"])) if entry else None


def _hasattr(entry: Mapping[str, Any] | None) -> HasattrSpec | None:
    if not entry:
        return None
    kinds = entry.get("attributes", {})
    constant, optional, capability = (
        tuple(name for name, kind in kinds.items() if kind == wanted)
        for wanted in ("constant", "optional", "capability")
    )
    places = tuple((name, place["after"]) for name, place in entry.get("declare", {}).items())
    accept = tuple(entry.get("accept", {}).items())
    return HasattrSpec(tuple(entry.get("apply", ())), constant, optional, capability, places, accept)


def host_handle(class_name: str) -> HandleSpec:
    """The handle of a recipe that has not named everything yet."""
    doc = f"What the methods need from their {class_name}, until the recipe names it in narrower handles."
    return HandleSpec("host", f"{class_name.lstrip('_')}Host", doc, (), True)
