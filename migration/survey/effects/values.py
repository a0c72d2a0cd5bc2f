"""What one method does beyond the attributes of self. `walker` finds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

How = Literal["set", "augment", "delete", "item", "call"]
Holder = Literal["class", "global", "imported", "object"]


@dataclass(frozen=True)
class Collective:
    """`origin` is the full name, None where only the name of the method says what it is.

    `conditional`: not run by every call (a condition, a loop, an early return before it, nested).
    """

    name: str
    origin: str | None
    line: int
    conditional: bool


@dataclass(frozen=True)
class EnvironmentUse:
    """`variable` is `*` for the environment as a whole, an expression where it is computed."""

    variable: str
    how: Literal["read", "write"]
    line: int


@dataclass(frozen=True)
class StateWrite:
    """A write to state that is not an attribute of self.

    `holder` says where it lives: on a class of this module, in a module global, on something
    imported, or on an object that self holds. `how`: `item` writes a subscript of the attribute,
    `call` calls a method that changes it in place.
    """

    holder: Holder
    target: str
    attribute: str
    how: How
    line: int


@dataclass(frozen=True)
class LocalImport:
    """An import inside the method. `guarded`: an ImportError is caught, the name may stay unbound."""

    origin: str
    name: str
    line: int
    guarded: bool


@dataclass(frozen=True)
class OtherReflection:
    """hasattr/getattr/setattr/delattr on something else than self; no attribute: a computed name."""

    kind: str
    on: str
    attribute: str | None
    line: int


@dataclass
class Effects:
    """Everything in the order of the source."""

    collectives: list[Collective] = field(default_factory=list)
    environment: list[EnvironmentUse] = field(default_factory=list)
    state_writes: list[StateWrite] = field(default_factory=list)
    local_imports: list[LocalImport] = field(default_factory=list)
    reflection_elsewhere: list[OtherReflection] = field(default_factory=list)
    exits: list[tuple[str, int]] = field(default_factory=list)
    #: attributes of self whose value is changed in place, with the line
    mutates: list[tuple[str, int]] = field(default_factory=list)
    super_calls: list[str] = field(default_factory=list)
    #: the method itself has a yield
    yields: bool = False
    #: where `self.x: T` stands without a value: it makes nothing
    bare_annotations: set[tuple[int, int]] = field(default_factory=set)
    #: names of the module itself that the method uses
    names: set[str] = field(default_factory=set)
