"""One method of an inventory."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from migration.code.facts import (
    READING,
    WRITING,
    MethodFacts,
    SelfUse,
    UseKind,
    dotted,
    facts_of_name,
    is_static,
    method_facts,
)
from migration.code.module_names import ModuleNames
from migration.code.structure import FunctionNode, Method
from migration.survey.coupling import MethodUse
from migration.survey.effects.escapes import Escape, escapes, self_aliases
from migration.survey.effects.values import Effects, StateWrite
from migration.survey.effects.walker import method_effects
from migration.survey.reports import MethodKind, MethodReport, Reflection

_REFLECTIVE: frozenset[UseKind] = frozenset({"hasattr", "getattr", "setattr", "delattr", "delete", "dynamic"})
_NOT_ATTRIBUTES = frozenset(("__class__", "__dict__"))
_ACCESSORS = ("setter", "deleter", "getter")
_ON_CLASS = ("__new__", "__init_subclass__", "__class_getitem__")


@dataclass(frozen=True)
class ClassNames:
    """Names of the class that decide what `self.x` is."""

    name: str
    module: ModuleNames
    methods: frozenset[str]
    properties: frozenset[str]
    #: class attributes that hold a container which no method replaces on the object
    shared: frozenset[str]
    #: attributes that exist once `__init__` has run
    made: frozenset[str]


@dataclass(frozen=True)
class Seen:
    """One method with what was found in it."""

    method: Method
    facts: MethodFacts
    aliases: tuple[str, ...]
    uses: tuple[SelfUse, ...]
    effects: Effects
    on_class: bool

    def attributes(self, *kinds: UseKind) -> frozenset[str]:
        wanted = frozenset(kinds)
        return frozenset(u.attribute for u in self.uses if u.kind in wanted and u.attribute is not None)

    @property
    def writes(self) -> frozenset[str]:
        """Attributes assigned on the object; `__class__` and `__dict__` are none."""
        return frozenset() if self.on_class else self.attributes(*WRITING) - _NOT_ATTRIBUTES


def look_at(method: Method, module: ModuleNames, class_name: str) -> Seen:
    """Facts and effects of one method; what an alias of self does counts as done to self."""
    facts = method_facts(method.node)
    on_class = method_kind(method.node) == "class method"
    effects = method_effects(method.node, module, class_name, facts.self_name, on_class=on_class)
    bare = any(use.kind == "escape" for use in facts.uses)
    aliases = self_aliases(method.node, facts.self_name) if bare else ()
    uses = list(facts.uses)
    for alias in aliases:
        uses += [use for use in facts_of_name(method.node, alias).uses if use.kind != "escape"]
    made = tuple(use for use in uses if (use.line, use.column) not in effects.bare_annotations)
    return Seen(method, facts, aliases, made, effects, on_class)


def method_kind(node: FunctionNode) -> MethodKind:
    decorators = [dotted(decorator).rpartition(".")[2] for decorator in node.decorator_list]
    if "overload" in decorators:
        return "overload"
    if any(name in _ACCESSORS for name in decorators):
        return "accessor"
    if any(name in ("property", "cached_property", "abstractproperty") for name in decorators):
        return "property"
    if is_static(node):
        return "static method"
    if "classmethod" in decorators or node.name in _ON_CLASS:
        return "class method"
    special = node.name.startswith("__") and node.name.endswith("__") and len(node.name) > 4
    return "special method" if special else "method"


def method_report(
    seen: Seen, section: str | None, group: str, others: tuple[int, ...], names: ClassNames
) -> MethodReport:
    method, effects = seen.method, seen.effects
    node = method.node
    reads = seen.attributes(*(READING - {"call"}))
    reached = reads | seen.attributes("call")
    passed = names.methods - names.properties
    return MethodReport(
        name=method.name,
        kind=method_kind(node),
        section=section,
        group=group,
        first_line=method.first_line,
        last_line=method.last_line,
        lines=method.last_line - method.first_line + 1,
        signature=f"({ast.unparse(node.args)})",
        decorators=tuple(ast.unparse(decorator) for decorator in node.decorator_list),
        asynchronous=isinstance(node, ast.AsyncFunctionDef),
        generator=effects.yields,
        conditional=method.conditional,
        reads=tuple(sorted((reads | (seen.attributes("call") - names.methods)) - names.methods)),
        writes=tuple(sorted(seen.writes)),
        mutates=tuple(sorted({name for name, _ in effects.mutates})),
        deletes=tuple(sorted(seen.attributes("delete", "delattr"))),
        creates_lazily=() if method.name == "__init__" else tuple(sorted(seen.writes - names.made)),
        reflection=tuple(
            Reflection(use.kind, use.attribute, use.line) for use in seen.uses if use.kind in _REFLECTIVE
        ),
        reflection_elsewhere=tuple(effects.reflection_elsewhere),
        calls=tuple(sorted(seen.attributes("call") & names.methods)),
        properties=tuple(sorted(reached & names.properties)),
        super_calls=tuple(dict.fromkeys(effects.super_calls)),
        private_names=tuple(
            sorted({u.attribute for u in seen.uses if u.attribute and _is_mangled(u.attribute)})
        ),
        escapes=_escapes(seen, passed & reads),
        self_aliases=seen.aliases,
        nested_over_self=_nested(seen),
        collectives=tuple(effects.collectives),
        environment=tuple(effects.environment),
        state_writes=(*effects.state_writes, *_shared_writes(effects, names)),
        local_imports=tuple(effects.local_imports),
        module_names=tuple(sorted(effects.names)),
        exits=tuple(effects.exits),
        other_definitions=others,
    )


def method_use(seen: Seen, names: ClassNames) -> MethodUse:
    """The same method for the coupling: what it reads, writes and calls, properties counted as calls."""
    calls = Counter(
        use.attribute
        for use in seen.uses
        if use.attribute in names.methods and use.kind in ("call", "read", "getattr", "augment", "write")
    )
    mutated = frozenset(name for name, _ in seen.effects.mutates)
    asked = seen.attributes("hasattr")
    return MethodUse(
        seen.method.name,
        seen.method.last_line - seen.method.first_line + 1,
        (seen.attributes(*READING) | asked) - names.methods,
        (seen.writes | mutated | seen.attributes("delete", "delattr")) - names.methods,
        {name: count for name, count in calls.items() if name is not None},
    )


def _escapes(seen: Seen, passed: frozenset[str]) -> tuple[Escape, ...]:
    if not passed and not any(use.kind == "escape" for use in seen.facts.uses):
        return ()
    name = seen.facts.self_name
    return escapes(seen.method.node, frozenset((name, *seen.aliases)) if name else frozenset(), passed)


def _nested(seen: Seen) -> tuple[str, ...]:
    found = list(seen.facts.nested_over_self)
    for alias in seen.aliases:
        found += facts_of_name(seen.method.node, alias).nested_over_self
    return tuple(dict.fromkeys(found))


def _shared_writes(effects: Effects, names: ClassNames) -> tuple[StateWrite, ...]:
    """`self.REGISTRY[k] = v` changes the class where only the class has the attribute."""
    return tuple(
        StateWrite("class", names.name, attribute, "item", line)
        for attribute, line in effects.mutates
        if attribute in names.shared
    )


def _is_mangled(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def properties_of(methods: Mapping[str, FunctionNode] | list[Method]) -> frozenset[str]:
    """Names that a read of `self.name` runs code for."""
    nodes = [method.node for method in methods] if isinstance(methods, list) else methods.values()
    return frozenset(node.name for node in nodes if method_kind(node) in ("property", "accessor"))
