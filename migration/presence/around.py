"""What the walk over one method asks about the rest of its class."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from migration.code.facts import dotted, own_scope
from migration.presence.class_files import KnownClass

if TYPE_CHECKING:
    from migration.presence.of_class import ClassPresence

#: Added to the state after `super().__init__(...)`: a subclass must reach it.
SUPER_INIT = "<super().__init__>"
#: Context managers that never swallow an exception.
_PASS_EXCEPTIONS = frozenset(
    (
        "contextlib.closing",
        "contextlib.nullcontext",
        "open",
        "threading.Condition",
        "threading.Lock",
        "threading.RLock",
        "torch.device",
        "torch.enable_grad",
        "torch.inference_mode",
        "torch.no_grad",
    )
)


class Around:
    """`Surroundings` of the methods of one class of the hierarchy."""

    def __init__(self, presence: ClassPresence, owner: KnownClass) -> None:
        self.presence = presence
        self.owner = owner

    @property
    def loads_prove(self) -> bool:
        return self.presence.loads_prove

    def made_by_call(self, name: str, *, awaited: bool) -> frozenset[str]:
        found = self.presence.definition(name) if self.presence.helpers else None
        return frozenset() if found is None else self.presence.made_by(*found, awaited)

    def made_by_super(self, owner: ast.AST, name: str, *, awaited: bool) -> frozenset[str]:
        marker = frozenset((SUPER_INIT,) if name == "__init__" else ())
        base = self.presence.kin.next_after(self.owner, name)
        if base is None:
            return marker
        return marker | self.presence.made_by(base, base.body.plain_method(name), awaited)

    def lets_exceptions_through(self, manager: ast.expr) -> bool:
        if not isinstance(manager, ast.Call):
            return False
        if self.owner.callee(manager) in _PASS_EXCEPTIONS:
            return True
        name = dotted(manager.func)
        module = self.owner.module
        functions = [
            node for node in module.tree.body if isinstance(node, ast.FunctionDef) and node.name == name
        ]
        if len(functions) != 1 or name in module.names.repeated or name in module.uses.variables:
            return False
        return self._passes_on(functions[0])

    def _passes_on(self, function: ast.FunctionDef) -> bool:
        """Whether a `@contextmanager` function yields outside everything that could catch."""
        origins = [self.owner.body.origin(decorator) for decorator in function.decorator_list]
        if origins != ["contextlib.contextmanager"]:
            return False
        catching = (ast.With, ast.AsyncWith)
        for node in own_scope(function):
            catches = isinstance(node, catching) or (isinstance(node, ast.Try) and node.handlers)
            leaves = isinstance(node, ast.Try | ast.For | ast.While) and any(
                isinstance(part, ast.Return | ast.Break | ast.Continue)
                for last in getattr(node, "finalbody", ())
                for part in ast.walk(last)
            )
            if (catches or leaves) and any(isinstance(part, ast.Yield) for part in ast.walk(node)):
                return False
        return True
