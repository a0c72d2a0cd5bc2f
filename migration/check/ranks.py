"""Do all ranks make the same collectives? Where ranks may part, both ways must make the same ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from migration.code.facts import dotted, own_scope
from migration.code.module_names import ModuleNames
from migration.code.structure import FunctionNode
from migration.survey.effects.names import is_collective

_POINT_TO_POINT = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "P2POp")
_LOCAL_NAME = re.compile(
    r"(?:local|node|global|my|tp|dp|pp|ep)_rank|rank|rank_id|local_\w+|\w+_local(?:_\w+)?|is_(?:rank0|master|leader|main)\w*"
)
_ENVIRONMENT = ("os.getenv", "os.environ.get", "_os.getenv", "_os.environ.get")


@dataclass(frozen=True)
class Parting:
    """Ranks part at `node`: the ways make the collectives `one` and `other`."""

    node: ast.AST
    condition: str
    one: tuple[str, ...]
    other: tuple[str, ...]


@dataclass(frozen=True)
class Makes:
    """What calling a function does: collectives at each call (`always`), or only when an object is first made."""

    always: bool = False
    lazy: frozenset[str] = frozenset()


@dataclass
class Collectives:
    """Which calls are collectives, the functions around them included; `local` are further rank-local names,
    `agreed` names and variables of the environment that are the same on all ranks."""

    modules: Sequence[ModuleNames]
    functions: dict[str, FunctionNode]
    local: frozenset[str] = frozenset()
    agreed: frozenset[str] = frozenset()
    makes: dict[str, Makes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for _ in range(len(self.functions)):
            before = dict(self.makes)
            for name, node in self.functions.items():
                self.makes[name] = self._made(name, node)
            if before == self.makes:
                break

    def _made(self, name: str, node: FunctionNode) -> Makes:
        lazy_calls = {id(call) for call in _lazily(node)}
        always, lazy = False, set()
        for part in own_scope(node):
            if not isinstance(part, ast.Call):
                continue
            if self.direct(part):
                if id(part) in lazy_calls:
                    lazy.add(name)
                else:
                    always = True
            elif (callee := self.makes.get(_last(part))) is not None and _last(part) != name:
                always |= callee.always
                lazy |= callee.lazy
        return Makes(always, frozenset(lazy))

    def direct(self, call: ast.Call) -> bool:
        """Whether a call is a collective itself."""
        path = dotted(call.func)
        last = path.rpartition(".")[2] if path else getattr(call.func, "attr", "")
        if last in _POINT_TO_POINT or not last:
            return False
        root, _, rest = path.partition(".")
        origins = [m.origins[root] for m in self.modules if root in m.origins]
        origin = (f"{origins[0]}.{rest}" if rest else origins[0]) if origins else None
        return is_collective(path or last, origin)


def _last(call: ast.Call) -> str:
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


def _lazily(node: FunctionNode) -> Iterator[ast.Call]:
    """Calls under a test whether something is there yet."""
    for part in own_scope(node):
        if isinstance(part, ast.If) and _asks_presence(part.test):
            for statement in part.body:
                yield from (call for call in ast.walk(statement) if isinstance(call, ast.Call))


def _asks_presence(test: ast.expr) -> bool:
    for part in ast.walk(test):
        if isinstance(part, ast.Call) and dotted(part.func) in ("hasattr", "getattr"):
            return True
        if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Is):
            return True
    return False


def partings(node: FunctionNode, known: Collectives) -> tuple[list[Parting], int]:
    """(where ranks may part, how many collective calls were looked at) in one function."""
    walk = _Walk(node, known)
    walk.block(node.body, ())
    return walk.found, len(walk.calls)


class _Walk:
    """The sequence of collectives behind each statement, from the last one on."""

    def __init__(self, node: FunctionNode, known: Collectives) -> None:
        self.known = known
        self.found: list[Parting] = []
        self.calls: set[int] = set()
        self.local = self._local_names(node)
        #: Objects that are made when first asked for, and have been asked for on every way so far.
        self.made: set[str] = set()

    def _local_names(self, node: FunctionNode) -> frozenset[str]:
        """Locals that are computed from what differs between ranks."""
        names: set[str] = set()
        for _ in range(3):
            for part in own_scope(node):
                if isinstance(part, ast.Assign) and self._is_local(part.value, names):
                    if not any(
                        isinstance(c, ast.Call) and self.known.direct(c) for c in ast.walk(part.value)
                    ):
                        names |= {t.id for t in part.targets if isinstance(t, ast.Name)}
        return frozenset(names)

    def _is_local(self, node: ast.AST, names: Iterable[str]) -> str:
        """What in an expression differs between ranks, "" where nothing shows that anything does."""
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and (what := self._local_call(part)):
                return what
            name = getattr(part, "attr", "") or getattr(part, "id", "")
            if not isinstance(part, ast.Attribute | ast.Name) or name in self.known.agreed:
                continue
            if name in names or name in self.known.local or _LOCAL_NAME.fullmatch(name):
                return name
        return ""

    def _local_call(self, call: ast.Call) -> str:
        path = dotted(call.func)
        if path.endswith("get_rank") or path == "get_rank":
            return f"{path}()"
        if path in _ENVIRONMENT and call.args and isinstance(call.args[0], ast.Constant):
            variable = str(call.args[0].value)
            return "" if variable in self.known.agreed else f"the environment ({variable})"
        return ""

    def block(self, body: Sequence[ast.stmt], after: tuple[str, ...]) -> tuple[str, ...]:
        """The collectives from the first statement on, `after` those behind the block."""
        return self._from(list(body), 0, after)

    def _from(self, body: list[ast.stmt], index: int, after: tuple[str, ...]) -> tuple[str, ...]:
        if index == len(body):
            return after
        node = body[index]
        match node:
            case ast.Return():
                return self.value(node.value)
            case ast.Raise():
                return ("raises",)
            case ast.If():
                first = self.value(node.test)
                rest = lambda: self._from(body, index + 1, after)  # noqa: E731
                return first + self._branch(node, node.test, node.body, node.orelse, rest)
            case ast.For() | ast.AsyncFor() | ast.While():
                head = node.test if isinstance(node, ast.While) else node.iter
                first = self.value(head)
                before = set(self.made)
                inside = self.block(node.body, ())
                self.made = before
                if (what := self._is_local(head, self.local)) and _real(inside):
                    self.found.append(Parting(node, what, inside, ()))
                loop = ("loop(", *inside, ")") if _real(inside) else ()
                return first + loop + self._from(body, index + 1, after)
            case ast.With() | ast.AsyncWith():
                first = tuple(name for item in node.items for name in self.value(item.context_expr))
                return first + self.block(node.body, ()) + self._from(body, index + 1, after)
            case ast.Try() | ast.TryStar():
                inner = self.block([*node.body, *node.orelse], ())
                for handler in node.handlers:
                    self.block(handler.body, ())
                return inner + self.block(node.finalbody, ()) + self._from(body, index + 1, after)
            case ast.Match():
                for case in node.cases:
                    self.block(case.body, ())
                return self.value(node.subject) + self._from(body, index + 1, after)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return self._from(body, index + 1, after)
        own = tuple(name for part in ast.iter_child_nodes(node) for name in self.value(part))
        return own + self._from(body, index + 1, after)

    def _branch(
        self,
        node: ast.AST,
        test: ast.expr,
        yes: Sequence[ast.stmt],
        no: Sequence[ast.stmt],
        rest: Callable[[], tuple[str, ...]],
    ) -> tuple[str, ...]:
        before = set(self.made)
        one = self.block(yes, ())
        after_yes, self.made = self.made, set(before)
        other = self.block(no, ())
        self.made = after_yes & self.made if not _leaves(yes) else self.made
        behind = rest()
        left = one if _leaves(yes) else one + behind
        right = other if _leaves(no) else other + behind
        what = self._is_local(test, self.local)
        # A rank that raises ends the job: the others are not left waiting in silence.
        raises = "raises" in left or "raises" in right
        if what and not raises and _real(left) != _real(right):
            self.found.append(Parting(node, what, _real(left), _real(right)))
        return left if len(left) >= len(right) else right

    def value(self, node: ast.AST | None) -> tuple[str, ...]:
        """Collectives that evaluating an expression makes."""
        if node is None or isinstance(node, ast.Lambda):
            return ()
        found = tuple(name for part in ast.iter_child_nodes(node) for name in self.value(part))
        if not isinstance(node, ast.Call):
            return found
        last = _last(node)
        made = self.known.makes.get(last, Makes())
        if self.known.direct(node) or made.always:
            self.calls.add(id(node))
            self.made |= made.lazy
            return (*found, last)
        if made.lazy - self.made:
            self.calls.add(id(node))
            self.made |= made.lazy
            return (*found, last)
        return found


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether control never goes on behind the block."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return _leaves(last.body) and _leaves(last.orelse)
    return isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break)


def _real(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name != "raises")
