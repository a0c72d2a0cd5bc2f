"""Do all ranks make the same collectives? Where ranks may part, both ways must make the same ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
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
    _own: dict[str, tuple[Makes, frozenset[str]]] = field(default_factory=dict)
    _all: dict[str, Makes] = field(default_factory=dict)

    def makes(self, name: str) -> Makes:
        """What calling a function makes, itself and through those that it calls."""
        if name not in self.functions:
            return Makes()
        if name not in self._all:
            reached = [name]
            for current in reached:
                reached += [callee for callee in self._alone(current)[1] if callee not in reached]
            own = [self._alone(current)[0] for current in reached]
            lazy = frozenset(name for makes in own for name in makes.lazy)
            self._all[name] = Makes(any(makes.always for makes in own), lazy)
        return self._all[name]

    def _alone(self, name: str) -> tuple[Makes, frozenset[str]]:
        """What a function makes itself, and which of the functions it calls."""
        if name not in self._own:
            calls = [part for part in own_scope(self.functions[name]) if isinstance(part, ast.Call)]
            direct = [call for call in calls if self.direct(call)]
            later = {id(call) for call in _lazily(self.functions[name])} if direct else set()
            lazy = frozenset({name}) if any(id(call) in later for call in direct) else frozenset()
            always = any(id(call) not in later for call in direct)
            callees = frozenset(_last(call) for call in calls if call not in direct) & self.functions.keys()
            self._own[name] = Makes(always, lazy), callees
        return self._own[name]

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


#: What a way ends with: it goes on behind the block, or raises.
_ON, _RAISES = "<on>", "<raises>"
#: More ways than these through one function are not told apart.
_MOST = 64
Way = tuple[str, ...]
Ways = frozenset[Way]
_GOES_ON: Ways = frozenset({(_ON,)})
_ENDS: Ways = frozenset({()})


def partings(node: FunctionNode, known: Collectives) -> tuple[list[Parting], int]:
    """(where ranks may part, how many collective calls were looked at) in one function."""
    walk = _Walk(node, known)
    walk.block(node.body, _ENDS)
    return walk.found, len(walk.calls)


class _Walk:
    """The collectives that each way through a function makes, in their order."""

    def __init__(self, node: FunctionNode, known: Collectives) -> None:
        self.known = known
        self.found: list[Parting] = []
        self.calls: set[int] = set()
        self.local = self._local_names(node)
        #: Objects that are made when first asked for, and have been asked for on every way so far.
        self.made: set[str] = set()
        self._sides: dict[ast.If, tuple[Ways, Ways]] = {}

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

    def block(self, body: Sequence[ast.stmt], after: Ways) -> Ways:
        """The ways through a block and on through what is `after` it."""
        return self._from(body, 0, after)

    def _from(self, body: Sequence[ast.stmt], index: int, after: Ways) -> Ways:
        if index == len(body):
            return after
        node = body[index]
        match node:
            case ast.Return():
                return frozenset({self.value(node.value)})
            case ast.Raise():
                return frozenset({(_RAISES,)})
            case ast.Break() | ast.Continue():
                return _ENDS
            case ast.If():
                first, inner = self.value(node.test), self._branch(node)
            case ast.For() | ast.AsyncFor() | ast.While():
                first, inner = self._loop(node)
            case ast.With() | ast.AsyncWith():
                first = tuple(name for item in node.items for name in self.value(item.context_expr))
                inner = self.block(node.body, _GOES_ON)
            case ast.Try() | ast.TryStar():
                first, inner = (), self.block([*node.body, *node.orelse], _GOES_ON)
                for handler in node.handlers:
                    self.block(handler.body, _GOES_ON)
                inner = _joined(inner, self.block(node.finalbody, _GOES_ON))
            case ast.Match():
                first = self.value(node.subject)
                inner = frozenset(way for case in node.cases for way in self.block(case.body, _GOES_ON))
                inner |= _GOES_ON
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                first, inner = (), _GOES_ON
            case _:
                first = tuple(name for part in ast.iter_child_nodes(node) for name in self.value(part))
                inner = _GOES_ON
        rest = self._from(body, index + 1, after)
        found = frozenset((*first, *way) for way in _joined(inner, rest))
        if isinstance(node, ast.If):
            self._compare(node, rest)
        return found if len(found) <= _MOST else frozenset(sorted(found)[:_MOST])

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> tuple[Way, Ways]:
        head = node.test if isinstance(node, ast.While) else node.iter
        first = self.value(head)
        before = set(self.made)
        inside = {_real(way) for way in self.block(node.body, _ENDS)} - {()}
        self.made = before
        self.block(node.orelse, _ENDS)
        if not inside:
            return first, _GOES_ON
        if what := self._is_local(head, self.local):
            self.found.append(Parting(node, what, min(inside), ()))
        return (*first, f"a loop of {' or '.join(', '.join(way) for way in sorted(inside))}"), _GOES_ON

    def _branch(self, node: ast.If) -> Ways:
        before = set(self.made)
        yes = self.block(node.body, _GOES_ON)
        after_yes, self.made = self.made, set(before)
        no = self.block(node.orelse, _GOES_ON)
        after_no = self.made
        goes_on = [
            made for ways, made in ((yes, after_yes), (no, after_no)) if any(_ON in way for way in ways)
        ]
        self.made = set.intersection(*goes_on) if goes_on else before
        self._sides[node] = yes, no
        return yes | no

    def _compare(self, node: ast.If, rest: Ways) -> None:
        """Both sides of a condition that may differ between ranks, on to the end of the block."""
        what = self._is_local(node.test, self.local)
        if not what:
            return
        # A rank that raises ends the job: the others are not left waiting in silence.
        yes, no = (
            {_real(way) for way in _joined(side, rest) if _RAISES not in way} for side in self._sides[node]
        )
        if yes and no and yes != no:
            one = min(yes - no, default=min(yes))
            other = min(no - yes, default=min(no))
            self.found.append(Parting(node, what, one, other))

    def value(self, node: ast.AST | None) -> Way:
        """Collectives that evaluating an expression makes."""
        if node is None or isinstance(node, ast.Lambda):
            return ()
        found = tuple(name for part in ast.iter_child_nodes(node) for name in self.value(part))
        if not isinstance(node, ast.Call):
            return found
        last = _last(node)
        made = self.known.makes(last)
        if self.known.direct(node) or made.always:
            self.calls.add(id(node))
            self.made |= made.lazy
            return (*found, last)
        if made.lazy - self.made:
            self.calls.add(id(node))
            self.made |= made.lazy
            return (*found, last)
        return found


def _joined(ways: Ways, rest: Ways) -> Ways:
    """Each way that goes on, with each of those behind it."""
    return frozenset(
        (*way[:-1], *more) if way[-1:] == (_ON,) else way
        for way in ways
        for more in (rest if way[-1:] == (_ON,) else _ENDS)
    )


def _real(way: Way) -> Way:
    return tuple(name for name in way if name not in (_ON, _RAISES))
