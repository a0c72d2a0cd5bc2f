"""The values of an inventory. docs/inventory.md says what each field means in the JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from migration.survey.coupling import Coupling
from migration.survey.duplicates import NearDuplicate
from migration.survey.effects.escapes import Escape
from migration.survey.effects.values import (
    Collective,
    EnvironmentUse,
    LocalImport,
    OtherReflection,
    StateWrite,
)

MethodKind = Literal[
    "method", "special method", "property", "accessor", "static method", "class method", "overload"
]
Made = Literal["class body", "init", "init, some ways", "lazily", "elsewhere"]


@dataclass(frozen=True)
class Reflection:
    """One hasattr/getattr/setattr/delattr/del on self; the name is None where it is computed."""

    kind: str
    attribute: str | None
    line: int


@dataclass(frozen=True)
class MethodReport:
    """One definition in the class body. `group` is the label of its section, `section` the banner's title."""

    name: str
    kind: MethodKind
    section: str | None
    group: str
    first_line: int
    last_line: int
    lines: int
    signature: str
    decorators: tuple[str, ...]
    asynchronous: bool
    generator: bool
    conditional: bool
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    mutates: tuple[str, ...]
    deletes: tuple[str, ...]
    creates_lazily: tuple[str, ...]
    reflection: tuple[Reflection, ...]
    reflection_elsewhere: tuple[OtherReflection, ...]
    calls: tuple[str, ...]
    properties: tuple[str, ...]
    super_calls: tuple[str, ...]
    private_names: tuple[str, ...]
    escapes: tuple[Escape, ...]
    self_aliases: tuple[str, ...]
    nested_over_self: tuple[str, ...]
    collectives: tuple[Collective, ...]
    environment: tuple[EnvironmentUse, ...]
    state_writes: tuple[StateWrite, ...]
    local_imports: tuple[LocalImport, ...]
    module_names: tuple[str, ...]
    exits: tuple[tuple[str, int], ...]
    other_definitions: tuple[int, ...]


@dataclass(frozen=True)
class SectionReport:
    """`label` is unique; `title` is None for lines under no banner."""

    label: str
    title: str | None
    first_line: int
    last_line: int
    methods: int
    method_lines: int


@dataclass(frozen=True)
class AttributeReport:
    """One attribute of self, with the methods that use it.

    `made`: `elsewhere` is an attribute that no code of the class assigns.
    """

    name: str
    made: Made
    readers: tuple[str, ...]
    writers: tuple[str, ...]
    deleters: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """`indentation` of the class body; `mixed_lines` begin with tabs and spaces; `size` in bytes."""

    indentation: Literal["tabs", "spaces", "tabs and spaces"]
    mixed_lines: int
    line_end: Literal["LF", "CRLF", "CR"]
    size: int


@dataclass(frozen=True)
class ModuleReport:
    """What the module does around the class."""

    rebound_globals: tuple[str, ...]
    environment: tuple[EnvironmentUse, ...]
    imports_after_code: tuple[int, ...]


@dataclass(frozen=True)
class Inventory:
    path: str
    class_name: str
    bases: tuple[str, ...]
    decorators: tuple[str, ...]
    other_classes: tuple[str, ...]
    first_line: int
    last_line: int
    layout: Layout
    module: ModuleReport
    sections: tuple[SectionReport, ...]
    methods: tuple[MethodReport, ...]
    attributes: tuple[AttributeReport, ...]
    class_attributes: tuple[tuple[str, int], ...]
    near_duplicates: tuple[NearDuplicate, ...]
    coupling: Coupling

    @property
    def lazy_attributes(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.attributes if one.made == "lazily")

    @property
    def duplicates(self) -> tuple[str, ...]:
        """Names with more than one definition, accessors of a property and overloads left out."""
        return tuple(dict.fromkeys(m.name for m in self.methods if m.other_definitions))
