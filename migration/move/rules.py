"""The methods that cannot move, and why: each check looks at one definition and names a code."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from migration.code.facts import MethodFacts, dotted, is_static, own_scope, parameters
from migration.code.source import Source
from migration.code.structure import ClassOutline, Method
from migration.errors import Refusal
from migration.recipe import Recipe

CONTEXT_MANAGERS = frozenset(("contextmanager", "contextlib.contextmanager"))
ASYNC_CONTEXT_MANAGERS = frozenset(("asynccontextmanager", "contextlib.asynccontextmanager"))
GRAD_MODES = frozenset(("torch.no_grad", "torch.inference_mode"))
_MOVABLE_DECORATORS = CONTEXT_MANAGERS | ASYNC_CONTEXT_MANAGERS | GRAD_MODES | {"staticmethod"}
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


def decorator_names(method: Method) -> tuple[str, ...]:
    """Dotted names of the decorators, of the called ones too; "" for anything else."""
    return tuple(
        dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
        for decorator in method.node.decorator_list
    )


def yields(method: Method) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_scope(method.node))


def method_refusals(
    source: Source, outline: ClassOutline, method: Method, facts: MethodFacts, recipe: Recipe
) -> tuple[Refusal, ...]:
    """Every reason why this definition cannot move; empty when it can."""
    found = [
        *_definition(outline, method, facts, recipe),
        *_body(method),
        *_self_uses(source, method, facts),
    ]
    return tuple(Refusal(code, method.name, line, message) for code, line, message in sorted(set(found)))


_Found = Iterator[tuple[str, int, str]]


def _definition(outline: ClassOutline, method: Method, facts: MethodFacts, recipe: Recipe) -> _Found:
    node, name, line = method.node, method.name, method.node.lineno
    others = [other.node.lineno for other in outline.definitions(name) if other.node is not node]
    assigned = [
        statement.lineno
        for statement in outline.node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign)
        and any(isinstance(t, ast.Name) and t.id == name for t in ast.walk(statement) if _is_store(t))
    ]
    if others or assigned:
        where = ", ".join(map(str, [*others, *assigned]))
        yield "MG007", line, f"{name} is also defined at line {where}; the last definition wins"
    if method.conditional:
        yield "MG008", line, f"{name} is defined under if/try/with in the class body"
    if name.startswith("__") and name.endswith("__"):
        yield "MG009", line, f"{name} is looked up on the class"
    for decorator in decorator_names(method):
        if decorator not in _MOVABLE_DECORATORS and decorator not in recipe.decorators:
            yield "MG006", line, f"@{decorator or '<expression>'}"
    if yields(method) and isinstance(node, ast.AsyncFunctionDef):
        if not ASYNC_CONTEXT_MANAGERS & set(decorator_names(method)):
            yield "MG017", line, f"async def {name} yields"
    if facts.self_name is None and not is_static(node):
        yield "MG010", line, f"{name} takes no positional parameter"
    reserved = {f"_{handle.name}" for handle in recipe.handles} | {"for_worker"}
    if name in reserved:
        yield "MG019", line, f"{name} is an attribute of the handler itself"
    if recipe.handler_class in parameters(node.args):
        yield "MG019", line, f"parameter {recipe.handler_class} would hide the handler class in the stub"
    defaults = [*node.args.defaults, *node.args.kw_defaults]
    if not all(default is None or _is_value(default) for default in defaults):
        yield "MG020", line, "stub and handler would each make one"
    if facts.self_name is not None:
        for inner in ast.walk(node):
            if _binds(inner, facts.self_name):
                yield "MG010", getattr(inner, "lineno", line), f"{facts.self_name} is bound again"


def _is_value(default: ast.expr) -> bool:
    """A default that is the same wherever it is evaluated: constants, names, and tuples of them."""
    if isinstance(default, ast.Tuple | ast.UnaryOp | ast.BinOp):
        return all(_is_value(part) for part in ast.iter_child_nodes(default) if isinstance(part, ast.expr))
    return isinstance(default, ast.Constant) or bool(dotted(default))


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


def _body(method: Method) -> _Found:
    """Hazards that depend on the class or module in which the code is compiled."""
    stack: list[tuple[ast.AST, bool]] = [(method.node, False)]
    while stack:
        node, nested_class = stack.pop()
        inside = nested_class or isinstance(node, ast.ClassDef)
        stack += [(child, inside) for child in ast.iter_child_nodes(node)]
        line = getattr(node, "lineno", method.node.lineno)
        if not nested_class:
            # A nested class has its own __class__ cell and mangles by its own name, wherever it stands.
            if isinstance(node, ast.Name) and node.id in ("super", "__class__"):
                yield "MG001", line, node.id
            names = [getattr(node, field, None) for field in _IDENTIFIER_FIELDS]
            for name in (*names, *getattr(node, "names", ())):
                if isinstance(name, str) and name.startswith("__") and not name.endswith("__"):
                    yield "MG002", line, name
        if isinstance(node, ast.Global):
            yield "MG003", line, f"global {', '.join(node.names)}"
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "MG015", line, f"from {'.' * node.level}{node.module or ''} import ..."
        elif isinstance(node, ast.Name) and node.id in _MODULE_DUNDERS:
            yield "MG011", line, f"{node.id} names the module it stands in"
        elif isinstance(node, ast.keyword) and node.arg == "stacklevel":
            yield "MG011", line, "stacklevel counts frames, and the stub adds one"
        elif isinstance(node, ast.Call):
            path = dotted(node.func)
            if path in _FRAME_CALLS or (path in ("vars", "dir") and not node.args):
                yield "MG011", line, f"{path}() sees the frame it is called in"


def _self_uses(source: Source, method: Method, facts: MethodFacts) -> _Found:
    name = (facts.self_name or "").encode()
    for use in facts.uses:
        if use.kind == "escape":
            yield "MG004", use.line, f"{facts.self_name} itself is passed, stored or returned"
        elif use.kind == "dynamic":
            yield "MG005", use.line, "attribute name is computed"
        text = source.lines[use.line - 1]
        if text[use.column : use.column + len(name)] != name:
            yield "MG018", use.line, "position inside a string is not exact on this Python"
    for node in ast.walk(method.node):
        if isinstance(node, ast.JoinedStr):
            for before, part in zip(node.values, node.values[1:], strict=False):
                if isinstance(part, ast.FormattedValue) and isinstance(before, ast.Constant):
                    if _is_debug_label(source, str(before.value), part.value, facts.self_name):
                        yield "MG012", node.lineno, "the label of an f-string `=` would change"


def _is_debug_label(source: Source, label: str, value: ast.expr, self_name: str | None) -> bool:
    """True when `label` is the source text that `{value=}` prints and mentions self."""
    text = source.segment(value).decode()
    mentions = any(isinstance(n, ast.Name) and n.id == self_name for n in ast.walk(value))
    return (
        mentions and label.rstrip().removesuffix("=").rstrip().endswith(text) and label.rstrip().endswith("=")
    )
