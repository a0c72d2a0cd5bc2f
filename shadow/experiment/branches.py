"""Which branches of a gated method's legacy body compared calls have taken.

From Python 3.12 on the interpreter tells of jumps in those code objects alone, while a compared call runs, and of a
jump whose two ways are known no more. Before, the thread of a compared call is traced, unless somebody else does.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterable
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import Any

from shadow.experiment.arcs import Arc, Jump, branches_of

#: Compared calls of a method that are traced where tracing is all there is.
TRACED = 100
FOREIGN = "another tracer is active"
_MONITORS = sys.version_info >= (3, 12)
_NAME = "shadow.experiment"
#: Numbers of the branches that a jump is when it falls through and when it jumps, -1: none; next offset, target.
_Ways = tuple[int, int, int, int]


class Coverage:
    """The branches of one gated method, over all classes that have a body of it."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        #: Positions in `labels`.
        self.seen: set[int] = set()
        #: By the identity of the code object, which is kept.
        self.jumps: dict[int, dict[int, _Ways]] = {}
        self.codes: list[CodeType] = []
        self.traced = 0
        self._numbers: dict[Arc, int] = {}
        self._bodies: dict[int, Any] = {}

    def _add(self, body: Any) -> None:
        """A legacy body, decorators that say what they wrap included."""
        if id(body) in self._bodies:
            return
        self._bodies[id(body)] = body
        code = getattr(inspect.unwrap(getattr(body, "__func__", body)), "__code__", None)
        if code is None:
            return
        found = branches_of(code)
        for arc, label in found.labels.items():
            if arc not in self._numbers:
                self._numbers[arc] = len(self.labels)
                self.labels.append(label)
        for each, jumps in found.jumps:
            if id(each) not in self.jumps:
                self.codes.append(each)
                self.jumps[id(each)] = {offset: self._ways(jump) for offset, jump in jumps.items()}

    def _ways(self, jump: Jump) -> _Ways:
        near, far = (-1 if arc is None else self._numbers[arc] for arc in (jump.near, jump.far))
        return near, far, jump.next, jump.target

    def unseen(self) -> tuple[str, ...]:
        return tuple(label for number, label in enumerate(self.labels) if number not in self.seen)

    def watch(self, body: Any) -> Watch | str | None:
        """For a call that is to be compared; why its branches are not counted; None where all are known."""
        self._add(body)
        if len(self.seen) == len(self.labels):
            return None
        if _MONITORS:
            if not _monitor.ready():
                return "no sys.monitoring tool id is free"
            watch = Watch(self)
            _monitor.arm(watch.codes)
            return watch
        if self.traced >= TRACED:
            return f"only the first {TRACED} compared calls are traced before Python 3.12"
        if not may_trace():
            return FOREIGN
        self.traced += 1
        return Watch(self)


class Watch:
    """What one call takes. It counts only once the call was compared.

    As a context manager: the code between runs in this thread without a break.
    """

    def __init__(self, coverage: Coverage) -> None:
        self.coverage, self.jumps = coverage, coverage.jumps
        self.arcs = {-1, *coverage.seen}
        self.codes = tuple(coverage.codes)  # another class may add its own meanwhile
        self._outer: Any = None

    def end(self) -> None:
        """The control has ended."""
        if _MONITORS:
            _monitor.disarm(self.codes)

    def __enter__(self) -> None:
        if not _MONITORS and may_trace():
            self._outer = sys.gettrace()
            sys.settrace(_entered)

    def __exit__(self, *_: object) -> None:
        if not _MONITORS and sys.gettrace() is _entered:  # not another that the body has set
            sys.settrace(self._outer)

    def count(self) -> None:
        """The call was compared."""
        self.coverage.seen |= self.arcs - {-1}


#: Of the control that runs here; None while anything else does.
WATCH: ContextVar[Watch | None] = ContextVar("shadow_watch", default=None)


