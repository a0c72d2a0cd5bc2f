"""The methods that cannot move, and why: each check looks at one definition and names a code."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.code.facts import dotted, is_static, parameters
from migration.code.source import Source
from migration.code.structure import ClassOutline, Method
from migration.errors import Refusal
from migration.move.body import import_span, may_name_class, super_calls
from migration.move.moving import Moving, decorator_name, default_of, is_overload
from migration.move.stack_levels import settled
from migration.recipe import Recipe

_READS_SOURCE = frozenset(("script", "jit", "njit"))
_FRAME_CALLS = frozenset(
    (
        "sys._getframe",
        "inspect.currentframe",
        "inspect.stack",
        "inspect.trace",
        "eval",
        "exec",
        "globals",
        "locals",
    )
)
_MODULE_DUNDERS = frozenset(("__name__", "__file__", "__package__", "__spec__", "__doc__", "__loader__"))
_IDENTIFIER_FIELDS = ("id", "arg", "attr", "name", "asname", "rest")


def method_refusals(
    source: Source, outline: ClassOutline, moving: Moving, recipe: Recipe
) -> tuple[Refusal, ...]:
    """Every reason why this definition cannot move; empty when it can."""
    found = [
        *_definition(source, outline, moving, recipe),
        *_body(source, outline, moving, recipe),
        *_self_uses(source, moving),
    ]
    return tuple(Refusal(code, moving.label, line, message) for code, line, message in sorted(set(found)))


_Found = Iterator[tuple[str, int, str]]


def _definition(source: Source, outline: ClassOutline, moving: Moving, recipe: Recipe) -> _Found:
    node, name, line, facts = moving.node, moving.label, moving.node.lineno, moving.facts
    if rivals := _rivals(outline, moving.method):
        where = ", ".join(map(str, rivals))
        yield "MG007", line, f"{name} is also defined at line {where}; the last definition wins"
    if name == "__del__":
        yield "MG009", line, "when the interpreter ends, the stub may find no handler any more"
    for decorator in node.decorator_list:
        dotted_name = decorator_name(decorator)
        if dotted_name.rpartition(".")[2] in _READS_SOURCE:
            yield "MG006", line, f"@{dotted_name} reads the source of what it decorates"
    if facts.self_name is None and not is_static(node):
        yield "MG010", line, f"{name} takes no positional parameter"
    names = [handle.name for handle in recipe.handles] + ([recipe.snapshot.name] if recipe.snapshot else [])
    reserved = {f"{kind}{name}" for name in names for kind in ("_", "_read_")} | {"for_worker"}
    reserved |= {"on", f"_bound_{recipe.request.name}"} if recipe.request is not None else set()
    if moving.name in reserved:
        yield "MG019", line, f"{moving.name} is an attribute of the handler itself"
    _, served = recipe.served
    if served in parameters(node.args):
        yield "MG019", line, f"parameter {served} would hide the handler class in the stub"
    if moving.bare and any(
        arg.lineno != default.end_lineno or b"#" in source.lines[arg.lineno - 1]
        for arg, default in default_of(node)
    ):
        yield "MG020", line, "a default that must stay on the stub covers several lines"
    if facts.self_name is not None:
        for inner in ast.walk(node):
            if _binds(inner, facts.self_name):
                yield "MG010", getattr(inner, "lineno", line), f"{facts.self_name} is bound again"


def _rivals(outline: ClassOutline, method: Method) -> list[int]:
    """Lines of other bindings of the name that are neither accessors of one property nor overloads."""
    name = method.name
    definitions = outline.definitions(name)
    others = [other for other in definitions if other.node is not method.node]
    friends = all(
        index == 0 or any(dotted(d).rpartition(".")[0] == name for d in other.node.decorator_list)
        for index, other in enumerate(definitions)
    ) and not any(other.conditional for other in definitions)
    overloads = all(is_overload(other.node) for other in others) and method.node is definitions[-1].node
    assigned = [
        statement.lineno
        for statement in outline.node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign)
        and any(isinstance(t, ast.Name) and t.id == name for t in ast.walk(statement) if _is_store(t))
    ]
    clashing = [] if (friends or overloads) else [other.node.lineno for other in others]
    return [*clashing, *assigned]


def _is_store(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def _binds(node: ast.AST, name: str) -> bool:
    """True where `node` binds `name` other than as a parameter."""
    if isinstance(node, ast.Name):
        return node.id == name and _is_store(node)
    if isinstance(node, ast.Global | ast.Nonlocal):
        return name in node.names
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0]) == name
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
        return node.name == name
    return isinstance(node, ast.MatchAs | ast.MatchStar | ast.MatchMapping) and name in (
        getattr(node, "name", None),
        getattr(node, "rest", None),
    )


def _body(source: Source, outline: ClassOutline, moving: Moving, recipe: Recipe) -> _Found:
    """Hazards that depend on the class or module in which the code is compiled."""
    node = moving.node
    own_supers = {id(call.func) for call in super_calls(moving)} if may_name_class(source, outline) else set()
    # With both arguments it needs no cell: a name of the module and an object.
    own_supers |= {id(n.func) for n in ast.walk(node) if isinstance(n, ast.Call) and len(n.args) == 2}
    stack: list[tuple[ast.AST, bool]] = [(node, False)]
    while stack:
        part, nested_class = stack.pop()
        inside = nested_class or isinstance(part, ast.ClassDef)
        stack += [(child, inside) for child in ast.iter_child_nodes(part)]
        line = getattr(part, "lineno", node.lineno)
        if not nested_class:
            # A nested class has its own __class__ cell and mangles by its own name, wherever it stands.
            if isinstance(part, ast.Name):
                if part.id == "__class__" or (part.id == "super" and id(part) not in own_supers):
                    yield "MG001", line, part.id
            if part is not node and not isinstance(part, ast.Attribute):
                names = [getattr(part, field, None) for field in _IDENTIFIER_FIELDS]
                for name in (*names, *getattr(part, "names", ())):
                    if isinstance(name, str) and name.startswith("__") and not name.endswith("__"):
                        yield "MG002", line, name
        if isinstance(part, ast.Global):
            yield "MG003", line, f"global {', '.join(part.names)}"
        elif isinstance(part, ast.ImportFrom) and part.level and import_span(source, part) is None:
            yield "MG015", line, f"from {'.' * part.level}{part.module or ''} import ..."
        elif isinstance(part, ast.Name) and part.id in _MODULE_DUNDERS:
            yield "MG011", line, f"{part.id} names the module it stands in"
        elif isinstance(part, ast.keyword) and part.arg == "stacklevel":
            if id(part) not in settled(source, moving, recipe):
                yield "MG011", line, "stacklevel counts frames, and the stub adds one"
        elif isinstance(part, ast.Call):
            path = dotted(part.func)
            if path in _FRAME_CALLS or (path in ("vars", "dir") and not part.args):
                yield "MG011", line, f"{path}() sees the frame it is called in"


def _self_uses(source: Source, moving: Moving) -> _Found:
    name = (moving.facts.self_name or "").encode()
    for use in moving.facts.uses:
        text = source.lines[use.line - 1]
        if text[use.column : use.column + len(name)] != name:
            yield "MG018", use.line, "position inside a string is not exact on this Python"
    for field in source.labelled_fields(moving.node):
        if any(isinstance(n, ast.Name) and n.id == moving.facts.self_name for n in ast.walk(field.value)):
            yield "MG012", field.lineno, "the label of an f-string `=` would change"
