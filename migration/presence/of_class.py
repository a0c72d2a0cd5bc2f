"""Which attributes of a class exist once an object has been made, and which code may run before they do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cached_property

from migration.code.structure import FunctionNode
from migration.presence.around import SUPER_INIT, Around
from migration.presence.attribute_uses import takes_self
from migration.presence.class_files import KnownClass
from migration.presence.flow import trace_method
from migration.presence.hierarchy import Hierarchy
from migration.presence.values import Trace

#: Helpers that call helpers are followed so far.
_DEEPEST = 12
#: Methods that Python may call on an object whose `__init__` has not finished, or has failed.
_UNTIMELY = (
    "__del__",
    "__eq__",
    "__format__",
    "__getattr__",
    "__getattribute__",
    "__hash__",
    "__repr__",
    "__setattr__",
    "__delattr__",
    "__setstate__",
    "__str__",
)


class ClassPresence:
    """Traces of the methods of a class and its kin, each made once.

    `helpers`: what a method called on self makes counts for its caller.
    """

    def __init__(self, kin: Hierarchy, *, helpers: bool = True) -> None:
        self.kin = kin
        self.helpers = helpers
        self._traces: dict[int, Trace] = {}
        self._running: set[int] = set()

    @cached_property
    def loads_prove(self) -> bool:
        return not any("__getattr__" in known.body.bindings for known in self.kin.all)

    def trace(self, owner: KnownClass, node: FunctionNode) -> Trace:
        """The trace of one method, as if nothing existed when it is called; empty where no self is passed."""
        if not takes_self(node):
            return Trace(at_return=frozenset())
        if id(node) not in self._traces:
            self._running.add(id(node))
            self._traces[id(node)] = trace_method(node, owner.name, Around(self, owner))
            self._running.discard(id(node))
        return self._traces[id(node)]

    def made_by(self, owner: KnownClass, node: FunctionNode | None, awaited: bool) -> frozenset[str]:
        """Attributes that exist after a call of that method has returned."""
        if node is None or id(node) in self._running or isinstance(node, ast.AsyncFunctionDef) != awaited:
            return frozenset()
        if len(self._running) > _DEEPEST:
            return frozenset()
        return self.trace(owner, node).at_return or frozenset()

    def definition(self, name: str) -> tuple[KnownClass, FunctionNode] | None:
        """What `self.name(...)` runs on any object of the class; None where that is not certain."""
        if any(name in known.body.bindings for known in self.kin.outside):
            return None
        if any(known.module.may_store(name) for known in self.kin.all) or self._may_be_patched(name):
            return None
        for known in self.kin.order:
            if name in known.body.bindings:
                node = known.body.plain_method(name)
                return None if node is None else (known, node)
        return None

    def _may_be_patched(self, name: str) -> bool:
        """Whether a file that names the class assigns such an attribute, or spells its name in a string."""
        pattern = re.compile(rb"\.\s*%b\s*=(?!=)|[\"'.]%b[\"']" % ((re.escape(name.encode()),) * 2))
        return any(pattern.search(data) for data in self._others)

    @cached_property
    def _others(self) -> tuple[bytes, ...]:
        kin = {known.module.path for known in self.kin.all}
        names = [known.name.encode() for known in self.kin.all]
        return tuple(
            data
            for path, data in self.kin.files.texts.items()
            if path not in kin and any(name in data for name in names)
        )

    @cached_property
    def initialiser(self) -> tuple[KnownClass, FunctionNode] | None:
        """The `__init__` that the class has, its own or inherited."""
        for known in self.kin.order:
            if "__init__" in known.body.bindings:
                node = known.body.plain_method("__init__")
                return None if node is None else (known, node)
        return None

    @cached_property
    def after_init(self) -> frozenset[str]:
        """Attributes that exist when `__init__` has returned, whichever way it took."""
        if self.initialiser is None:
            return frozenset()
        return self.trace(*self.initialiser).at_return or frozenset()

    def before(self, attribute: str) -> frozenset[str] | None:
        """Methods that may run before `__init__` has made the attribute; None: any may."""
        roots = self._untimely
        if roots is None:
            return None
        names, extra = set(roots), []
        if self.initialiser is not None:
            owner, node = self.initialiser
            for mention in self.trace(owner, node).mentions:
                if mention.state is None or attribute in mention.state or mention.name == attribute:
                    continue
                if mention.name is None:
                    return None
                if mention.on_super:
                    base = self.kin.next_after(owner, mention.name)
                    if base is None and not self._only_object_behind(owner):
                        return None
                    if base is not None:
                        extra += [(base, f) for f in base.body.functions if f.name == mention.name]
                else:
                    names.add(mention.name)
        return self._reach(names, extra)

    def before_own_init(self) -> frozenset[str] | None:
        """Methods that may run before the first statement of `__init__` has; None: any may."""
        return None if self._untimely is None else self._reach(self._untimely, [])

    def reached_by_super_init(self) -> frozenset[str] | None:
        """Methods that may run while `super().__init__()` of the class's own `__init__` does; None: any may."""
        owner = self.kin.owner
        base = self.kin.next_after(owner, "__init__")
        if self._untimely is None or (base is None and not self._only_object_behind(owner)):
            return None
        functions = base.body.functions if base is not None else ()
        return self._reach(self._untimely, [(base, f) for f in functions if f.name == "__init__" and base])

    @cached_property
    def _untimely(self) -> frozenset[str] | None:
        """Methods called by Python on half-made objects, or by a subclass before it calls `super().__init__`."""
        roots = {name for name in _UNTIMELY if name in self._mentioned}
        for subclass in self.kin.outside:
            for function in subclass.body.functions:
                if function.name != "__init__":
                    continue
                for mention in self.trace(subclass, function).mentions:
                    late = mention.state is None or SUPER_INIT in mention.state
                    if late or (mention.on_super and mention.name == "__init__"):
                        continue
                    if mention.name is None:
                        return None
                    roots.add(mention.name)
        return frozenset(roots)

    def _only_object_behind(self, owner: KnownClass) -> bool:
        kin = self.kin
        return not (kin.unknown_bases or kin.mixed_in or kin.unknown_mixins) and owner in kin.order

    @cached_property
    def _mentioned(self) -> dict[str, tuple[frozenset[str], bool]]:
        """Method name -> what its definitions mention, and whether one of them passes self on."""
        found: dict[str, tuple[frozenset[str], bool]] = {}
        for known in self.kin.all:
            for function in known.body.functions:
                names, escapes = found.get(function.name, (frozenset(), False))
                more, again = self._of(known, function)
                found[function.name] = (names | more, escapes or again)
            for name in known.body.bindings:
                if known.body.kind(name) == "unknown":
                    # A descriptor or a decorator is handed the object and may do anything with it.
                    found[name] = (found.get(name, (frozenset(), False))[0], True)
        return found

    def _of(self, known: KnownClass, function: FunctionNode) -> tuple[frozenset[str], bool]:
        mentions = self.trace(known, function).mentions
        return frozenset(m.name for m in mentions if m.name is not None), any(
            m.name is None for m in mentions
        )

    def _reach(
        self, roots: Iterable[str], extra: list[tuple[KnownClass, FunctionNode]]
    ) -> frozenset[str] | None:
        reached: set[str] = set()
        waiting = list(roots)
        for known, function in extra:
            names, escapes = self._of(known, function)
            if escapes:
                return None
            waiting += names
        while waiting:
            name = waiting.pop()
            if name in reached or name not in self._mentioned:
                continue
            reached.add(name)
            names, escapes = self._mentioned[name]
            if escapes:
                return None
            waiting += names
        return frozenset(reached)
