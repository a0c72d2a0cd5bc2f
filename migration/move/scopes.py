"""Do a method and its copy bind and find their names in the same places? As `symtable` sees it."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Collection, Iterator

from migration.code.copies import copy_tree
from migration.code.source import Source
from migration.code.structure import Method
from migration.move.moving import Moving

_FUTURE = "from __future__ import annotations\n"
_OWN = frozenset(("super", "__class__"))


def scope_faults(
    before: Source,
    one: Moving,
    after: Source,
    there: Method,
    declared: Collection[str],
    expected: ast.FunctionDef | ast.AsyncFunctionDef | None = None,
) -> list[str]:
    """Differences in the local, global, free and cell names of any scope of the method.

    `declared` names may differ: they became local imports from the worker module. `expected` is what the
    method is meant to become where the recipe rewrites expressions of it.
    """
    ignored = _OWN | set(declared)
    table = _table(before, one.method, one.label) if expected is None else _table_of(expected)
    old = list(_scopes(table, ignored))
    new = list(_scopes(_table(after, there, one.name), ignored))
    if [path for path, _ in old] != [path for path, _ in new]:
        return ["its nested scopes differ"]
    return [
        f"names of scope {path} differ: {sorted(names ^ others)}"
        for (path, names), (_, others) in zip(old, new, strict=True)
        if names != others
    ]


def _table(source: Source, method: Method, name: str) -> symtable.SymbolTable:
    lines = source.lines[method.node.lineno - 1 : method.last_line]
    text = b"".join(lines).decode().replace("\r\n", "\n")
    table = symtable.symtable(f"{_FUTURE}if 1:\n{text}", "<method>", "exec")
    return next(child for child in table.get_children() if child.get_name() == name)


class _Plain(ast.NodeTransformer):
    """F-strings as tuples of what is in them: not every one can be spelled again, and none has a scope."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        parts = [part for part in node.values if isinstance(part, ast.FormattedValue)]
        fields = [self.visit(part.value) for part in parts]
        fields += [self.visit(part.format_spec) for part in parts if part.format_spec is not None]
        return ast.Tuple(fields, ast.Load())


def _table_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> symtable.SymbolTable:
    bare = ast.fix_missing_locations(_Plain().visit(ast.Module([copy_tree(node)], [])))
    table = symtable.symtable(_FUTURE + ast.unparse(bare), "<method>", "exec")
    return next(child for child in table.get_children() if child.get_name() == node.name)


def _scopes(
    table: symtable.SymbolTable, ignored: Collection[str], path: str = ""
) -> Iterator[tuple[str, frozenset[tuple[str, str]]]]:
    names = {
        (symbol.get_name(), _kind(symbol))
        for symbol in table.get_symbols()
        if symbol.get_name() not in ignored
    }
    where = f"{path}/{table.get_type()}"
    yield where, frozenset(names)
    for index, child in enumerate(table.get_children()):
        yield from _scopes(child, ignored, f"{where}[{index}]")


def _kind(symbol: symtable.Symbol) -> str:
    if symbol.is_parameter():
        return "parameter"
    if symbol.is_free():
        return "free"
    return "global" if symbol.is_global() else "local"
