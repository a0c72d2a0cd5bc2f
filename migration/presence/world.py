"""Everything that can make, delete or hide an attribute of one class: its kin and the files around."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Literal

from migration.code.facts import dotted
from migration.code.structure import FunctionNode
from migration.presence.around import SUPER_INIT
from migration.presence.attribute_uses import UseKind, takes_self
from migration.presence.class_files import ClassFiles, KnownClass, Module
from migration.presence.findings import Site, SiteKind, Value
from migration.presence.hierarchy import Hierarchy
from migration.presence.never_none import value_of
from migration.presence.of_class import ClassPresence
from migration.presence.values import Trace

_BUILTINS = frozenset(
    ("hasattr", "getattr", "setattr", "delattr", "vars", "super", "type", "isinstance", "property")
)
_ACCESS_HOOKS = ("__getattribute__", "__setattr__", "__delattr__")
_COPY_HOOKS = (
    "__copy__",
    "__deepcopy__",
    "__getstate__",
    "__setstate__",
    "__reduce__",
    "__reduce_ex__",
    "__getnewargs__",
    "__getnewargs_ex__",
)
_PLAIN_DECORATORS = frozenset(
    ("typing.final", "typing.runtime_checkable", "functools.total_ordering", "typing_extensions.final")
)


class World:
    """Facts about the attributes of a class."""

    def __init__(self, files: ClassFiles, module: Module, node: ast.ClassDef) -> None:
        self.files = files
        self.kin = Hierarchy(files, module, node)
        self.presence = ClassPresence(self.kin)

    @cached_property
    def without_helpers(self) -> ClassPresence:
        """The same where a method called on self may have been replaced."""
        return ClassPresence(self.kin, helpers=False)

    @property
    def owner(self) -> KnownClass:
        return self.kin.owner

    def traces(self, classes: Iterable[KnownClass]) -> Iterator[tuple[KnownClass, FunctionNode, Trace]]:
        for known in classes:
            for function in known.body.functions:
                if takes_self(function):
                    yield known, function, self.presence.trace(known, function)

    @cached_property
    def own(self) -> tuple[tuple[KnownClass, FunctionNode, Trace], ...]:
        """Methods of the class and its bases."""
        return tuple(self.traces(self.kin.order))

    @cached_property
    def everywhere(self) -> tuple[tuple[KnownClass, FunctionNode, Trace], ...]:
        """The same with subclasses and what they mix in."""
        return (*self.own, *self.traces(self.kin.outside))

    # What cannot be seen

    @cached_property
    def rebound_builtin(self) -> str | None:
        """hasattr and the like may mean something else in a file of the class."""
        for known in self.kin.order:
            if rebound := sorted(_BUILTINS & known.module.uses.bound):
                return f"{known.module.path} gives {rebound[0]} a meaning of its own"
        return None

    @cached_property
    def blind_spots(self) -> tuple[str, ...]:
        """What may make any claim about an attribute of the class wrong; of subclasses only the first."""
        found = list(_hidden_by(self.kin.order))
        found += [f"base class {name} is not in the tree" for name in self.kin.unknown_bases]
        if self.kin.too_many:
            found.append(f"{self.kin.too_many} subclasses are too many to look at")
        for known, function, trace in self.own:
            found += [
                f"{known.name}.{function.name} changes the class of the object in line {risk.line}"
                for risk in trace.risks
                if risk.kind == "class"
            ]
        found += list(_hidden_by(self.kin.outside))[:1]
        found += [
            f"a subclass mixes in {name}, which is not in the tree" for name in self.kin.unknown_mixins[:1]
        ]
        return tuple(found)

    def risks(self, kind: Literal["adds", "removes", "namespace"]) -> tuple[str, ...]:
        """Where attributes come, go or are looked at under names that cannot be seen."""
        said = {
            "adds": "sets attributes under a computed name",
            "removes": "may delete attributes under a computed name",
            "namespace": "looks at the attribute dictionary",
        }
        found: list[str] = []
        for known, function, trace in self.everywhere:
            lines = [risk.line for risk in trace.risks if risk.kind == kind]
            if kind == "removes":
                lines += [removal.node.lineno for removal in trace.removals if removal.attribute is None]
            found += [f"{known.name}.{function.name} {said[kind]} in line {line}" for line in lines]
        if kind == "removes":
            for known in self.kin.all:
                lines = list(known.module.uses.computed_deletes)
                found += [f"{known.module.path} {said[kind]} in line {line}" for line in lines]
        return tuple(dict.fromkeys(found))

    def rebinds_self(self, function: FunctionNode) -> bool:
        trace = self.presence.trace(self.owner, function)
        return any(risk.kind == "rebinds" for risk in trace.risks)

    def hooks(self, *names: str) -> tuple[str, ...]:
        """Special methods that answer for attributes or copy them."""
        return tuple(
            f"{known.name} has {name} (line {known.body.bindings[name][0].line})"
            for known in self.kin.all
            for name in names
            if name in known.body.bindings
        )

    @cached_property
    def escapes(self) -> tuple[str, ...]:
        """Where self is passed on to code that may do anything with it."""
        found = [
            f"{known.name}.{function.name} passes self on in line {mention.line}"
            for known, function, trace in self.everywhere
            for mention in trace.mentions
            if mention.name is None
        ]
        return tuple(dict.fromkeys(found))

    @cached_property
    def init_bypassed(self) -> tuple[str, ...]:
        """How an object may come about without its `__init__` having run to its end."""
        found = [f"{hook}: copies are made without __init__" for hook in self.hooks(*_COPY_HOOKS)]
        for known in self.kin.outside:
            items = known.body.bindings.get("__init__")
            if not items:
                continue
            node = known.body.plain_method("__init__")
            end = self.presence.trace(known, node).at_return if node is not None else frozenset()
            if known in self.kin.mixed_in or (end is not None and SUPER_INIT not in end):
                where = f"{known.module.path}:{items[0].line}"
                found.append(f"{known.name}.__init__ ({where}) may not call super().__init__()")
        for module in self._around(b"__new__"):
            path = module.path
            found += [
                f"{path}:{line} makes an object by __new__, without __init__" for line in module.uses.bare_new
            ]
        return tuple(found)

    @cached_property
    def init_again(self) -> tuple[str, ...]:
        """Where `__init__` may run once more on an object that has its attributes."""
        return tuple(
            f"{module.path}:{line} may run __init__ again"
            for module in self._around(b".__init__")
            for line in module.uses.init_again
        )

    def _around(self, word: bytes) -> Iterator[Module]:
        """Files with that word that belong to the kin or name the class."""
        kin = {known.module.path for known in self.kin.all}
        names = [known.name.encode() for known in (self.owner, *self.kin.subclasses)]
        for path, data in self.files.texts.items():
            if word in data and (path in kin or any(name in data for name in names)):
                if (module := self.files.module(path)) is not None:
                    yield module

    # One attribute

    def in_class_body(self, name: str) -> Literal["attribute", "computed", "unknown"] | None:
        """How the class bodies of the class and its bases answer for the name."""
        for known in self.kin.order:
            if (kind := known.body.kind(name)) is not None:
                return kind
        return None

    def sites(self, name: str) -> tuple[Site, ...]:
        """Every place that makes the attribute, as far as the kin and the own file show."""
        found: list[Site] = []
        for known in self.kin.all:
            foreign = known in self.kin.outside
            for binding in known.body.bindings.get(name, ()):
                if isinstance(binding.node, ast.FunctionDef | ast.AsyncFunctionDef):
                    kind: SiteKind = "property" if known.body.kind(name) == "computed" else "method"
                    value: Value = "not None"
                else:
                    kind = "class body"
                    value = value_of(binding.value, known, self.files)
                kind = "subclass" if foreign else kind
                found.append(Site(kind, known.module.path, binding.line, known.name, value))
        for known, function, trace in self.everywhere:
            for write in trace.writes:
                if write.attribute == name:
                    kind = "assigned"
                    if write.how == "setattr":
                        kind = "setattr"
                    elif function.name == "__init__" and known in self.kin.order:
                        end = trace.at_return
                        kind = "init" if end is not None and write.marker in end else "init, some ways"
                    value = value_of(write.value, known, self.files) if write.how != "augment" else "unknown"
                    kind = "subclass" if known in self.kin.outside else kind
                    found.append(Site(kind, known.module.path, write.node.lineno, function.name, value))
        found += self.elsewhere(name, "store", in_tree=False)
        return tuple(dict.fromkeys(found))

    def removals(self, name: str) -> tuple[Site, ...]:
        """Every place in the kin that deletes the attribute of self."""
        return tuple(
            Site("delete", known.module.path, removal.node.lineno, function.name, "unknown")
            for known, function, trace in self.everywhere
            for removal in trace.removals
            if removal.attribute == name
        )

    def elsewhere(self, name: str, *kinds: UseKind, in_tree: bool = True) -> Iterator[Site]:
        """Uses on objects that may be ours, outside the methods of the kin; files are parsed as asked for."""
        kin = dict.fromkeys(known.module.path for known in self.kin.all)
        others: Iterator[str] = iter(())
        if in_tree:
            word = name.encode()
            others = (path for path, data in self.files.texts.items() if word in data and path not in kin)
        for path in itertools.chain(kin, others):
            if path not in kin and not _may_hold(self.files.texts[path], name, kinds):
                continue
            module = self.files.module(path)
            for use in module.uses.by_name.get(name, ()) if module is not None else ():
                if use.kind in kinds and not use.on_self:
                    kind: SiteKind = "delete" if use.kind == "delete" else "other object"
                    yield Site(kind, path, use.node.lineno, ast.unparse(use.node), "unknown")


def _hidden_by(classes: Iterable[KnownClass]) -> Iterator[str]:
    for known in classes:
        for name in _ACCESS_HOOKS:
            if items := known.body.bindings.get(name):
                yield f"{known.name} has {name} (line {items[0].line})"
        for decorator in known.node.decorator_list:
            if known.body.origin(decorator) not in _PLAIN_DECORATORS:
                yield f"{known.name} is decorated with {dotted(decorator) or ast.unparse(decorator)}"
        for keyword in known.node.keywords:
            if not (keyword.arg == "metaclass" and known.body.origin(keyword.value) == "abc.ABCMeta"):
                yield f"{known.name} is made with {keyword.arg}={ast.unparse(keyword.value)}"


def _may_hold(data: bytes, name: str, kinds: tuple[UseKind, ...]) -> bool:
    """Whether the text of a file can hold a use of those kinds: spares the parse of most files."""
    word = re.escape(name.encode())
    if kinds != ("delete",):
        return re.search(rb"\b%b\b" % word, data) is not None
    found = re.search(rb"\bdel\b(?:[^\n]*\\\r?\n)*[^\n]*\b%b\b|\bdel\s*[\(\[]|\bdelattr\b" % word, data)
    return found is not None
