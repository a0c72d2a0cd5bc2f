"""What is counted of one version of the monolith and of a handler module. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from migration.burndown.pieces import Pieces, cut

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_ASKING = frozenset(("hasattr", "getattr"))
_LEGACY = "_legacy_"
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class ClassSize:
    """`lines` are those of the file. `asks` are hasattr and getattr calls on self. `gates` are gate objects of
    the module, `gated` the methods of the class that stand behind one."""

    lines: int
    class_lines: int
    methods: int
    asks: int
    gates: int
    gated: int


@dataclass(frozen=True)
class HandlerSize:
    """`width` are the members of all Protocols of the module."""

    lines: int
    protocols: int
    width: int


@dataclass(frozen=True)
class Unparsed:
    """A version that Python cannot read, and why."""

    why: str


@dataclass(frozen=True)
class _Facts:
    """Of a stretch of statements. `last_line` is that of the last one, 0 where there is none."""

    statements: int
    methods: int
    asks: int
    gates: int
    gated: int
    last_line: int


@dataclass(frozen=True)
class Measurer:
    """Measures versions of one class. A stretch of lines that was seen before is not parsed again."""

    class_name: str
    _seen: dict[tuple[bytes, bytes], _Facts | None] = field(default_factory=dict)

    def measure(self, data: bytes) -> ClassSize | Unparsed:
        """The version in `data`; UTF-8, any line ends."""
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        pieces = cut(data, self.class_name)
        found = self._in_pieces(data, pieces) if pieces else None
        return found or self.measure_whole(data)

    def measure_whole(self, data: bytes) -> ClassSize | Unparsed:
        """The same by parsing all of it."""
        try:
            tree = ast.parse(data)
        except _UNREADABLE as error:
            return Unparsed(_why(error))
        node = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == self.class_name), None)
        top = _facts(tree.body)
        if node is None:
            return ClassSize(_count_lines(data), 0, 0, 0, top.gates, 0)
        own = _facts(node.body)
        size = (node.end_lineno or node.lineno) - node.lineno + 1
        return ClassSize(_count_lines(data), size, own.methods, own.asks, top.gates, own.gated)

    def _in_pieces(self, data: bytes, pieces: Pieces) -> ClassSize | None:
        """None where a piece does not parse on its own: only the whole can then say what it holds."""
        opening = pieces.opening + pieces.indent + b"pass\n"
        outside = [self._look(piece, b"") for piece in (pieces.head, opening, pieces.tail)]
        inside = [self._look(piece, b"class _:\n") for piece in pieces.members]
        known = [facts for facts in inside if facts is not None]
        top = [facts for facts in outside if facts is not None]
        if len(known) < len(inside) or len(top) < len(outside) or top[1].statements != 1:
            return None
        # Line 1 of what was parsed of a member is the `class _:` before it.
        last_line = pieces.last_member + known[-1].last_line - 2
        return ClassSize(
            _count_lines(data),
            last_line - pieces.class_line + 1,
            sum(facts.methods for facts in known),
            sum(facts.asks for facts in known),
            sum(facts.gates for facts in top),
            sum(facts.gated for facts in known),
        )

    def _look(self, text: bytes, head: bytes) -> _Facts | None:
        """What the statements of `text` hold, as the body of a class that `head` opens."""
        if (head, text) not in self._seen:
            self._seen[head, text] = _parsed(text, head)
        return self._seen[head, text]


def _parsed(text: bytes, head: bytes) -> _Facts | None:
    try:
        tree = ast.parse(head + text)
    except _UNREADABLE:
        return None
    if not head:
        return _facts(tree.body)
    node = tree.body[0]
    # A second statement would stand outside the class, at a line that looked like one within it.
    return _facts(node.body) if isinstance(node, ast.ClassDef) and len(tree.body) == 1 else None


def _facts(body: Sequence[ast.stmt]) -> _Facts:
    methods = list(_functions(body))
    return _Facts(
        len(body),
        len(methods),
        sum(map(_asks, methods)),
        sum(map(_is_gate, body)),
        sum(method.name.startswith(_LEGACY) for method in methods),
        max((node.end_lineno or node.lineno for node in body), default=0),
    )


def _functions(body: Iterable[ast.stmt]) -> Iterator[FunctionNode]:
    """The definitions of a class body, those under a condition as well."""
    for node in body:
        if isinstance(node, FunctionNode):
            yield node
        elif not isinstance(node, ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _functions(getattr(node, name, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _functions(handler.body)


def _asks(method: FunctionNode) -> int:
    parameters = (*method.args.posonlyargs, *method.args.args)
    if not parameters or any(
        isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.decorator_list
    ):
        return 0
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _ASKING
        and bool(node.args)
        and isinstance(first := node.args[0], ast.Name)
        and first.id == parameters[0].arg
        for node in ast.walk(method)
    )


def _is_gate(node: ast.stmt) -> bool:
    """`_KV_GATE = Gate("KV", ...)`."""
    call = node.value if isinstance(node, ast.Assign) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Gate"


def _count_lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def measure_handler(data: bytes) -> HandlerSize | Unparsed:
    """Lines and Protocols of a handler module."""
    try:
        tree = ast.parse(data)
    except _UNREADABLE as error:
        return Unparsed(_why(error))
    protocols = [
        node for node in tree.body if isinstance(node, ast.ClassDef) and any(map(_is_protocol, node.bases))
    ]
    return HandlerSize(_count_lines(data), len(protocols), sum(map(_width, protocols)))


def _is_protocol(base: ast.expr) -> bool:
    if isinstance(base, ast.Subscript):
        base = base.value
    return getattr(base, "attr", getattr(base, "id", "")) == "Protocol"


def _width(node: ast.ClassDef) -> int:
    """A property and its setter are one member."""
    names = {method.name for method in _functions(node.body)}
    names |= {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    return len(names)


def _why(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    return str(error) or type(error).__name__
