"""Everything that is wrong with the `[checklist]` of a recipe."""

from __future__ import annotations

import ast
import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from migration.patterns import PatternError, links
from migration.recipe_checklist import PHASES, RULE_DATA

#: Rules without data that an item may name, to give them the words of its line.
PLAIN_RULES: Final = (
    "stateless",
    "undefined-name",
    "budget",
    "gate",
    "drift",
    "signature",
    "dead-handle",
    "dead-method",
    "flag",
    "clauses",
    "private-attribute",
    "import-cycle",
    "shadowed-module",
    "duplicate-method",
    "swallowed-exception",
    "captured-attribute",
    "unknown-attribute",
    "adapter",
)
_TABLES: Final[dict[str, dict[str, type]]] = {
    "flag": {"owner": str, "introduced": datetime.date, "max_age_days?": int},
    "waivers": {"rule": str, "place": str, "reason": str, "expires": datetime.date, "phases?": list},
    "budget": {"port?": int, "gate?": int, "cleanup?": int},
    "tests": {"port?": list, "gate?": list, "cleanup?": list},
}

Add = Callable[[str, str], None]
Near = Callable[[str, tuple[str, ...]], str]


def checklist_problems(data: Mapping[str, Any], add: Add, near: Near) -> None:
    """Hand every problem to `add`; `near` says which of some names was meant. That the entries of the table
    itself are known and of their types has been checked."""
    entry = data.get("checklist")
    if entry is not None:
        _Checker(add, near, data.get("handles", ())).checklist(entry)


class _Checker:
    def __init__(self, add: Add, near: Near, handles: Sequence[Mapping[str, Any]]) -> None:
        self.add = add
        self.near = near
        self.handles = handles

    def checklist(self, entry: Mapping[str, Any]) -> None:
        for name in ("flag", "budget", "tests"):
            if name in entry:
                self._table(entry[name], _TABLES[name], f"checklist.{name}")
        for phase, paths in entry.get("tests", {}).items():
            self._tests(f"checklist.tests.{phase}", paths)
        if not str(entry.get("flag", {}).get("owner", "somebody")).strip():
            self.add("checklist.flag.owner", "must name somebody")
        for index, item in enumerate(entry.get("items", ())):
            self._item(item, f"checklist.items[{index}]")
        for index, waiver in enumerate(entry.get("waivers", ())):
            where = f"checklist.waivers[{index}]"
            if isinstance(waiver, dict) and self._table(waiver, _TABLES["waivers"], where):
                self._phases(waiver, where)
                for key in ("place", "reason"):
                    if not waiver[key].strip():
                        self.add(f"{where}.{key}", "must say something")
            elif not isinstance(waiver, dict):
                self.add(where, "must be a table")

    def _tests(self, where: str, paths: Any) -> None:
        """Files of the repository; that each is a string has been checked where the table is right."""
        texts = paths if isinstance(paths, list) else []
        if paths == []:
            self.add(where, "must not be empty")
        for text in texts:
            path = PurePosixPath(str(text))
            if path.is_absolute() or ".." in path.parts or not str(text).strip():
                self.add(where, f"{text!r} must be a plain path relative to the repository")

    def _item(self, item: Any, where: str) -> None:
        if not isinstance(item, dict) or not isinstance(item.get("rule"), str):
            self.add(f"{where}.rule", "must be the name of a rule")
            return
        rule = item["rule"]
        known = (*RULE_DATA, *PLAIN_RULES)
        if rule not in known:
            self.add(f"{where}.rule", f"no rule is called {rule}{self.near(rule, known)}")
            return
        own: dict[str, type] = {"rule": str, "title?": str, "phases?": list, **RULE_DATA.get(rule, {})}
        if not self._table(item, own, where):
            return
        self._phases(item, where)
        if rule == "forbidden-reference" and not (item.get("expressions") or item.get("names")):
            self.add(where, "either `expressions` or `names` must be given")
        for text in (*item.get("expressions", ()), *([item["attribute"]] if "attribute" in item else [])):
            try:
                links(text)
            except PatternError as error:
                self.add(where, str(error))
        if "signature" in item:
            try:
                ast.parse(f"def __init__{item['signature']}: ...")
            except SyntaxError:
                self.add(f"{where}.signature", "must be parameters as `def` has them: (self, *, pool: Pool)")
        if rule == "mutator" and not all(isinstance(name, str) for name in item["attributes"].values()):
            self.add(f"{where}.attributes", "must be a table of attribute = method")
        for name in item.get("optional", ()):
            self._optional(f"{where}.optional", name)
        for key, value in item.items():
            if isinstance(value, str | list | dict) and not value:
                self.add(f"{where}.{key}", "must not be empty")

    def _optional(self, where: str, name: str) -> None:
        """A handle that is an object of its own: the worker is always there."""
        known = {handle["name"]: handle for handle in self.handles}
        if name not in known:
            self.add(where, f"no handle is called {name}{self.near(name, tuple(known))}")
        elif not (known[name].get("expressions") or known[name].get("adapter")):
            self.add(where, f"{name} is the worker, seen in part: it is always there")

    def _phases(self, table: Mapping[str, Any], where: str) -> None:
        for phase in table.get("phases", ()):
            if phase not in PHASES:
                self.add(
                    f"{where}.phases", f"must be some of port, gate, cleanup{self.near(str(phase), PHASES)}"
                )

    def _table(self, table: Mapping[str, Any], schema: Mapping[str, type], where: str) -> bool:
        """Names and types; True where all are right."""
        known = {key.rstrip("?"): kind for key, kind in schema.items()}
        good = True
        for key in sorted(table.keys() - known.keys()):
            self.add(f"{where}.{key}", f"unknown entry{self.near(key, tuple(known))}")
            good = False
        for key, kind in known.items():
            if key not in table:
                if f"{key}?" not in schema:
                    self.add(f"{where}.{key}", "missing")
                    good = False
            elif type(table[key]) is not kind:
                self.add(f"{where}.{key}", f"must be {kind.__name__}, is {table[key]!r}")
                good = False
            elif kind is list and not all(isinstance(item, str) for item in table[key]):
                self.add(f"{where}.{key}", "must be a list of strings")
                good = False
        return good
