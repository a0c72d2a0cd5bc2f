"""Break one method of a handler module, so that tests which run it must notice."""

from __future__ import annotations

import ast

#: What a handler has besides the methods that moved into it.
_OWN = {"__init__", "for_worker"}
BROKEN = 'raise AssertionError("broken on purpose")'


def moved_methods(source: str, class_name: str) -> tuple[str, ...]:
    """Names of the methods that moved into `class_name`, as they are called there."""
    return tuple(dict.fromkeys(node.name for node in _methods(source, class_name)))


def broken(source: str, class_name: str, method: str) -> str:
    """The module with `class_name.method` raising as its first act, its docstring untouched.

    Raises LookupError when no such method moved there.
    """
    found = [node.body for node in _methods(source, class_name) if node.name == method]
    if not found:
        raise LookupError(f"{class_name} has no method {method}")
    body = found[-1]
    first = body[1] if _is_docstring(body[0]) and len(body) > 1 else body[0]
    lines = source.splitlines(keepends=True)
    row = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", ()))]) - 1
    # ast counts columns in UTF-8 bytes.
    lead = lines[row].encode()[: first.col_offset].decode()
    if lead.strip():
        lines[row] = f"{lead}{BROKEN}; {lines[row][len(lead) :]}"
    else:
        lines.insert(row, f"{lead}{BROKEN}\n")
    return "".join(lines)


def _methods(source: str, class_name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for cls in ast.parse(source).body
        if isinstance(cls, ast.ClassDef) and cls.name == class_name
        for node in cls.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in _OWN
    ]


def _is_docstring(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(statement, ast.Expr) and isinstance(getattr(value, "value", None), str)
