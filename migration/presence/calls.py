"""Calls: reflection on self, methods of self and of its bases, everything that gets hold of self."""

from __future__ import annotations

import ast

from migration.code.facts import dotted
from migration.presence.pieces import Pieces
from migration.presence.values import Removal, State, Test, TestKind

_REFLECTION = frozenset(("hasattr", "getattr", "setattr", "delattr"))
#: Calls that look at self and keep nothing of it, nor run its methods.
_HARMLESS = frozenset(("type", "isinstance", "id", "super", "callable"))
_READS = frozenset(("get", "items", "keys", "values", "copy", "__contains__", "__len__"))
_ADDS = frozenset(("update", "setdefault", "__setitem__"))
_READERS = frozenset(("dict", "list", "len", "sorted", "set", "tuple", "frozenset", "str", "repr", "iter"))


class Calls(Pieces):
    """Walks calls."""

    def _call(self, node: ast.Call, state: State, *, awaited: bool = False) -> State:
        function = node.func
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if any(keyword.arg is None and self.is_namespace(keyword.value) for keyword in node.keywords):
            self.risk("namespace", node)
            arguments = [part for part in arguments if not self.is_namespace(part)]
        name = function.id if isinstance(function, ast.Name) else ""
        if name in _REFLECTION and node.args and self.is_self(node.args[0]):
            return self._reflection(name, node, state)
        if name in _HARMLESS and any(self.is_self(part) for part in arguments):
            return self.all((part for part in arguments if not self.is_self(part)), state)
        if name in ("exec", "eval"):
            self.risk("adds", node)
            self.risk("removes", node)
            self.mention(None, node, state)
        if self.is_namespace(node):
            return self._namespace_escapes(node, state)
        if name in _READERS:
            return self._looked_at(arguments, state)
        if not isinstance(function, ast.Attribute):
            return self.all((function, *arguments), state)
        if self.is_namespace(function.value):
            self.risk("namespace", node)
            if function.attr not in _READS:
                self.risk("adds", node)
            if function.attr not in _READS | _ADDS:
                self.risk("removes", node)
            return self.all(arguments, state)
        if isinstance(function.value, ast.Call) and dotted(function.value.func) == "super":
            return self._super_call(function.attr, node, arguments, state, awaited)
        called = self.attribute(function)
        state = self.all((function, *arguments), state)
        if called is not None and state is not None:
            state |= self.around.made_by_call(called, awaited=awaited)
        return state

    def _super_call(
        self, name: str, node: ast.Call, arguments: list[ast.expr], state: State, awaited: bool
    ) -> State:
        state = self.all(arguments, state)
        if name in ("__setattr__", "__delattr__"):
            target = node.args[0] if node.args else None
            static = target.value if isinstance(target, ast.Constant) else None
            if name == "__delattr__":
                self.trace.removals.append(Removal(static if isinstance(static, str) else None, node))
            else:
                self.risk("adds", node)
            return state
        explicit = node.func.value.args[:1]  # type: ignore[attr-defined]
        if explicit and dotted(explicit[0]) != self.class_name:
            self.mention(None, node, state)
            return state
        self.mention(name, node, state, on_super=True)
        if state is not None:
            state |= self.around.made_by_super(self.owner, name, awaited=awaited)
        return state

    def _reflection(self, kind: str, node: ast.Call, state: State) -> State:
        constant = node.args[1] if len(node.args) > 1 else None
        name = constant.value if isinstance(constant, ast.Constant) else None
        static = name if isinstance(name, str) else None
        state = self.all(node.args[1:], state)
        self.mention(static, node, state)
        if kind == "setattr":
            if static is None:
                self.risk("adds", node)
                return state
            return self.written(static, node, state, node.args[2] if len(node.args) > 2 else None, "setattr")
        if kind == "delattr":
            self.trace.removals.append(Removal(static, node))
            return state
        test_kind: TestKind = "hasattr" if kind == "hasattr" else "getattr"
        self.trace.tests.append(Test(test_kind, node, static, state, self.nesting > 0))
        if kind == "getattr" and len(node.args) == 2 and static is not None:
            return self.exists(state, static)
        return state