class Unwatched:
    """`with Unwatched():` the gate's own work, and whatever it runs, takes no branches of a control around it."""

    __slots__ = ("_token", "_traced")

    def __enter__(self) -> None:
        self._token = WATCH.set(None)
        self._traced = not _MONITORS and sys.gettrace() is _entered
        if self._traced:
            sys.settrace(None)

    def __exit__(self, *_: object) -> None:
        if self._traced:
            sys.settrace(_entered)
        WATCH.reset(self._token)


def may_trace() -> bool:
    """No debugger and no coverage tool traces this thread."""
    return sys.gettrace() in (None, _entered)


def _entered(frame: FrameType, event: str, argument: Any) -> Any:
    watch = WATCH.get()
    jumps = watch.jumps.get(id(frame.f_code)) if watch is not None else None
    if watch is None or jumps is None:
        return None
    frame.f_trace_lines, frame.f_trace_opcodes = False, True
    return _Follower(watch.arcs, jumps)


class _Follower:
    """Sees each instruction of one frame: the one after a jump tells which way it went."""

    __slots__ = ("_arcs", "_jumps", "_last")

    def __init__(self, arcs: set[int], jumps: dict[int, _Ways]) -> None:
        self._arcs, self._jumps = arcs, jumps
        self._last: _Ways | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            at = frame.f_lasti
            if self._last is not None:
                near, far, following, target = self._last
                if at in (following, target):
                    self._arcs.add(near if at == following else far)
            self._last = self._jumps.get(at)
        elif event == "return":  # perhaps only a coroutine that waits; nothing of this stays on it
            frame.f_trace_lines, frame.f_trace_opcodes = True, False
            frame.f_trace = None
            return None
        return self


class _Monitor:
    """One tool of `sys.monitoring` for the process; code objects are armed for as long as a compared call runs."""

    def __init__(self) -> None:
        self._tool: int | None = None
        self._disable: Any = None
        self._armed: dict[int, int] = {}
        self._lock = threading.Lock()

    def ready(self) -> bool:
        monitoring = _monitoring()
        with self._lock:
            if self._tool is not None and monitoring.get_tool(self._tool) == _NAME:
                return True
            for tool in (3, 4):  # those that are nobody's by convention
                if monitoring.get_tool(tool) is None:
                    monitoring.use_tool_id(tool, _NAME)
                    monitoring.register_callback(tool, monitoring.events.BRANCH, self._branch)
                    self._tool, self._disable = tool, monitoring.DISABLE
                    return True
        return False

    def arm(self, codes: Iterable[CodeType]) -> None:
        with self._lock:
            for code in codes:
                self._armed[id(code)] = self._armed.get(id(code), 0) + 1
                if self._armed[id(code)] > 1:  # what the other call has switched off for itself is on again
                    _monitoring().set_local_events(self._tool, code, 0)
                _monitoring().set_local_events(self._tool, code, _monitoring().events.BRANCH)

    def disarm(self, codes: Iterable[CodeType]) -> None:
        with self._lock:
            for code in codes:
                self._armed[id(code)] -= 1
                if not self._armed[id(code)]:
                    del self._armed[id(code)]
                    _monitoring().set_local_events(self._tool, code, 0)

    def _branch(self, code: CodeType, offset: int, destination: int) -> Any:
        watch = WATCH.get()
        jumps = watch.jumps.get(id(code)) if watch is not None else None
        if watch is None or jumps is None:
            return None
        if offset not in jumps:
            return self._disable
        near, far, following, _ = jumps[offset]
        arcs = watch.arcs
        arcs.add(near if offset < destination <= following else far)
        if near in arcs and far in arcs and self._armed.get(id(code)) == 1:
            return self._disable
        return None


def _monitoring() -> Any:
    return getattr(sys, "monitoring")  # noqa: B009  the type checker looks at 3.11


_monitor = _Monitor()
