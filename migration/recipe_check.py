"""The entries that a recipe may have, and everything that is wrong with one, with lines."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from pathlib import PurePosixPath
from typing import Any, Final

from migration.literal_protocols import protocol_class
from migration.patterns import PatternError, RewriteSpec, contains, expression, links, mentions_self, normal
from migration.presence.capability import capability_name
from migration.recipe_checklist_check import checklist_problems
from migration.toml_lines import key_lines, line_of

SCHEMA: Final = 1
_DIGEST = re.compile("[0-9a-f]{64}")
_PART = re.compile("[A-Z][A-Z0-9_]*")

#: Table -> entry -> its type; a `?` after the name of an entry: it may be left out.
TABLES: Final[dict[str, dict[str, type]]] = {
    "": {
        "schema": int,
        "name": str,
        "source": dict,
        "target": dict,
        "handles?": list,
        "rewrites?": list,
        "snapshot?": dict,
        "adapters?": list,
        "hasattr?": dict,
        "planned?": dict,
        "gate?": dict,
        "port?": dict,
        "human?": dict,
        "checklist?": dict,
    },
    "source": {
        "file": str,
        "class": str,
        "section?": str,
        "methods?": list,
        "stays?": list,
        "decorators?": list,
        "import_root?": str,
    },
    "target": {
        "file": str,
        "class": str,
        "base?": str,
        "late_bound?": list,
        "siblings?": str,
        "docstrings?": bool,
        "types?": str,
        "fakes?": str,
    },
    "handles": {
        "name": str,
        "protocol": str,
        "doc": str,
        "attributes?": list,
        "rest?": bool,
        "request?": bool,
        "expressions?": list,
        "adapter?": str,
        "protocol_text?": str,
        "protocol_from?": str,
    },
    "snapshot": {"name": str, "class": str, "fields": list},
    "rewrites": {"from": str, "to": str},
    "hasattr": {"apply?": list, "attributes?": dict, "declare?": dict, "accept?": dict},
    "adapters": {"handle": str, "name": str, "file": str, "wraps": str, "members?": dict},
    "planned": {"bodies": dict},
    "gate": {
        "prefix?": str,
        "effects?": dict,
        "taped?": list,
        "callbacks?": list,
        "shared?": list,
        "parts?": dict,
        "route?": str,
    },
    "port": {"budget?": int},
    "human": {"files": list},
    "checklist": {"items?": list, "waivers?": list, "flag?": dict, "budget?": dict, "tests?": dict},
}


class Problems:
    """What is wrong with one recipe, in the order in which it was found."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[tuple[str, str]] = []

    def add(self, path: str, message: str) -> None:
        if (path, message) not in self._found:
            self._found.append((path, message))

    def __bool__(self) -> bool:
        return bool(self._found)

    def __str__(self) -> str:
        """All of them in the order of the lines."""
        lines = key_lines(self._text)
        placed = sorted((line_of(path, lines), index) for index, (path, _) in enumerate(self._found))
        shown = []
        for line, index in placed:
            path, message = self._found[index]
            shown.append((f"line {line}: " if line else "") + f"{path}: {message}")
        return "; ".join(shown)


def problems(text: str, data: Mapping[str, Any]) -> Problems:
    """Everything that is wrong with a recipe whose TOML is well formed."""
    found = Problems(text)
    checker = _Checker(data, found)
    checker.entries()
    if not found:
        checker.values()
        checklist_problems(data, found.add, near)
    if not found:
        checker.handles()
    if not found:
        checker.rewrites()
        checker.snapshot()
        checker.adapters()
        checker.human()
        checker.hasattr()
    return found


