"""What is in a class: sections, methods, attributes, what each method does, and how the parts hang together."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Literal

from migration.code.module_names import ModuleNames, module_level
from migration.code.source import Source
from migration.code.structure import ClassOutline, Section, classes, outline
from migration.presence.class_files import ClassFiles, KnownClass, Module, OneFile
from migration.presence.hierarchy import Hierarchy
from migration.presence.of_class import ClassPresence
from migration.survey.coupling import coupling
from migration.survey.duplicates import near_duplicates
from migration.survey.effects.values import EnvironmentUse
from migration.survey.effects.walker import environment_at_import
from migration.survey.method_reports import (
    ClassNames,
    Seen,
    look_at,
    method_kind,
    method_report,
    method_use,
    properties_of,
)
from migration.survey.reports import (
    AttributeReport,
    Inventory,
    Layout,
    Made,
    MethodReport,
    ModuleReport,
    SectionReport,
)

_MIXED = re.compile(rb"^(?:\t+ | +\t)[ \t]*[^\s#]", re.MULTILINE)
_TABS = re.compile(rb"^\t", re.MULTILINE)
_SPACES = re.compile(rb"^ ", re.MULTILINE)


def take_inventory(
    path: str, data: bytes, class_name: str | None = None, *, by_clusters: bool = False
) -> Inventory:
    """Inventory of the named class of a file, or of its longest one. Raises MG102, MG3xx.

    `by_clusters`: couple clusters of methods even where the class has banners.
    """
    source = Source(path, data)
    return inventory_of(source, outline(source, class_name), by_clusters=by_clusters)


def inventory_of(source: Source, shape: ClassOutline, *, by_clusters: bool = False) -> Inventory:
    """The same of a class that has been read already."""
    module = Module(source.path, source.data, source.tree)
    presence = _presence(module, shape)
    known = presence.kin.owner
    seen = [look_at(method, module.names, shape.name) for method in shape.methods]
    names = _names(known, shape, seen, presence)
    labels = _labels(shape.sections)
    place = {
        id(method): (section.title, label)
        for section, label in zip(shape.sections, labels, strict=True)
        for method in section.methods
    }
    others = _other_definitions(shape)
    reports = tuple(
        method_report(one, *place[id(one.method)], others.get(id(one.method), ()), names) for one in seen
    )
    banners = any(section.title for section in shape.sections) and not by_clusters
    uses: dict[str, list[Seen]] = defaultdict(list)
    for one in seen:
        uses[place[id(one.method)][1]].append(one)
    return Inventory(
        path=source.path,
        class_name=shape.name,
        bases=tuple(ast.unparse(base) for base in (*shape.node.bases, *shape.node.keywords)),
        decorators=tuple(ast.unparse(decorator) for decorator in shape.node.decorator_list),
        other_classes=tuple(node.name for node in classes(source) if node is not shape.node),
        first_line=shape.node.lineno,
        last_line=shape.sections[-1].last_line,
        layout=_layout(source, shape),
        module=_module_report(source, module.names, shape),
        sections=tuple(
            _section(section, label) for section, label in zip(shape.sections, labels, strict=True)
        ),
        methods=reports,
        attributes=_attributes(reports, names, known),
        class_attributes=tuple(
            (name, items[0].line)
            for name, items in known.body.bindings.items()
            if name not in names.methods and items[0].value is not None
        ),
        near_duplicates=near_duplicates(names.methods),
        coupling=coupling(
            ((label, [method_use(one, names) for one in uses[label]]) for label in labels), banners=banners
        ),
    )


def _presence(module: Module, shape: ClassOutline) -> ClassPresence:
    files = ClassFiles(OneFile(module.path, module.data))
    files.add(module)
    return ClassPresence(Hierarchy(files, module, shape.node))


def _names(known: KnownClass, shape: ClassOutline, seen: list[Seen], presence: ClassPresence) -> ClassNames:
    methods = frozenset(method.name for method in shape.methods)
    written = {name for one in seen for name in one.writes}
    in_body = {name for name, items in known.body.bindings.items() if any(item.value for item in items)}
    containers = (ast.Dict, ast.List, ast.Set, ast.Call, ast.DictComp, ast.ListComp, ast.SetComp)
    shared = {
        name for name in in_body - written if isinstance(known.body.bindings[name][-1].value, containers)
    }
    return ClassNames(
        shape.name,
        known.module.names,
        methods,
        properties_of(list(shape.methods)),
        frozenset(shared),
        presence.after_init | in_body,
    )


def _labels(sections: Iterable[Section]) -> list[str]:
    """One label a section, unique: the title, or where it stands."""
    sections = list(sections)
    titles = Counter(section.title for section in sections)
    return [
        f"{section.title or '(no banner)'}, line {section.first_line}"
        if section.title is None or titles[section.title] > 1
        else section.title
        for section in sections
    ]


def _other_definitions(shape: ClassOutline) -> dict[int, tuple[int, ...]]:
    """Lines of the other definitions of a name, where only one of them can count."""
    found: dict[int, tuple[int, ...]] = {}
    for method in shape.methods:
        if method_kind(method.node) not in ("accessor", "overload"):
            found[id(method)] = tuple(
                other.node.lineno
                for other in shape.definitions(method.name)
                if other is not method and method_kind(other.node) not in ("accessor", "overload")
            )
    return found


def _section(section: Section, label: str) -> SectionReport:
    lines = sum(method.last_line - method.first_line + 1 for method in section.methods)
    return SectionReport(
        label, section.title, section.first_line, section.last_line, len(section.methods), lines
    )


def _attributes(
    reports: tuple[MethodReport, ...], names: ClassNames, known: KnownClass
) -> tuple[AttributeReport, ...]:
    users: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for report in reports:
        for role in ("reads", "writes", "mutates", "deletes"):
            for name in getattr(report, role):
                if name not in names.methods:
                    users[name][role].append(report.name)
        for item in report.reflection:
            if item.kind == "hasattr" and item.attribute and item.attribute not in names.methods:
                users[item.attribute]["reads"].append(report.name)
    return tuple(
        AttributeReport(
            name,
            _made(name, roles["writes"], names, known),
            tuple(dict.fromkeys(roles["reads"])),
            tuple(dict.fromkeys(roles["writes"] + roles["mutates"])),
            tuple(dict.fromkeys(roles["deletes"])),
        )
        for name, roles in sorted(users.items())
        if name not in ("__class__", "__dict__")
    )


def _made(name: str, writers: list[str], names: ClassNames, known: KnownClass) -> Made:
    if any(item.value is not None for item in known.body.bindings.get(name, ())):
        return "class body"
    if name in names.made:
        return "init"
    if "__init__" in writers:
        return "init, some ways"
    return "lazily" if writers else "elsewhere"


def _layout(source: Source, shape: ClassOutline) -> Layout:
    text = b"".join(source.lines[shape.node.lineno - 1 : shape.node.end_lineno])
    tabs, spaces = bool(_TABS.search(text)), bool(_SPACES.search(text))
    indentation: Literal["tabs", "spaces", "tabs and spaces"] = "tabs" if tabs else "spaces"
    ends: dict[bytes, Literal["LF", "CRLF", "CR"]] = {b"\r\n": "CRLF", b"\r": "CR"}
    return Layout(
        "tabs and spaces" if tabs and spaces else indentation,
        len(_MIXED.findall(text)),
        ends.get(source.eol, "LF"),
        len(source.raw),
    )


def _module_report(source: Source, names: ModuleNames, shape: ClassOutline) -> ModuleReport:
    code = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    late: list[int] = []
    started = False
    for statement in module_level(source.tree.body):
        started = started or isinstance(statement, code)
        if started and isinstance(statement, ast.Import | ast.ImportFrom):
            late.append(statement.lineno)
    environment: list[EnvironmentUse] = []
    for body in (source.tree.body, shape.node.body):
        environment += environment_at_import(body, names, shape.name)
    return ModuleReport(
        tuple(sorted(names.rebound)),
        tuple(sorted(environment, key=lambda use: use.line)),
        tuple(late),
    )
