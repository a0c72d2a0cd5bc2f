"""Expressions in a recipe: what `self.core_engine.view` and `hasattr(self, "x")` spell, checked and normalised."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class RewriteSpec:
    """Every place where moved code has the expression `before` has `after` instead.

    `after` begins with `self.<handle>`: the part of the handler that the rest is looked up on.
    """

    before: str
    after: str

    @property
    def handle(self) -> str:
        return links(self.after)[0]

    @property
    def members(self) -> tuple[str, ...]:
        """What is looked up on the handle."""
        return links(self.after)[1:]


class PatternError(ValueError):
    """An expression of a recipe that cannot be used; the message says what it must be."""


def expression(text: str) -> ast.expr:
    """The tree of an expression; raises PatternError."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise PatternError(f"{text!r} is not a Python expression ({error.msg})") from error


def links(text: str) -> tuple[str, ...]:
    """The attributes of a chain: `self.a.b` -> ("a", "b"); raises PatternError for anything else."""
    node = expression(text)
    found: list[str] = []
    while isinstance(node, ast.Attribute):
        found.append(node.attr)
        node = node.value
    if not found or not (isinstance(node, ast.Name) and node.id == "self"):
        raise PatternError(f"{text!r} must be a chain of attributes that begins with `self.`")
    return tuple(reversed(found))


def mentions_self(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "self" for part in ast.walk(node))


def contains(outer: str, inner: str) -> bool:
    """True where the expression `inner` is a part of `outer`, or all of it."""
    wanted = ast.dump(expression(inner))
    return any(
        isinstance(part, ast.expr) and ast.dump(part) == wanted for part in ast.walk(expression(outer))
    )


def normal(text: str) -> str:
    """An expression as `ast.unparse` spells it."""
    return ast.unparse(expression(text))