def near(name: str, known: Iterable[str]) -> str:
    """ ", did you mean x?" where something is close."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f", did you mean {close[0]}?" if close else ""


class _Checker:
    def __init__(self, data: Mapping[str, Any], found: Problems) -> None:
        self.data = data
        self.add = found.add

    def entries(self) -> None:
        """Names and types of all entries."""
        self._table(self.data, "", "")
        for name in TABLES:
            part = self.data.get(name)
            if name and isinstance(part, dict):
                self._table(part, name, f"{name}.")
            elif name and isinstance(part, list):
                for index, item in enumerate(part):
                    if isinstance(item, dict):
                        self._table(item, name, f"{name}[{index}].")
                    else:
                        self.add(f"{name}[{index}]", "must be a table")

    def _table(self, table: Mapping[str, Any], schema: str, where: str) -> None:
        known = {key.rstrip("?"): kind for key, kind in TABLES[schema].items()}
        for key in table.keys() - known.keys():
            self.add(f"{where}{key}", f"unknown entry{near(key, known)}")
        for key, kind in known.items():
            if key not in table:
                if f"{key}?" not in TABLES[schema]:
                    self.add(f"{where}{key}", "missing")
            elif type(table[key]) is not kind:
                self.add(f"{where}{key}", f"must be {kind.__name__}, is {table[key]!r}")
            elif (
                kind is list
                and schema not in ("", "checklist")
                and not all(isinstance(item, str) for item in table[key])
            ):
                self.add(f"{where}{key}", "must be a list of strings")

    def values(self) -> None:
        data = self.data
        if data["schema"] != SCHEMA:
            self.add("schema", f"this version reads schema {SCHEMA}, not {data['schema']}")
        for method, digest in data.get("planned", {"bodies": {}})["bodies"].items():
            if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
                self.add(f"planned.bodies.{method}", "must be a SHA-256 in hexadecimal")
        for index, handle in enumerate(data.get("handles", ())):
            self._identifier(f"handles[{index}].name", handle["name"])
            self._identifier(f"handles[{index}].protocol", handle["protocol"])
        for table in ("source", "target"):
            self._path(f"{table}.file", data[table]["file"])
            self._identifier(f"{table}.class", data[table]["class"])
        self._class("target.base", data["target"].get("base", ""))
        self._class("gate.route", data.get("gate", {}).get("route", ""))
        for method, effect in data.get("gate", {}).get("effects", {}).items():
            if effect not in ("pure", "isolated", "planned") and not str(effect).startswith("skip: "):
                self.add(
                    f"gate.effects.{method}", "must be 'pure', 'isolated', 'planned' or 'skip: <reason>'"
                )
        for name in data.get("gate", {}).get("callbacks", ()):
            self._identifier("gate.callbacks", name)
        self._parts(data.get("gate", {}).get("parts", {}))
        if bool(data["source"].get("section")) == bool(data["source"].get("methods")):
            self.add("source", "either `section` (a banner) or `methods` (names) must be given")
        if data["target"].get("siblings", "worker") not in ("worker", "handler"):
            self.add("target.siblings", "must be 'worker' or 'handler'")

    def _parts(self, parts: Mapping[str, Any]) -> None:
        """Each is a list of methods, and a method is in one of them."""
        seen: dict[str, str] = {}
        for part, names in parts.items():
            where = f"gate.parts.{part}"
            if not _PART.fullmatch(part):
                self.add(where, "must be capitals, digits and underscores: it is part of a variable's name")
            if not names or not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                self.add(where, "must be a list of methods")
                continue
            for name in names:
                if name in seen:
                    self.add(where, f"{name} is in {seen[name]} already")
                seen.setdefault(name, part)

    def _identifier(self, where: str, value: str) -> None:
        if not value.isidentifier():
            self.add(where, f"{value!r} is not a Python name")

    def _path(self, where: str, value: str) -> None:
        path = PurePosixPath(value)
        parts = path.with_suffix("").parts
        if path.suffix != ".py" or path.is_absolute() or not all(part.isidentifier() for part in parts):
            self.add(where, f"{value!r} must be a relative path of an importable .py file")

    def handles(self) -> None:
        handles = self.data.get("handles", ())
        rests = [index for index, handle in enumerate(handles) if handle.get("rest", False)]
        if len(rests) > 1:
            self.add(f"handles[{rests[1]}].rest", "only one may have `rest = true`")
        requests = [index for index, handle in enumerate(handles) if handle.get("request", False)]
        if len(requests) > 1:
            self.add(f"handles[{requests[1]}].request", "only one may have `request = true`")
        names = {handle["name"] for handle in handles} | {self.data.get("snapshot", {}).get("name")}
        for index in requests:
            slot = f"bound_{handles[index]['name']}"
            if slot in names:
                self.add(f"handles[{index}].request", f"{slot} is the name of another one")
        self._once("name")
        self._once("protocol")
        owners: dict[str, str] = {}
        for index, handle in enumerate(handles):
            where = f"handles[{index}]"
            for attribute in handle.get("attributes", ()):
                if attribute in owners:
                    message = f"{attribute} is listed by {owners[attribute]} and {handle['name']}"
                    self.add(f"{where}.attributes", message)
                owners[attribute] = handle["name"]
            own_object = [key for key in ("expressions", "adapter") if handle.get(key)]
            seen = [key for key in ("attributes", "rest", "request") if handle.get(key)]
            if own_object and seen:
                bound = "what `on` binds" if seen[0] == "request" else "the worker"
                message = f"a handle with `{seen[0]}` is {bound}, one with `{own_object[0]}` another object"
                self.add(f"{where}.{own_object[0]}", message)
            for text in handle.get("expressions", ()):
                self._try(f"{where}.expressions", links, text)
            self._given(where, handle)
            if handle.get("adapter"):
                self._dotted(f"{where}.adapter", handle["adapter"])
        self._expressions_once()
        if self.data["target"]["class"] in {handle["protocol"] for handle in handles}:
            self.add("target.class", "also the name of a protocol")

    def _given(self, where: str, handle: Mapping[str, Any]) -> None:
        """A Protocol that the recipe gives."""
        text, origin = handle.get("protocol_text"), handle.get("protocol_from")
        if text and origin:
            self.add(f"{where}.protocol_from", "either `protocol_text` or `protocol_from`")
        if text:
            dedented = textwrap.dedent(text).strip("\n")
            self._try(f"{where}.protocol_text", lambda it: protocol_class(it, handle["protocol"]), dedented)
        if origin and self._dotted(f"{where}.protocol_from", origin):
            name = origin.partition(":")[2]
            if name != handle["protocol"]:
                message = f"it names {name}, `protocol` says {handle['protocol']}"
                self.add(f"{where}.protocol_from", message)

    def _once(self, key: str) -> None:
        seen: set[str] = set()
        for index, handle in enumerate(self.data.get("handles", ())):
            if handle[key] in seen:
                self.add(f"handles[{index}].{key}", f"{key} {handle[key]} is used twice")
            seen.add(handle[key])

    def _expressions_once(self) -> None:
        owners: dict[str, str] = {}
        for index, handle in enumerate(self.data.get("handles", ())):
            for text in handle.get("expressions", ()):
                if text in owners:
                    message = f"{text} belongs to {owners[text]} already"
                    self.add(f"handles[{index}].expressions", message)
                owners[text] = handle["name"]

    def _dotted(self, where: str, value: str) -> bool:
        module, colon, name = value.partition(":")
        good = bool(colon) and all(p.isidentifier() for p in (*module.split("."), *name.split(".")))
        if not good:
            self.add(where, f"{value!r} must be `package.module:Name`")
        return good

    def _class(self, where: str, value: str) -> None:
        """A class that is neither the worker nor the handler."""
        if not value or not self._dotted(where, value):
            return
        name = value.partition(":")[2]
        if "." in name:
            self.add(where, f"{name} must be a class at the top of its module")
        for table, what in (("source", "worker"), ("target", "handler")):
            if name == self.data[table]["class"]:
                self.add(where, f"{name} is the name of the {what}")

    def _try(self, where: str, read: Callable[[str], object], text: str) -> bool:
        try:
            read(text)
        except PatternError as error:
            self.add(where, str(error))
            return False
        return True

    def rewrites(self) -> None:
        """Each must be readable; no two may claim the same code."""
        handles = self.data.get("handles", ())
        names = [handle["name"] for handle in handles]
        names += [] if any(handle.get("rest") for handle in handles) else ["host"]
        expressions = [text for handle in handles for text in handle.get("expressions", ())]
        good: list[tuple[int, str]] = []
        for index, entry in enumerate(self.data.get("rewrites", ())):
            where = f"rewrites[{index}]"
            readable = self._try(f"{where}.from", expression, entry["from"])
            if readable and not mentions_self(expression(entry["from"])):
                self.add(f"{where}.from", f"{entry['from']!r} does not mention self")
                readable = False
            if self._try(f"{where}.to", links, entry["to"]):
                self._target(f"{where}.to", links(entry["to"]), names)
            if readable:
                good.append((index, entry["from"]))
        for (_, one), (index, other) in combinations(good, 2):
            if contains(one, other) or contains(other, one):
                self.add(f"rewrites[{index}].from", f"it overlaps with {one!r}")
        for index, text in good:
            for chain in expressions:
                if contains(chain, text):
                    self.add(f"rewrites[{index}].from", f"it overlaps with the handle expression {chain!r}")

    def snapshot(self) -> None:
        entry = self.data.get("snapshot")
        if entry is None:
            return
        handles = self.data.get("handles", ())
        self._identifier("snapshot.name", entry["name"])
        self._identifier("snapshot.class", entry["class"])
        if entry["name"] in {handle["name"] for handle in handles}:
            self.add("snapshot.name", f"a handle is called {entry['name']} too")
        if entry["class"] in {self.data["target"]["class"], *(handle["protocol"] for handle in handles)}:
            self.add("snapshot.class", f"{entry['class']} is the name of another class")
        if not entry["fields"]:
            self.add("snapshot.fields", "it has no fields")
        taken = {text for handle in handles for text in handle.get("expressions", ())}
        taken |= {rewrite["from"] for rewrite in self.data.get("rewrites", ())}
        names: dict[str, str] = {}
        for path in entry["fields"]:
            if not self._try("snapshot.fields", links, f"self.{path}"):
                continue
            name = path.rpartition(".")[2]
            if name in names:
                self.add("snapshot.fields", f"{names[name]} and {path} would both be {name}")
            names[name] = path
            if f"self.{path}" in taken:
                self.add("snapshot.fields", f"self.{path} is declared otherwise too")
            if any(part.startswith("__") and not part.endswith("__") for part in path.split(".")):
                self.add("snapshot.fields", f"{path} is private to the worker")

    def adapters(self) -> None:
        """Files that are written beside the handler module."""
        handles = {handle["name"]: handle for handle in self.data.get("handles", ())}
        target = self.data["target"]
        if target.get("fakes"):
            self._path("target.fakes", target["fakes"])
        files = {target["file"], self.data["source"]["file"]}
        seen: set[str] = set()
        for index, entry in enumerate(self.data.get("adapters", ())):
            where = f"adapters[{index}]"
            handle = handles.get(entry["handle"])
            if handle is None:
                self.add(
                    f"{where}.handle",
                    f"no handle is called {entry['handle']}{near(entry['handle'], handles)}",
                )
            elif handle.get("adapter"):
                self.add(f"{where}.handle", f"{entry['handle']} names an adapter already")
            elif not handle.get("expressions"):
                self.add(
                    f"{where}.handle", f"{entry['handle']} has no `expressions`: there is nothing to wrap"
                )
            if entry["handle"] in seen:
                self.add(f"{where}.handle", f"{entry['handle']} has two adapters")
            seen.add(entry["handle"])
            self._identifier(f"{where}.name", entry["name"])
            self._path(f"{where}.file", entry["file"])
            if entry["file"] in files:
                self.add(f"{where}.file", f"{entry['file']} is taken")
            files.add(entry["file"])
            self._dotted(f"{where}.wraps", entry["wraps"])
            for member, to in entry.get("members", {}).items():
                self._member(f"{where}.members.{member}", to)
        if target.get("fakes") in files:
            self.add("target.fakes", f"{target['fakes']} is taken")

    def human(self) -> None:
        """Files that the codemod leaves alone: none of them may be one that it writes."""
        target = self.data["target"]
        written = {self.data["source"]["file"], target["file"], target.get("fakes")}
        written |= {entry["file"] for entry in self.data.get("adapters", ())}
        seen: set[str] = set()
        for name in self.data.get("human", {}).get("files", ()):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or str(path) != name or name == ".":
                self.add("human.files", f"{name!r} must be a plain path relative to the repository")
            elif name in written:
                self.add("human.files", f"{name} is written by the codemod")
            elif name in seen:
                self.add("human.files", f"{name} is listed twice")
            seen.add(name)

    def hasattr(self) -> None:
        entry = self.data.get("hasattr")
        if entry is None:
            return
        if not (entry.get("apply") or entry.get("attributes")):
            self.add("hasattr", "it must say `apply` or `attributes`")
        for verdict in entry.get("apply", ()):
            if verdict not in ("always", "never"):
                known = near(verdict, ("always", "never"))
                self.add("hasattr.apply", f"must be a list of 'always' and 'never', has {verdict!r}{known}")
        kinds = entry.get("attributes", {})
        for name, kind in kinds.items():
            if kind not in ("constant", "optional", "capability"):
                known = near(str(kind), ("constant", "optional", "capability"))
                message = f"must be 'constant', 'optional' or 'capability', is {kind!r}{known}"
                self.add(f"hasattr.attributes.{name}", message)
        optional = [name for name, kind in kinds.items() if kind == "optional"]
        for name, place in entry.get("declare", {}).items():
            self._declared(f"hasattr.declare.{name}", name, place, optional)
        for name, reason in entry.get("accept", {}).items():
            if not isinstance(reason, str) or not reason.strip():
                self.add(f"hasattr.accept.{name}", "must be the reason why nothing comes of it")
        self._capabilities([name for name, kind in kinds.items() if kind == "capability"])

    def _declared(self, where: str, name: str, place: Any, optional: list[str]) -> None:
        """`attribute = { after = "another" }`"""
        if name not in optional:
            self.add(where, f"`hasattr.attributes` does not say that it is 'optional'{near(name, optional)}")
        if not isinstance(place, dict) or not isinstance(place.get("after"), str):
            self.add(where, 'must be a table, { after = "attribute" }')
            return
        for key in place.keys() - {"after"}:
            self.add(f"{where}.{key}", f"unknown entry{near(key, ['after'])}")
        self._identifier(f"{where}.after", place["after"])

    def _capabilities(self, names: list[str]) -> None:
        """Each gets a Protocol in the handler module, whose name nothing else may have."""
        handles = self.data.get("handles", ())
        taken = {handle["protocol"]: f"the Protocol of {handle['name']}" for handle in handles}
        taken[self.data["target"]["class"]] = "the handler"
        if (snapshot := self.data.get("snapshot")) is not None:
            taken[snapshot["class"]] = "the snapshot"
        for name in names:
            self._identifier(f"hasattr.attributes.{name}", name)
            title = capability_name(name)
            if title in taken:
                self.add(f"hasattr.attributes.{name}", f"its Protocol {title} is {taken[title]} too")
            taken[title] = f"that of {name}"

    def _member(self, where: str, to: Any) -> None:
        """`member = "name"`, or `member = { name = "name", parameters = { own = "wrapped" } }`."""
        if isinstance(to, str):
            self._identifier(where, to)
        elif not isinstance(to, dict) or not isinstance(to.get("name", ""), str):
            self.add(where, "must be a name, or a table of `name` and `parameters`")
        else:
            for key in to.keys() - {"name", "parameters"}:
                self.add(f"{where}.{key}", f"unknown entry{near(key, ['name', 'parameters'])}")
            parameters = to.get("parameters", {})
            if not isinstance(parameters, dict) or not all(isinstance(v, str) for v in parameters.values()):
                self.add(f"{where}.parameters", "must be a table of parameter = parameter")

    def _target(self, where: str, parts: tuple[str, ...], names: list[str]) -> None:
        if parts[0] not in names:
            self.add(where, f"no handle is called {parts[0]}{near(parts[0], names)}")
        elif len(parts) == 1:
            self.add(where, f"it must name a member of the handle: self.{parts[0]}.<member>")
        if any(part.startswith("__") and not part.endswith("__") for part in parts):
            self.add(where, "a private name cannot be reached from the handler")


def rewrite_spec(entry: Mapping[str, str]) -> RewriteSpec:
    """The `from` keeps its spelling, so that folding back gives it; one of several lines has none to keep."""
    before = entry["from"].strip()
    return RewriteSpec(normal(before) if "\n" in before else before, normal(entry["to"]))
