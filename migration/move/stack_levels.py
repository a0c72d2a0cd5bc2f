"""`warnings.warn(..., stacklevel=2)` in a method that moves: the stub is one frame more, so it becomes 3.

The 2 means the caller of the method, and between that and the method there is the stub, always and alone: it
is the only one that calls the copy. From 3 on frames count that a cut of the caller would change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from migration.code.facts import is_static, own_scope
from migration.code.source import Source
from migration.code.structure import FunctionNode
from migration.move.moving import Moving
from migration.recipe import Recipe

CALLER = 2
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def levels(node: FunctionNode, level: int = CALLER) -> Iterator[ast.Constant]:
    """The constants `level` that warnings of the method's own frame are given."""
    inner = {
        id(child) for part in own_scope(node) if isinstance(part, _COMPREHENSIONS) for child in ast.walk(part)
    }
    for part in own_scope(node):
        if isinstance(part, ast.Call) and id(part) not in inner and _is_warning(part):
            (keyword,) = (keyword for keyword in part.keywords if keyword.arg == "stacklevel")
            value = keyword.value
            if isinstance(value, ast.Constant) and type(value.value) is int and value.value == level:
                yield value


def _is_warning(call: ast.Call) -> bool:
    """`warnings.warn` with a stacklevel, and with nothing that may hide another one."""
    named = [keyword.arg for keyword in call.keywords]
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "warn"
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "warnings"
        and "stacklevel" in named
        and set(named) <= {"message", "category", "stacklevel", "source"}
        and len(call.args) <= 2
        and not any(isinstance(argument, ast.Starred) for argument in call.args)
    )


def settled(source: Source, moving: Moving, recipe: Recipe) -> frozenset[int]:
    """Ids of the keywords `stacklevel` whose meaning the move keeps: 1 as it is, 2 as 3."""
    if not _has_one_frame_more(source, moving, recipe) or not _is_module(source):
        return frozenset()
    constants = {id(value) for value in levels(moving.node, 1)}
    constants |= {id(value) for value in levels(moving.node) if _spells(source, value)}
    keywords = (part for part in ast.walk(moving.node) if isinstance(part, ast.keyword))
    return frozenset(id(keyword) for keyword in keywords if id(keyword.value) in constants)


def _has_one_frame_more(source: Source, moving: Moving, recipe: Recipe) -> bool:
    """A sibling may call the copy without the stub; the stub of an asynchronous generator is gone when it
    runs; a decorator that moves stands between the two."""
    through_stub = recipe.siblings == "worker" or moving.label in recipe.late_bound or not moving.is_direct
    return (
        (through_stub or re.search(rb"\.\s*%b\b" % moving.label.encode(), source.data) is None)
        and not moving.is_async_generator
        and set(moving.moving_decorators) <= ({"staticmethod"} if is_static(moving.node) else set())
    )


def _is_module(source: Source) -> bool:
    """`warnings` is the module of that name, here and wherever the handler looks it up."""
    bound = [part for part in ast.walk(source.tree) if _binds(part)]
    top = [part for part in source.tree.body if isinstance(part, ast.Import)]
    return len(bound) == 1 and any(bound[0] in part.names for part in top)


def _binds(part: ast.AST) -> bool:
    if isinstance(part, ast.alias):
        return (part.asname or part.name.partition(".")[0]) == "warnings" or part.name == "*"
    if isinstance(part, ast.Name):
        return part.id == "warnings" and not isinstance(part.ctx, ast.Load)
    if isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load):
        return ast.unparse(part) == "warnings.warn"
    names = [getattr(part, field, None) for field in ("arg", "name", "rest")]
    return "warnings" in names or "warnings" in getattr(part, "names", ())


def _spells(source: Source, value: ast.Constant) -> bool:
    return source.lines[value.lineno - 1][value.col_offset : value.end_col_offset] == b"%d" % CALLER
