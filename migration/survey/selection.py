"""One section or one method out of an inventory."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace

from migration.survey.reports import Inventory, MethodReport


class NotFound(Exception):
    """No section or method of that name; the message says which are near."""


def select_section(found: Inventory, title: str) -> Inventory:
    """The inventory of the sections with that title (or label), upper and lower case alike.

    Attributes keep all their users, and the coupling keeps every pair that leads in or out.
    """
    wanted = title.strip().lower()
    sections = tuple(
        section
        for section in found.sections
        if wanted in (section.label.lower(), (section.title or "").lower())
    )
    if not sections:
        raise NotFound(_unknown("section", title, (section.label for section in found.sections)))
    labels = {section.label for section in sections}
    chosen = replace(found, sections=sections)
    return _narrowed(chosen, tuple(method for method in found.methods if method.group in labels))


def select_method(found: Inventory, name: str) -> Inventory:
    """The inventory of the methods with that name."""
    methods = tuple(method for method in found.methods if method.name == name)
    if not methods:
        raise NotFound(_unknown("method", name, (method.name for method in found.methods)))
    labels = {method.group for method in methods}
    sections = tuple(section for section in found.sections if section.label in labels)
    return _narrowed(replace(found, sections=sections), methods)


def _narrowed(found: Inventory, methods: tuple[MethodReport, ...]) -> Inventory:
    names = {method.name for method in methods}
    touched = {name for m in methods for name in (*m.reads, *m.writes, *m.mutates, *m.deletes)}
    touched |= {item.attribute for m in methods for item in m.reflection if item.attribute}
    if found.coupling.basis == "banners":
        groups = {method.group for method in methods}
    else:
        groups = {group.label for group in found.coupling.groups if names & set(group.methods)}
    pairs = tuple(pair for pair in found.coupling.pairs if {pair.source, pair.target} & groups)
    return replace(
        found,
        methods=methods,
        attributes=tuple(one for one in found.attributes if one.name in touched),
        near_duplicates=tuple(one for one in found.near_duplicates if {one.first, one.second} & names),
        coupling=replace(found.coupling, pairs=pairs),
    )


def _unknown(what: str, wanted: str, known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(wanted, names, 3, 0.5)
    near = near or [name for name in names if wanted.lower() in name.lower()][:3]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"no {what} {wanted!r}{hint}"
