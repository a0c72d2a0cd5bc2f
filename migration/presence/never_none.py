"""Whether an expression can be None."""

from __future__ import annotations

import ast
from typing import Literal

from migration.code.facts import dotted
from migration.presence.class_files import ClassFiles, KnownClass
from migration.presence.findings import Value
from migration.presence.hierarchy import Hierarchy

_DISPLAYS = (
    ast.List
    | ast.Tuple
    | ast.Dict
    | ast.Set
    | ast.ListComp
    | ast.SetComp
    | ast.DictComp
    | ast.GeneratorExp
    | ast.JoinedStr
)
#: Types and functions that return an object of a builtin kind: `+=` on it gives one again.
_BUILTIN = frozenset(
    (
        "bool",
        "bytearray",
        "bytes",
        "collections.Counter",
        "collections.OrderedDict",
        "collections.defaultdict",
        "collections.deque",
        "dict",
        "float",
        "frozenset",
        "int",
        "len",
        "list",
        "set",
        "sorted",
        "str",
        "time.monotonic",
        "time.perf_counter",
        "time.time",
        "tuple",
    )
)
_INSTANCE = frozenset(
    (
        "asyncio.Event",
        "asyncio.Lock",
        "asyncio.Queue",
        "itertools.count",
        "object",
        "pathlib.Path",
        "queue.Queue",
        "threading.Condition",
        "threading.Event",
        "threading.Lock",
        "threading.RLock",
        "threading.Thread",
        "torch.arange",
        "torch.cuda.Event",
        "torch.cuda.Stream",
        "torch.device",
        "torch.empty",
        "torch.full",
        "torch.ones",
        "torch.tensor",
        "torch.zeros",
    )
)
Kind = Literal["builtin", "instance"]


def value_of(node: ast.expr | None, known: KnownClass, files: ClassFiles) -> Value:
    """What an assignment of `node` in code of that class makes certain."""
    if isinstance(node, ast.Constant) and node.value is None:
        return "None"
    return "unknown" if never_none(node, known, files) is None else "not None"


def never_none(node: ast.expr | None, known: KnownClass, files: ClassFiles) -> Kind | None:
    """`builtin` or `instance` where the value cannot be None, None where it can."""
    if isinstance(node, ast.Constant):
        return None if node.value is None else "builtin"
    if isinstance(node, _DISPLAYS):
        return "builtin"
    if isinstance(node, ast.Lambda):
        return "instance"
    if isinstance(node, ast.UnaryOp):
        return "builtin" if isinstance(node.op, ast.Not) else never_none(node.operand, known, files)
    if isinstance(node, ast.Compare):
        certain = all(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops)
        return "builtin" if certain else None
    if isinstance(node, ast.NamedExpr):
        return never_none(node.value, known, files)
    if isinstance(node, ast.BinOp):
        both = [never_none(part, known, files) for part in (node.left, node.right)]
        return "builtin" if both == ["builtin", "builtin"] else None
    if isinstance(node, ast.IfExp):
        return _all((node.body, node.orelse), known, files)
    if isinstance(node, ast.BoolOp):
        # `a or b` is a when a is true, and then it is not None.
        last = node.values[-1:] if isinstance(node.op, ast.Or) else node.values
        found = _all(last, known, files)
        return "instance" if found == "builtin" and isinstance(node.op, ast.Or) else found
    if isinstance(node, ast.Call):
        return _call(node, known, files)
    return None


def _all(parts: list[ast.expr] | tuple[ast.expr, ...], known: KnownClass, files: ClassFiles) -> Kind | None:
    kinds = [never_none(part, known, files) for part in parts]
    if None in kinds:
        return None
    return "builtin" if set(kinds) == {"builtin"} else "instance"


def _call(node: ast.Call, known: KnownClass, files: ClassFiles) -> Kind | None:
    origin = known.callee(node)
    if origin in _BUILTIN:
        return "builtin"
    if origin in _INSTANCE:
        return "instance"
    found = files.resolve(known.module, node.func)
    if isinstance(found, str) or not known.module.uses.is_certain(dotted(node.func).partition(".")[0]):
        return None
    kin = Hierarchy(files, found.module, found.node)
    return (
        "instance" if not kin.unknown_bases and all(_makes_instances(known) for known in kin.order) else None
    )


def _makes_instances(known: KnownClass) -> bool:
    """Whether calling the class gives an object of it, as far as this class decides."""
    decorators = {known.body.origin(decorator) for decorator in known.node.decorator_list}
    return (
        not known.node.keywords
        and "__new__" not in known.body.bindings
        and decorators <= {"dataclasses.dataclass", "typing.final"}
    )
