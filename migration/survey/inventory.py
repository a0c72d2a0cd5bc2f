"""What is in a class: sections, methods, attributes, and what each method does to self."""

from __future__ import annotations

from dataclasses import dataclass

from migration.code.facts import READING, WRITING, MethodFacts, SelfUse, UseKind, method_facts
from migration.code.source import Source
from migration.code.structure import ClassOutline, Method, classes, outline


@dataclass(frozen=True)
class Reflection:
    """One hasattr/getattr/setattr/delattr/del on self; the name is None where it is computed."""

    kind: str
    attribute: str | None
    line: int


@dataclass(frozen=True)
class MethodReport:
    name: str
    section: str | None
    first_line: int
    last_line: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    creates_lazily: tuple[str, ...]
    reflection: tuple[Reflection, ...]
    calls: tuple[str, ...]
    method_references: tuple[str, ...]
    nested_over_self: tuple[str, ...]
    self_escapes: tuple[int, ...]
    collectives: tuple[tuple[str, int], ...]
    environment: tuple[tuple[str, int], ...]
    other_definitions: tuple[int, ...]

    @property
    def lines(self) -> int:
        return self.last_line - self.first_line + 1


@dataclass(frozen=True)
class SectionReport:
    """`title` is None for lines under no banner."""

    title: str | None
    first_line: int
    last_line: int
    methods: int
    method_lines: int


@dataclass(frozen=True)
class Inventory:
    path: str
    class_name: str
    other_classes: tuple[str, ...]
    first_line: int
    last_line: int
    attributes: tuple[str, ...]
    lazy_attributes: tuple[str, ...]
    sections: tuple[SectionReport, ...]
    methods: tuple[MethodReport, ...]


def take_inventory(path: str, data: bytes, class_name: str | None = None) -> Inventory:
    """Inventory of the named class of a file, or of its longest one."""
    source = Source(path, data)
    shape = outline(source, class_name)
    facts = [(method, method_facts(method.node)) for method in shape.methods]
    names = {method.name for method in shape.methods}
    declared = _written_at_start(shape, facts)
    section_of = {id(method): section.title for section in shape.sections for method in section.methods}
    reports = tuple(
        _method(shape, method, found, section_of[id(method)], names, declared) for method, found in facts
    )
    attributes = {a for _, found in facts for a in found.attributes(READING | WRITING)} - names
    return Inventory(
        path=path,
        class_name=shape.name,
        other_classes=tuple(node.name for node in classes(source) if node is not shape.node),
        first_line=shape.node.lineno,
        last_line=shape.sections[-1].last_line,
        attributes=tuple(sorted(attributes)),
        lazy_attributes=tuple(sorted({name for report in reports for name in report.creates_lazily})),
        sections=tuple(
            SectionReport(
                section.title,
                section.first_line,
                section.last_line,
                len(section.methods),
                sum(m.last_line - m.first_line + 1 for m in section.methods),
            )
            for section in shape.sections
        ),
        methods=reports,
    )


def _written_at_start(shape: ClassOutline, facts: list[tuple[Method, MethodFacts]]) -> set[str]:
    """Attributes that exist once __init__ has run, as far as the class itself shows."""
    found = {name for method, f in facts if method.name == "__init__" for name in f.attributes(WRITING)}
    for statement in shape.node.body:
        for target in getattr(statement, "targets", [getattr(statement, "target", None)]):
            if (name := getattr(target, "id", None)) is not None and getattr(
                statement, "value", None
            ) is not None:
                found.add(name)
    return found


def _method(
    shape: ClassOutline,
    method: Method,
    facts: MethodFacts,
    section: str | None,
    names: set[str],
    declared: set[str],
) -> MethodReport:
    def attributes(*kinds: UseKind) -> set[str]:
        return set(facts.attributes(frozenset(kinds)))

    reads = set(facts.attributes(READING)) - attributes("call")
    writes = set(facts.attributes(WRITING))
    reflection = [use for use in facts.uses if use.kind in _REFLECTIVE]
    others = [m.node.lineno for m in shape.definitions(method.name) if m is not method]
    return MethodReport(
        name=method.name,
        section=section,
        first_line=method.first_line,
        last_line=method.last_line,
        reads=tuple(sorted(reads - names)),
        writes=tuple(sorted(writes)),
        creates_lazily=tuple(sorted(writes - declared)),
        reflection=tuple(Reflection(use.kind, use.attribute, use.line) for use in reflection),
        calls=tuple(sorted(attributes("call") & names)),
        method_references=tuple(sorted(reads & names)),
        nested_over_self=facts.nested_over_self,
        self_escapes=tuple(_lines(facts, "escape")),
        collectives=facts.collectives,
        environment=facts.environment,
        other_definitions=tuple(others),
    )


_REFLECTIVE: frozenset[UseKind] = frozenset({"hasattr", "getattr", "setattr", "delattr", "delete", "dynamic"})


def _lines(facts: MethodFacts, kind: UseKind) -> list[int]:
    uses: tuple[SelfUse, ...] = facts.uses
    return [use.line for use in uses if use.kind == kind]
