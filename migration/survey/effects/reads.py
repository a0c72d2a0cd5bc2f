"""Names and calls in expressions: the environment, collectives, reflection, the end of the process."""

from __future__ import annotations

import ast

from migration.code.facts import dotted
from migration.survey.effects.names import EXITS, MUTATORS, is_collective, is_environment_module
from migration.survey.effects.recorder import Recorder, literal
from migration.survey.effects.values import Collective, EnvironmentUse, How, OtherReflection

_REFLECTION = frozenset(("hasattr", "getattr", "setattr", "delattr"))


class Reads(Recorder):
    """Expressions that mean something by the name that they read or call."""

    def _name(self, node: ast.Name) -> None:
        name = node.id
        if name in self.owner.module.own and not self.scope.binds(name):
            self.found.names.add(name)
        elif self._may_be_environment(name):
            self._environment(node, "*")

    def _may_be_environment(self, root: str) -> bool:
        origin = self.owner.module.origins.get(root, "")
        return root in self.scope.bound or root in self.scope.imports or origin.startswith("os.env")

    def _environment(self, node: ast.expr, variable: str) -> bool:
        """Record a read where the node is the environment, or a variable of an `envs` module."""
        meaning = self._meaning(node)
        if meaning is None or meaning.place != "imported":
            return False
        module, _, last = meaning.path.rpartition(".")
        if meaning.path in ("os.environ", "os.environb"):
            self.found.environment.append(EnvironmentUse(variable, "read", node.lineno))
            return True
        if last.isupper() and is_environment_module(module):
            self.found.environment.append(EnvironmentUse(last, "read", node.lineno))
            return True
        return False

    def _attribute(self, node: ast.Attribute) -> None:
        if (node.attr.startswith("environ") or node.attr.isupper()) and self._environment(node, "*"):
            return
        self.visit(node.value)

    def _subscript(self, node: ast.Subscript) -> None:
        if not self._environment(node.value, literal(node.slice)):
            self.visit(node.value)
        self.visit(node.slice)

    def _compare(self, node: ast.Compare) -> None:
        """`"NAME" in os.environ` reads one variable."""
        self.visit(node.left)
        for operator, right in zip(node.ops, node.comparators, strict=True):
            contains = isinstance(operator, ast.In | ast.NotIn)
            if not (contains and self._environment(right, literal(node.left))):
                self.visit(right)

    def _call(self, node: ast.Call) -> None:
        function = node.func
        meaning = self._meaning(function)
        origin = meaning.path if meaning is not None and meaning.place in ("imported", "builtin") else None
        if isinstance(function, ast.Attribute):
            if dotted(getattr(function.value, "func", function)) == "super":
                self.found.super_calls.append(function.attr)
            if function.attr in MUTATORS:
                self._changed(function.value, "call", _first(node), node.lineno)
        last = getattr(function, "attr", getattr(function, "id", ""))
        if is_collective(last, origin):
            imported = origin if meaning is not None and meaning.place == "imported" else None
            self.found.collectives.append(
                Collective(ast.unparse(function), imported, node.lineno, self.conditional > 0)
            )
        elif origin is not None and self._known_call(node, origin):
            self._all((*node.args, *node.keywords))
            return
        self.visit(function)
        self._all((*node.args, *node.keywords))

    def _known_call(self, node: ast.Call, origin: str) -> bool:
        """Calls with a meaning of their own; True when the called name needs no further look."""
        line, last = node.lineno, origin.rpartition(".")[2]
        if origin in ("os.getenv", "os.getenvb"):
            self.found.environment.append(EnvironmentUse(_first(node), "read", line))
        elif origin in ("os.putenv", "os.unsetenv"):
            self.found.environment.append(EnvironmentUse(_first(node), "write", line))
        elif origin.startswith("os.environ."):
            if last not in MUTATORS:
                variable = _first(node) if node.args else "*"
                self.found.environment.append(EnvironmentUse(variable, "read", line))
        elif origin in EXITS:
            self.found.exits.append((ast.unparse(node.func), line))
        elif origin in _REFLECTION and len(node.args) > 1:
            self._reflection(node, origin)
        else:
            return False
        return True

    def _reflection(self, node: ast.Call, kind: str) -> None:
        on, name = node.args[0], node.args[1]
        meaning = self._meaning(on)
        if isinstance(on, ast.Name) and on.id == self.owner.self_name and not self.owner.on_class:
            return
        static = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
        spelled = ast.unparse(on)
        self.found.reflection_elsewhere.append(OtherReflection(kind, spelled, static, node.lineno))
        if (
            kind in ("setattr", "delattr")
            and meaning is not None
            and (meaning.place, meaning.path) != ("self", "")
        ):
            how: How = "set" if kind == "setattr" else "delete"
            self._place(meaning, static or f"<{ast.unparse(name)}>", how, node.lineno)


def _first(node: ast.Call) -> str:
    return literal(node.args[0]) if node.args else "*"
