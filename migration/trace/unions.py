"""Recorded type names of one place made one annotation, or none with a reason. Names in, text out."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from migration.errors import MigrationError

#: More types than this beside None are no type worth writing down.
WIDEST = 3
_SPELLED = {
    "list": "list[Any]",
    "set": "set[Any]",
    "frozenset": "frozenset[Any]",
    "tuple": "tuple[Any, ...]",
    "dict": "dict[Any, Any]",
    "collections.deque": "collections.deque[Any]",
    "collections.Counter": "collections.Counter[Any]",
    "collections.OrderedDict": "collections.OrderedDict[Any, Any]",
    "collections.defaultdict": "collections.defaultdict[Any, Any]",
    "collections.abc.Callable": "collections.abc.Callable[..., Any]",
    "collections.abc.Generator": "collections.abc.Generator[Any, Any, Any]",
    "collections.abc.AsyncGenerator": "collections.abc.AsyncGenerator[Any, Any]",
    "collections.abc.Coroutine": "collections.abc.Coroutine[Any, Any, Any]",
    "collections.abc.KeysView": "collections.abc.KeysView[Any]",
    "collections.abc.ValuesView": "collections.abc.ValuesView[Any]",
    "collections.abc.ItemsView": "collections.abc.ItemsView[Any, Any]",
    "object": "Any",
}
#: Modules that exist under this name in the traced process only.
_NOWHERE = ("__main__", "__mp_main__")


def qualified_names(node: ast.AST) -> Iterator[str]:
    """`app.worker.Pool` for every chain of names in a type, the longest ones only."""
    if isinstance(node, ast.Attribute):
        yield ast.unparse(node)
        return
    for child in ast.iter_child_nodes(node):
        yield from qualified_names(child)


def one_type(names: Iterable[str]) -> tuple[str, str | None]:
    """One annotation for the recorded type names, or ("Any", why not)."""
    try:
        parts = [_parse(ast.parse(name, mode="eval").body) for name in sorted(names)]
        members = [member for part in parts for member in part]
        for name in sorted({name for member in members for name in member.names()}):
            if name.partition(".")[0] in _NOWHERE:
                return "Any", f"{name} cannot be imported"
        found = sorted({member.origin for member in members} - {"None"})
        text = _join(members)
    except SyntaxError as error:
        raise MigrationError("MG521", f"not a type name: {error.text}") from error
    if text == "Any":
        return text, ", ".join(found) if len(found) > 1 else "no type that can be named"
    return (text, None) if text != "None" else ("Any", "only None")


@dataclass(frozen=True)
class _Type:
    """A class with the types of its elements; no `arguments` when nothing was in it, or it has none.

    A tuple of any length has the one argument of its elements and `many` set.
    """

    origin: str
    arguments: tuple[tuple[_Type, ...], ...] = ()
    many: bool = False

    def names(self) -> Iterable[str]:
        yield self.origin
        for argument in self.arguments:
            for member in argument:
                yield from member.names()


def _parse(node: ast.expr) -> tuple[_Type, ...]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return (*_parse(node.left), *_parse(node.right))
    if isinstance(node, ast.Subscript):
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        many = isinstance(inside[-1], ast.Constant) and inside[-1].value is Ellipsis
        arguments = tuple(_parse(argument) for argument in (inside[:-1] if many else inside))
        return (_Type(ast.unparse(node.value), arguments, many),)
    if isinstance(node, ast.Name | ast.Attribute | ast.Constant):
        return (_Type(ast.unparse(node)),)
    raise SyntaxError("no type name", ("types", node.lineno, node.col_offset, ast.unparse(node)))


def _join(members: Iterable[_Type]) -> str:
    """The union as text; "Any" where it would be too wide, `X | None` for an optional."""
    by_origin: dict[str, list[_Type]] = {}
    for member in members:
        by_origin.setdefault(member.origin, []).append(member)
    if by_origin.keys() & {"Any", "object"}:
        return "Any"
    optional = by_origin.pop("None", None) is not None
    if "int" in by_origin:
        by_origin.pop("bool", None)  # a bool is an int
    if not by_origin:
        return "None"
    if len(by_origin) > WIDEST:
        return "Any"
    texts = sorted(text for origin, group in by_origin.items() for text in _merged(origin, group))
    return " | ".join([*texts, "None"] if optional else texts)


def _merged(origin: str, group: list[_Type]) -> list[str]:
    """The element types of one origin brought together; an empty container says nothing of its elements."""
    filled = [member for member in group if member.arguments]
    if not filled:
        return [_SPELLED.get(origin, origin)]
    if origin == "type":  # classes have no elements to bring together: each is its own
        return sorted({f"type[{_join(member.arguments[0])}]" for member in filled})
    lengths = {(len(member.arguments), member.many) for member in filled}
    if origin == "tuple" and lengths != {(len(filled[0].arguments), False)}:
        elements = [item for member in filled for argument in member.arguments for item in argument]
        return [f"tuple[{_join(elements)}, ...]"]
    columns = zip(*(member.arguments for member in filled), strict=True)
    joined = [_join(item for argument in column for item in argument) for column in columns]
    return [f"{origin}[{', '.join(joined)}]"]
