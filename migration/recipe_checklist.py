"""The `[checklist]` of a recipe: the pre-merge items of a slice, as data for the rules of `migrate check`.

It is not a part of `Recipe`, so a proof file does not hold it: an item can be added, or a waiver run out,
without a proof that has to be made anew.
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from migration.toml_lines import key_lines, line_of

PHASES: Final = ("port", "gate", "cleanup")

#: Rule -> entry of its items -> type; a `?` after the name: it may be left out. A rule that is not listed
#: takes no data: an item of it only gives the line of the checklist that it stands for.
RULE_DATA: Final[dict[str, dict[str, type]]] = {
    "forbidden-reference": {"expressions?": list, "names?": list, "allow_writes?": bool},
    "snapshot-only": {"attributes": list},
    "computed": {"names": list},
    "worker-only": {"names": list},
    "imported": {"names": list},
    "presence-test": {"attributes": list, "handle?": str},
    "routed-call": {"method": str, "handle": str, "member": str},
    "synced-back": {"call": str, "attribute": str},
    "constructor": {"signature?": str},
    "paired": {"primary": str, "auxiliary": str, "members?": list},
    "call-order": {"first": str, "then": str, "where_both?": bool},
    "followed-by": {"call": str, "by": str},
    "mutator": {"attributes": dict},
    "made-once": {"attributes": list},
    "one-caller": {"methods": list},
    "one-formula": {"helper": str},
    "optional-handle": {"optional?": list},
    "collectives": {"rank_local?": list, "agreed?": list},
}


@dataclass(frozen=True)
class Item:
    """One line of the checklist. `title` are its own words, "" where the rule's are taken."""

    rule: str
    title: str = ""
    data: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    phases: tuple[str, ...] = PHASES
    line: int = 0

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of the item's data, empty where it was left out."""
        return tuple(self.data.get(key, ()))

    def text(self, key: str) -> str:
        return str(self.data.get(key, ""))


@dataclass(frozen=True)
class Waiver:
    """A finding that is let pass until a date. `rule` is a code or a name, `place` a method or a file."""

    rule: str
    place: str
    reason: str
    expires: datetime.date
    phases: tuple[str, ...] = PHASES
    line: int = 0


@dataclass(frozen=True)
class Flag:
    """Who answers for the gate, and since when there is one."""

    owner: str
    introduced: datetime.date
    max_age_days: int = 90
    line: int = 0


@dataclass(frozen=True)
class Checklist:
    """`path` is the recipe as it was named; `budgets` are changed lines, `tests` files to be run, by phase."""

    path: str
    items: tuple[Item, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    flag: Flag | None = None
    budgets: tuple[tuple[str, int], ...] = ()
    line: int = 0
    tests: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def tests_of(self, phase: str) -> tuple[str, ...]:
        return dict(self.tests).get(phase, ())


def parse_checklist(text: str, where: str) -> Checklist:
    """The checklist of a recipe that `parse_recipe` has taken; an empty one where it has none."""
    entry = tomllib.loads(text).get("checklist", {})
    lines = key_lines(text)
    items = [
        Item(
            one["rule"],
            one.get("title", ""),
            MappingProxyType(
                {key: value for key, value in one.items() if key not in ("rule", "title", "phases")}
            ),
            tuple(one.get("phases", PHASES)),
            line_of(f"checklist.items[{index}]", lines),
        )
        for index, one in enumerate(entry.get("items", ()))
    ]
    waivers = [
        Waiver(
            one["rule"],
            one["place"],
            one["reason"],
            one["expires"],
            tuple(one.get("phases", PHASES)),
            line_of(f"checklist.waivers[{index}]", lines),
        )
        for index, one in enumerate(entry.get("waivers", ()))
    ]
    flag = entry.get("flag")
    return Checklist(
        where,
        tuple(items),
        tuple(waivers),
        Flag(
            flag["owner"],
            flag["introduced"],
            flag.get("max_age_days", 90),
            line_of("checklist.flag", lines),
        )
        if flag
        else None,
        tuple(entry.get("budget", {}).items()),
        line_of("checklist", lines),
        tuple((phase, tuple(paths)) for phase, paths in entry.get("tests", {}).items()),
    )
