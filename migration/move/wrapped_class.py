"""What an existing class offers to an adapter: its methods and attributes, read from the source."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from migration.code.facts import WRITING, dotted, is_static, method_facts
from migration.code.source import Source
from migration.code.structure import FunctionNode, outline
from migration.move.names import ModuleNames

#: Decorators that leave the parameters as they are.
_TRANSPARENT = {"staticmethod", "classmethod", "contextmanager", "asynccontextmanager", "override", "final"}
_TRANSPARENT |= {"abstractmethod", "no_grad", "inference_mode", "cache", "lru_cache"}


@dataclass(frozen=True)
class Offered:
    """One name of the wrapped class: a method (`node`), an attribute, or a `code` and `problem` why neither."""

    name: str
    node: FunctionNode | None = None
    settable: bool = True
    code: str = ""
    problem: str = ""

    @property
    def bound(self) -> int:
        """How many leading parameters the call itself fills in."""
        return int(self.node is not None and not is_static(self.node))


class WrappedClass:
    """A class of a file with the bases that the same file defines; MG102 when it is not there."""

    def __init__(self, source: Source, module: str, name: str) -> None:
        self.name = name
        self.module = module
        self.names = ModuleNames(source, module, is_package=source.path.endswith("__init__.py"))
        self._source = source
        self._elsewhere: list[str] = []
        self._offered: dict[str, Offered] = {}
        self._read(name, frozenset())

    def offers(self, name: str) -> Offered:
        """What the class has under a name; MG526 in `code` where its source shows nothing."""
        if name.startswith("__") and not name.endswith("__"):
            return Offered(name, code="MG526", problem=f"the name is private to {self.name}")
        if name in self._offered:
            return self._offered[name]
        inherited = f" (nor what it inherits from {', '.join(self._elsewhere)})" if self._elsewhere else ""
        message = f"{self.name} in {self._source.path} does not show it{inherited}"
        return Offered(name, code="MG526", problem=message)

    def _read(self, name: str, below: frozenset[str]) -> None:
        shape = outline(self._source, name)
        own = {node.name for node in self._source.tree.body if isinstance(node, ast.ClassDef)}
        for base in reversed(shape.node.bases):
            base_name = dotted(base.value if isinstance(base, ast.Subscript) else base)
            if base_name in own - below - {name}:
                self._read(base_name, below | {name})
            elif base_name.rpartition(".")[2] not in ("object", "Generic", "Protocol", "ABC"):
                self._elsewhere.append(base_name)
        for statement in shape.node.body:
            for target in _targets(statement):
                self._offered[target] = Offered(target)
        for method in shape.methods:
            for use in method_facts(method.node).uses:
                if use.attribute and use.kind in WRITING:
                    self._offered.setdefault(use.attribute, Offered(use.attribute))
        for method in shape.methods:
            seen = self._offered.get(method.name) if len(shape.definitions(method.name)) > 1 else None
            offered = _offered(method.node, method.conditional, seen)
            if offered is not None:
                self._offered[method.name] = offered


def _targets(statement: ast.stmt) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _offered(node: FunctionNode, conditional: bool, before: Offered | None) -> Offered | None:
    """What one definition offers, None for an overload; `before` is an earlier one of the same name."""
    decorators = [dotted(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list]
    last = [name.rpartition(".")[2] for name in decorators]
    if "overload" in last:
        return None
    if conditional or (before is not None and before.code):
        message = f"it is defined under a condition in line {node.lineno}"
        return Offered(node.name, code="MG528", problem=before.problem if before and before.code else message)
    if decorators and decorators[-1] in (f"{node.name}.setter", f"{node.name}.deleter"):
        return Offered(node.name, settable=last[-1] == "setter" or (before is not None and before.settable))
    if any(name.endswith("property") for name in last):
        return Offered(node.name, settable="cached_property" in last)
    strange = [name for name, short in zip(decorators, last, strict=True) if short not in _TRANSPARENT]
    if strange:
        message = f"decorator {strange[0] or 'in line ' + str(node.lineno)} may change its parameters"
        return Offered(node.name, code="MG528", problem=message)
    return Offered(node.name, node, settable=False)
