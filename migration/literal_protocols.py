"""A Protocol that a recipe gives word for word: what it may hold, so that it can stand in the handler module."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.patterns import PatternError

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def protocol_class(text: str, name: str) -> ast.ClassDef:
    """The one class of a `protocol_text`; raises PatternError where it could not be put into a module as it is."""
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise PatternError(f"line {error.lineno} of it is not Python ({error.msg})") from error
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    others = [n for n in module.body if not isinstance(n, ast.ClassDef | ast.Import | ast.ImportFrom)]
    if others:
        raise PatternError(f"line {others[0].lineno} of it is neither an import nor a class")
    if [node.name for node in classes] != [name]:
        found = ", ".join(node.name for node in classes) or "no class"
        raise PatternError(f"it must hold the class {name} alone, it holds {found}")
    (node,) = classes
    for problem in _problems(node):
        raise PatternError(problem)
    return node


def _problems(node: ast.ClassDef) -> Iterator[str]:
    if [ast.unparse(base) for base in node.bases] != ["Protocol"] or node.keywords:
        yield f"{node.name} must have the one base Protocol"
    for decorator in node.decorator_list:
        yield f"line {decorator.lineno} of it: a decorator"
    for statement in node.body:
        if isinstance(statement, _FUNCTIONS):
            defaults = [*statement.args.defaults, *(d for d in statement.args.kw_defaults if d is not None)]
            for default in defaults:
                if not isinstance(default, ast.Constant):
                    yield f"line {default.lineno} of it: a default must be a literal or `...`"
            for decorator in statement.decorator_list:
                if ast.unparse(decorator) not in ("property", f"{statement.name}.setter"):
                    yield f"line {decorator.lineno} of it: a decorator other than property"
        elif isinstance(statement, ast.AnnAssign):
            if statement.value is not None or not isinstance(statement.target, ast.Name):
                yield f"line {statement.lineno} of it: a member has a value"
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            yield f"line {statement.lineno} of it is no member of a Protocol"


def class_text(text: str, name: str) -> str:
    """The source of the class, from `class` on, with a final newline."""
    segment = ast.get_source_segment(text, protocol_class(text, name))
    assert segment is not None
    return segment.rstrip() + "\n"
