"""A recipe as TOML text, with comments: what `parse_recipe` reads back as the same recipe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from migration.recipe import SCHEMA, AdapterEntry, HandleSpec, HasattrSpec, Recipe, SnapshotSpec

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_WIDTH = 100


@dataclass(frozen=True)
class Comments:
    """What to say beside a recipe: at its head, and behind a method in its list."""

    head: Sequence[str] = ()
    methods: Mapping[str, str] = field(default_factory=dict)
    stays: Mapping[str, str] = field(default_factory=dict)


def recipe_text(recipe: Recipe, comments: Comments | None = None) -> str:
    """TOML of a recipe; entries that have their default are left out. A partial recipe has no text of its own."""
    said = comments or Comments()
    source: list[str] = [_entry("file", recipe.source_file), _entry("class", recipe.source_class)]
    if recipe.import_root:
        source.append(_entry("import_root", recipe.import_root))
    if recipe.section:
        source.append(_entry("section", recipe.section))
    if recipe.methods:
        source.append(_list("methods", recipe.methods, said.methods))
    if recipe.stays:
        source.append(_list("stays", recipe.stays, said.stays))
    if recipe.decorators:
        source.append(_list("decorators", recipe.decorators))
    target = [_entry("file", recipe.target_file), _entry("class", recipe.handler_class)]
    if recipe.base:
        target.append(_entry("base", recipe.base))
    if recipe.siblings != "worker":
        target.append(_entry("siblings", recipe.siblings))
    if recipe.late_bound:
        target.append(_list("late_bound", recipe.late_bound))
    if recipe.docstrings:
        target.append("docstrings = true")
    beside = (("types", recipe.types), ("fakes", recipe.fakes))
    target += [_entry(key, value) for key, value in beside if value]
    written = {adapter.handle for adapter in recipe.adapters}
    gate = [_entry("prefix", recipe.gate_prefix)] if recipe.gate_prefix else []
    gate += [_entry("route", recipe.route)] if recipe.route else []
    gate += [_list("taped", recipe.taped)] if recipe.taped else []
    gate += [_list("callbacks", recipe.callbacks)] if recipe.callbacks else []
    gate += [_list("shared", recipe.shared)] if recipe.shared else []
    parts = [
        [*(_comment(line) for line in said.head), f"schema = {SCHEMA}", _entry("name", recipe.name)],
        ["[source]", *source],
        ["[target]", *target],
        *(_handle(handle, handle.name in written) for handle in recipe.handles),
        *(["[[rewrites]]", _entry("from", r.before), _entry("to", r.after)] for r in recipe.rewrites),
        _snapshot(recipe.snapshot) if recipe.snapshot else [],
        *(_adapter(adapter) for adapter in recipe.adapters),
        _hasattr(recipe.hasattr) if recipe.hasattr else [],
        ["[gate]", *gate] if gate else [],
        ["[gate.effects]", *_table(recipe.effects)] if recipe.effects else [],
        ["[gate.parts]", *(_list(part, names) for part, names in recipe.parts)] if recipe.parts else [],
        ["[human]", _list("files", recipe.human)] if recipe.human else [],
        ["[port]", f"budget = {recipe.budget}"] if recipe.budget else [],
        ["[planned.bodies]", *_table(recipe.planned.items())] if recipe.planned else [],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _snapshot(snapshot: SnapshotSpec) -> list[str]:
    head = [_entry("name", snapshot.name), _entry("class", snapshot.class_name)]
    return ["[snapshot]", *head, _list("fields", snapshot.fields)]


def _hasattr(asked: HasattrSpec) -> list[str]:
    kinds = (("constant", asked.constant), ("optional", asked.optional), ("capability", asked.capability))
    attributes = _table((name, kind) for kind, names in kinds for name in names)
    places = [f"{_key(name)} = {{ {_entry('after', after)} }}" for name, after in asked.places]
    parts = [
        ["[hasattr]", _list("apply", asked.apply)] if asked.apply else [],
        ["[hasattr.attributes]", *attributes] if attributes else [],
        ["[hasattr.declare]", *places] if places else [],
        ["[hasattr.accept]", *_table(asked.accept)] if asked.accept else [],
    ]
    return [line for part in parts for line in part]


def _adapter(adapter: AdapterEntry) -> list[str]:
    entries = (("handle", adapter.handle), ("name", adapter.name), ("file", adapter.file))
    lines = ["[[adapters]]", *(_entry(key, value) for key, value in (*entries, ("wraps", adapter.wraps)))]
    lines += ["", "[adapters.members]"] if adapter.members else []
    for member, to, parameters in adapter.members:
        value = _string(to)
        if parameters:
            value = f"{{ name = {value}, parameters = {{ {', '.join(_table(parameters))} }} }}"
        lines.append(f"{_key(member)} = {value}")
    return lines


def _handle(handle: HandleSpec, adapter_is_written: bool) -> list[str]:
    lines = ["[[handles]]", _entry("name", handle.name), _entry("protocol", handle.protocol)]
    lines.append(_entry("doc", handle.doc))
    if handle.attributes:
        lines.append(_list("attributes", handle.attributes))
    if handle.expressions:
        lines.append(_list("expressions", handle.expressions))
    given = (
        ("adapter", "" if adapter_is_written else handle.adapter),
        ("protocol_from", handle.protocol_from),
    )
    lines += [_entry(key, value) for key, value in (*given, ("protocol_text", handle.protocol_text)) if value]
    return [*lines, *(f"{key} = true" for key in ("rest", "request") if getattr(handle, key))]


def _table(items: Iterable[tuple[str, str]]) -> list[str]:
    return [_entry(_key(key), value) for key, value in items]


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _entry(key: str, value: str) -> str:
    return f"{key} = {_string(value)}"


def _list(key: str, values: Sequence[str], comments: Mapping[str, str] | None = None) -> str:
    """On one line where it fits and nothing is said about its items."""
    said = comments or {}
    line = f"{key} = [{', '.join(map(_string, values))}]"
    if len(line) <= _WIDTH and not any(value in said for value in values):
        return line
    items = (
        f"    {_string(value)}," + (f"  {_comment(said[value])}" if value in said else "") for value in values
    )
    return "\n".join((f"{key} = [", *items, "]"))


def _comment(text: str) -> str:
    return f"# {''.join(c if c.isprintable() else ' ' for c in text)}".rstrip()


def _string(text: str) -> str:
    """A basic string; characters that TOML does not allow in one are escaped."""
    return f'"{"".join(_ESCAPES.get(c) or (c if c.isprintable() or c == " " else _code(c)) for c in text)}"'


def _code(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
