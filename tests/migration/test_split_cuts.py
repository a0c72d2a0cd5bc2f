"""What crosses a cut, and where there can be none: one case for each way in which a cut would be wrong.

The statements between `# <` and `# >` are judged. A case that may be cut is also run, whole and cut.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from migration.split.plan import SplitOptions
from migration.split.runs import Run
from migration.split.traits import Obstacle

from .split_support import Cuts, worker

#: name -> (body, parameters, results)
MAY: dict[str, tuple[str, str, str]] = {
    "a value read goes in, a value needed later comes out": (
        """
        c = a * 2
        # <
        d = c + b
        # >
        return d + c
        """,
        "b c",
        "d",
    ),
    "a local used on one side only stays there": (
        """
        # <
        t = a + 1
        c = t * t
        # >
        t = 3
        return c + t
        """,
        "a",
        "c",
    ),
    "a name bound on one path comes back as it was on the other": (
        """
        c = 1
        # <
        if a:
            c = 2
        # >
        return c
        """,
        "a c",
        "c",
    ),
    "an augmented assignment reads and binds": (
        """
        c = 1
        # <
        c += a
        # >
        return c
        """,
        "a c",
        "c",
    ),
    "what the next round of the loop reads comes out": (
        """
        c = d = 0
        for i in range(3):
            # <
            d += c
            c = i + a
            # >
        return d
        """,
        "a c d i",
        "c d",
    ),
    "what continue takes to the next round comes out": (
        """
        c = d = 0
        for i in range(3):
            d += c
            # <
            c = i + 1
            # >
            if a:
                continue
            c = 0
        return d
        """,
        "i",
        "c",
    ),
    "what break takes out of the loop comes out": (
        """
        c = 0
        while True:
            # <
            c = c + a
            # >
            break
        return c
        """,
        "a c",
        "c",
    ),
    "a return on every path returns for the method": (
        """
        if a:
            # <
            if b:
                return 1
            return 2
            # >
        return 3
        """,
        "b",
        "return",
    ),
    "a return in the last statements returns for the method": (
        """
        c = a
        # <
        if c == b:
            return "same"
        c = 0
        # >
        """,
        "b c",
        "return",
    ),
    "a raise on every path gives nothing": (
        """
        if a < 0:
            # <
            c = str(a)
            raise ValueError(c)
            # >
        return a
        """,
        "a",
        "",
    ),
    "a closure with all it captures": (
        """
        # <
        c = a
        def f():
            return c
        c = b
        # >
        return f()
        """,
        "a b",
        "f",
    ),
    "a closure that captures what nothing binds any more": (
        """
        c = a + 1
        # <
        f = lambda: c
        # >
        return f() + c
        """,
        "c",
        "f",
    ),
    "a generator expression that its call uses up": (
        """
        d = 0
        for i in range(2):
            # <
            c = i + a
            d += sum(c + x for x in range(2))
            # >
        return d
        """,
        "a d i",
        "d",
    ),
    "a key function that its call uses up": (
        """
        d = []
        for i in range(2):
            # <
            c = i + a
            d = sorted([3, 1, 2], key=lambda x: x * c)
            # >
        return d
        """,
        "a i",
        "d",
    ),
    "a nonlocal with all that mentions its name": (
        """
        # <
        c = a
        def f():
            nonlocal c
            c += 1
        f()
        d = c
        # >
        return d
        """,
        "a",
        "d",
    ),
    "an assignment expression in a comprehension, its name not used elsewhere": (
        """
        # <
        d = [c := x for x in range(a)]
        # >
        return d
        """,
        "a",
        "d",
    ),
    "a name that try binds on all its paths": (
        """
        try:
            c = int(a)
        except ValueError:
            c = 0
        # <
        d = c + 1
        # >
        return d
        """,
        "c",
        "d",
    ),
    "a name bound in a with that lets exceptions out": (
        """
        with open("/dev/null") as f:
            # <
            c = f.read() or a
            # >
        return c
        """,
        "a f",
        "c",
    ),
    "a local import is a name like others": (
        """
        # <
        import math
        c = math.floor(a)
        # >
        return c + math.ceil(b)
        """,
        "a",
        "math c",
    ),
    "star targets, with targets and loop targets are bindings": (
        """
        # <
        c, *d = a, b, a
        for e in d:
            pass
        # >
        return c, d
        """,
        "a b",
        "c d",
    ),
    "an except name is gone after its clause and may come again": (
        """
        try:
            c = 1 // a
        except ZeroDivisionError as e:
            c = str(e)
        # <
        try:
            d = 1 // b
        except ZeroDivisionError as e:
            d = str(e)
        # >
        return c, d
        """,
        "b",
        "d",
    ),
    "match captures": (
        """
        # <
        match a:
            case [c, *d]:
                e = c
            case c:
                d, e = [], c
        # >
        return c, d, e
        """,
        "a",
        "c d e",
    ),
    "a name deleted where it was bound": (
        """
        # <
        c = a + 1
        d = c
        del c
        # >
        return d
        """,
        "a",
        "d",
    ),
    "a while True is left by break alone": (
        """
        while True:
            c = a
            if c:
                break
            a += 1
        # <
        d = c
        # >
        return d
        """,
        "c",
        "d",
    ),
    "names of inner functions and comprehensions are their own": (
        """
        x = 1
        # <
        c = [x for x in range(a)]
        d = (lambda x: x + 1)(b)
        # >
        return c, d, x
        """,
        "a b",
        "c d",
    ),
    "below a call of locals()": (
        """
        c = sorted(locals())
        # <
        d = len(c) + a
        # >
        return d
        """,
        "a c",
        "d",
    ),
    "what a with statement of the method itself lets out": (
        """
        with self.lock:
            # <
            c = a + 1
            # >
        return c
        """,
        "a",
        "c",
    ),
}

#: What is bound in these may be bound in part only, so the old value goes in.
MAY |= {
    "a with that may swallow": (
        """
        c = 0
        # <
        with self.guard():
            c = 1 // a
        # >
        return c
        """,
        "a c",
        "c",
    ),
    "a finally that reads what the try may not have bound": (
        """
        c = 0
        # <
        try:
            c = 1 // a
        finally:
            self.seen = c
        # >
        return c
        """,
        "a c",
        "c",
    ),
    "a handler that reads what the try may not have bound": (
        """
        c = 0
        # <
        try:
            c = 1 // a
            d = c
        except ZeroDivisionError:
            d = c + 2
        # >
        return c, d
        """,
        "a c",
        "c d",
    ),
    "the else of a loop": (
        """
        c = 0
        # <
        for i in range(3):
            if i == a:
                break
        else:
            c = 1
        # >
        return c
        """,
        "a c",
        "c",
    ),
    "a match that may meet no case": (
        """
        c = 0
        # <
        match a:
            case 1:
                c = 1
            case 2 if b:
                c = 2
        # >
        return c
        """,
        "a b c",
        "c",
    ),
    "a loop that is left by raise alone": (
        """
        c = 0
        # <
        if a:
            while True:
                a -= 1
                if a < 0:
                    raise ValueError(a)
        else:
            c = 1
        # >
        return c
        """,
        "a",
        "c",
    ),
}

#: name -> (code, body)
MAY_NOT: dict[str, tuple[str, str]] = {
    "a name that may be unbound is read": (
        "MG511",
        """
        if a:
            c = 1
        # <
        d = 0
        if a:
            d = c
        # >
        return d
        """,
    ),
    "a name bound in a loop that may run no round is read": (
        "MG511",
        """
        for c in range(a):
            pass
        # <
        d = c if a else 0
        # >
        return d
        """,
    ),
    "a name that only an earlier round bound is read": (
        "MG511",
        """
        for i in range(2):
            # <
            d = c if i else 0
            # >
            c = i
        return d
        """,
    ),
    "a name that is bound on one path is needed later": (
        "MG511",
        """
        # <
        if a:
            c = 1
        # >
        return c if a else 0
        """,
    ),
    "a name deleted on one path": (
        "MG511",
        """
        c = 1
        if a:
            del c
        # <
        d = 0 if a else c
        # >
        return d
        """,
    ),
    "a name unbound by its except clause on one path": (
        "MG511",
        """
        e = 1
        try:
            a.x
        except AttributeError as e:
            pass
        # <
        d = e if b else 0
        # >
        return d
        """,
    ),
    "what a swallowed exception may have left out is read": (
        "MG511",
        """
        with self.guard():
            c = int(a)
        # <
        d = c if b else 0
        # >
        return d
        """,
    ),
    "an assignment expression that may not have run": (
        "MG511",
        """
        d = a and (c := b)
        # <
        e = c if a else 0
        # >
        return d, e
        """,
    ),
    "a name that one arm of a conditional expression binds": (
        "MG511",
        """
        d = (c := b) if a else 0
        # <
        e = c if a else 0
        # >
        return d, e
        """,
    ),
    "a name that a match without a catch-all binds": (
        "MG511",
        """
        match a:
            case 1:
                c = 1
            case 2:
                c = 2
        # <
        d = c if a else 0
        # >
        return d
        """,
    ),
    "a name that the end of a for clause binds when nothing broke out": (
        "MG511",
        """
        for i in range(3):
            if i == a:
                break
        else:
            c = 1
        # <
        d = 0 if i == a else c
        # >
        return d
        """,
    ),
    "the handler reads what the block binds": (
        "MG514",
        """
        c = 0
        try:
            # <
            c = 1
            d = 1 // a
            # >
        except ZeroDivisionError:
            d = c
        return d
        """,
    ),
    "finally reads what the block binds": (
        "MG514",
        """
        c = 0
        try:
            # <
            c = 1
            d = 1 // a
            # >
        finally:
            self.seen = c
        return d
        """,
    ),
    "what follows the try reads what the block binds": (
        "MG514",
        """
        c = 0
        try:
            # <
            c = 1
            self.check(1 // a)
            # >
        except ZeroDivisionError:
            pass
        return c
        """,
    ),
    "the next round reads what the block binds although it raised": (
        "MG514",
        """
        c = 0
        for i in range(2):
            try:
                # <
                d = c
                c = 1
                self.check(d // a)
                # >
            except ZeroDivisionError:
                continue
        return a
        """,
    ),
    "what follows a with that may swallow reads what the block binds": (
        "MG514",
        """
        c = 0
        with self.guard():
            # <
            c = 1
            d = 1 // a
            # >
        return c
        """,
    ),
    "break": (
        "MG509",
        """
        for i in range(3):
            # <
            if i == a:
                break
            # >
        return i
        """,
    ),
    "continue in a try": (
        "MG509",
        """
        for i in range(3):
            # <
            try:
                continue
            finally:
                a += 1
            # >
        return a
        """,
    ),
    "break in the else of an inner loop": (
        "MG509",
        """
        for i in range(3):
            # <
            for j in range(2):
                a += j
            else:
                break
            # >
        return a
        """,
    ),
    "a return in the middle": (
        "MG509",
        """
        # <
        if a:
            return 1
        b = 2
        # >
        return b
        """,
    ),
    "a return at the end of a loop": (
        "MG509",
        """
        for i in range(3):
            # <
            if i == a:
                return i
            # >
        """,
    ),
    "a return in the last try, whose else would not run": (
        "MG509",
        """
        try:
            # <
            if a:
                return 1
            # >
        except ValueError:
            pass
        else:
            self.seen = 1
        """,
    ),
    "a closure made here sees a later binding": (
        "MG513",
        """
        c = a
        # <
        f = lambda: c
        # >
        c = b
        return f()
        """,
    ),
    "a closure made here sees the loop variable change": (
        "MG513",
        """
        fs = []
        for i in range(2):
            # <
            fs.append(lambda: i)
            # >
        return [f() for f in fs]
        """,
    ),
    "a closure made here sees the next round bind again": (
        "MG513",
        """
        fs = []
        for i in range(2):
            # <
            c = i
            fs.append(lambda: c)
            # >
        return [f() for f in fs]
        """,
    ),
    "a closure made before sees what the block binds": (
        "MG513",
        """
        c = 1
        f = lambda: c
        # <
        c = 2
        d = f()
        # >
        return d
        """,
    ),
    "a closure of an earlier round sees what the block binds": (
        "MG513",
        """
        fs = []
        for i in range(2):
            # <
            c = i
            # >
            fs.append(lambda: c)
        return [f() for f in fs]
        """,
    ),
    "a closure captures a name before it is bound": (
        "MG513",
        """
        def f():
            return c
        # <
        c = 1
        d = a
        # >
        d += f()
        c = 2
        return d + f()
        """,
    ),
    "a generator expression reads its names when it is used": (
        "MG513",
        """
        c = a
        # <
        g = (c + x for x in range(2))
        # >
        c = b
        return list(g)
        """,
    ),
    "a lambda in a comprehension outlives it": (
        "MG513",
        """
        c = a
        # <
        fs = [lambda: c for _ in range(2)]
        # >
        c = b
        return [f() for f in fs]
        """,
    ),
    "a class body captures": (
        "MG513",
        """
        c = a
        # <
        class Inner:
            def get(self):
                return c
        # >
        c = b
        return Inner().get()
        """,
    ),
    "nonlocal on the other side": (
        "MG513",
        """
        c = 0
        def f():
            nonlocal c
            c += 1
        # <
        f()
        d = c
        # >
        return d
        """,
    ),
    "an inner nonlocal reaches through a function between": (
        "MG513",
        """
        c = 0
        def f():
            def g():
                nonlocal c
                c += 1
            g()
        # <
        f()
        d = c
        # >
        return d
        """,
    ),
    "an assignment expression in a comprehension, read after": (
        "MG513",
        """
        c = 0
        # <
        d = [c := x for x in range(a)]
        # >
        return c, d
        """,
    ),
    "deletes what the method holds": (
        "MG512",
        """
        c = [a]
        # <
        d = len(c)
        del c
        # >
        return d
        """,
    ),
    "holds what its except clause is to let go": (
        "MG512",
        """
        try:
            d = 1 // a
        except ZeroDivisionError as e:
            # <
            d = str(e)
            # >
        return d
        """,
    ),
    "lets a temporary folder go": (
        "MG512",
        """
        # <
        t = tempfile.TemporaryDirectory()
        d = t.name
        # >
        return os.listdir(d)
        """,
    ),
    "lets go the tensor of which only the address stays": (
        "MG512",
        """
        # <
        t = self.empty(a)
        d = t.data_ptr()
        # >
        return self.launch(d)
        """,
    ),
    "lets go the task that the event loop holds weakly": (
        "MG512",
        """
        # <
        t = asyncio.create_task(self.work())
        # >
        self.wait()
        """,
    ),
    "a global is written": (
        "MG517",
        """
        global total
        # <
        total = a
        # >
        return total
        """,
    ),
    "a global is imported": (
        "MG517",
        """
        global math
        # <
        import math
        # >
        return math
        """,
    ),
    "the global statement itself": (
        "MG517",
        """
        c = a
        # <
        global total
        d = c
        # >
        total = d
        """,
    ),
    "never reached": (
        "MG518",
        """
        return a
        # <
        c = 1
        # >
        """,
    ),
    "a name that has no value on any path": (
        "MG518",
        """
        # <
        if a:
            d = c
        else:
            d = 1
        # >
        c = d
        return c
        """,
    ),
    "the only binding of a name that is mentioned elsewhere": (
        "MG518",
        """
        if a:
            return c
        # <
        c = 1
        d = c
        # >
        return d
        """,
    ),
    "only declares a local": (
        "MG518",
        """
        # <
        c: int
        d = a
        # >
        c = d
        return c
        """,
    ),
    "stacklevel": (
        "MG519",
        """
        # <
        warnings.warn("x", stacklevel=2)
        # >
        return a
        """,
    ),
    "a frame": (
        "MG519",
        """
        # <
        c = sys._getframe(1).f_code.co_name
        # >
        return c
        """,
    ),
    "above a call of locals()": (
        "MG504",
        """
        # <
        c = a
        d = c
        # >
        return sorted(locals())
        """,
    ),
    "in a loop with a call of locals()": (
        "MG504",
        """
        for i in range(2):
            e = sorted(locals())
            # <
            c = i
            d = c
            # >
        return d, e
        """,
    ),
    "too many names": (
        "MG515",
        """
        # <
        c, d, e, f = a, b, a, b
        # >
        return c + d + e + f
        """,
    ),
}
HEAD = """
import asyncio, os, sys, tempfile, warnings
total = 0
"""


def verdict(body: str, **how: str) -> Run | Obstacle:
    cap = 5 if "c, d, e, f" in body else 20
    return Cuts(worker(body, head=HEAD, **how), SplitOptions(cap=cap)).marked()


@pytest.mark.parametrize("name", MAY)
def test_what_crosses_a_cut(name: str):
    body, parameters, results = MAY[name]
    run = verdict(body)
    assert isinstance(run, Run), run
    assert set(run.parameters) == set(parameters.split())
    assert ("return" if run.returns else " ".join(run.results)) == results


@pytest.mark.parametrize("name", MAY)
def test_the_cut_method_does_the_same(name: str):
    cuts = Cuts(worker(MAY[name][0], head=HEAD))
    run = cuts.marked()
    assert isinstance(run, Run)
    for arguments in ((0, 0), (1, 2), (2, 0), (3, 3)):
        assert called(cuts.cut(run), arguments) == called(cuts.source.data, arguments)


def called(data: bytes, arguments: tuple[int, int]) -> Any:
    space: dict[str, Any] = {}
    exec(compile(data, "worker.py", "exec", dont_inherit=True), space)
    instance = space["Worker"]()
    instance.lock = threading.Lock()
    instance.guard = lambda: contextlib.suppress(ZeroDivisionError)
    try:
        return str(instance.run(*arguments)).partition(" at 0x")[0].replace("Worker._run_1_f.", "Worker.run.")
    except Exception as error:
        return repr(error)


@pytest.mark.parametrize("name", MAY_NOT)
def test_where_there_can_be_no_cut(name: str):
    code, body = MAY_NOT[name]
    found = verdict(body)
    assert isinstance(found, Obstacle), found
    assert found.code == code


@pytest.mark.parametrize(
    ("body", "first", "last"),
    [
        ("c = a; d = b\nreturn c + d", 0, 1),
        ("c = a; d = b\nreturn c + d", 1, 2),
        ("c = a; \\\nd = b\nreturn c + d", 0, 1),
        ("c = a; \\\nd = b\nreturn c + d", 1, 2),
        ("if a: c = 1\nelse: c = 2\nd = c; return d", 0, 2),
    ],
)
def test_a_cut_is_between_lines(body: str, first: int, last: int):
    cuts = Cuts(worker(body))
    found = cuts.judge(cuts.parts.body, first, last)
    assert isinstance(found, Obstacle) and found.code == "MG516"


def test_blocks_without_lines_of_their_own_are_not_looked_into():
    cuts = Cuts(
        worker("if a: c = 1; d = 2\nelse:\n    c = 3\n    d = 4\nwith a: \\\n  e = 1\nreturn c + d + e")
    )
    assert [len(block.items) for block in cuts.blocks()] == [3, 2]


def test_a_yield_stays_in_its_method():
    found = verdict("# <\nc = yield a\n# >\nreturn c")
    assert isinstance(found, Obstacle) and found.code == "MG510"


@pytest.mark.parametrize(
    "statement",
    [
        "c = await a",
        "async for c in a: pass",
        "async with a as c: pass",
        "c = [await x for x in a]",
        "c = [x async for x in a]",
    ],
)
def test_a_helper_that_awaits_is_awaited(statement: str):
    run = verdict(f"c = 0\n# <\n{statement}\n# >\nreturn c", definition="async def run")
    assert isinstance(run, Run) and run.awaits


def test_a_helper_of_an_async_method_that_does_not_await_is_an_ordinary_one():
    run = verdict("# <\nc = a + 1\n# >\nreturn await c", definition="async def run")
    assert isinstance(run, Run) and not run.awaits


def test_an_async_generator_cannot_return_for_its_helper():
    body = "yield a\n# <\nif b:\n    return\nself.seen = b\n# >"
    found = verdict(body, definition="async def run")
    assert isinstance(found, Obstacle) and found.code == "MG509"
    assert isinstance(verdict(body), Run), "a plain generator can"


def test_an_await_in_a_cut_inside_a_handler_keeps_the_bare_raise():
    run = verdict(
        "try:\n    await a\nexcept ValueError:\n    # <\n    await b\n    raise\n    # >",
        definition="async def run",
    )
    assert isinstance(run, Run) and run.awaits and run.parameters == ("b",)
