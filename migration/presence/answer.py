"""A verdict with what its rewrite needs to know."""

from __future__ import annotations

import ast
import keyword
from dataclasses import dataclass

from migration.code.structure import FunctionNode
from migration.presence.findings import Rewrite, Site, Verdict
from migration.presence.values import Test


@dataclass(frozen=True)
class Answer:
    """A verdict with what the rewrite needs to know of its place."""

    method: FunctionNode
    test: Test
    verdict: Verdict
    reason: str
    sites: tuple[Site, ...]
    operand: bool
    #: the call is all that keeps self alive in the closure that it stands in
    holds_self: bool

    @property
    def default(self) -> ast.expr | None:
        arguments = self.test.node.args
        return arguments[2] if len(arguments) > 2 else None


def refused(why: str) -> Rewrite:
    return Rewrite("refused", None, why)


def is_plain_name(name: str) -> bool:
    return name.isidentifier() and name.isascii() and not keyword.iskeyword(name)


def spelled(test: Test, name: str) -> str:
    return f"{ast.unparse(test.node.args[0])}.{name}"
