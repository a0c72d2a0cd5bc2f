"""Random method bodies, and what a run of one does: results, exceptions, attributes, log."""

from __future__ import annotations

import asyncio
import random
from typing import Any

NAMES = ("a", "b", "c", "d", "e", "p", "q")
HEAD = """\
import contextlib
TOTAL = 0


@contextlib.contextmanager
def plain(value):
    yield value


class Swallow:
    def __init__(self, value):
        self.value = value

    def __enter__(self):
        return self.value

    def __exit__(self, *details):
        return True


class Worker:
    def __init__(self, trouble):
        self.log = []
        self.rounds = 0
        self.trouble = trouble
        self.kept = []

    def see(self, *values):
        self.log.append(values)
        if len(self.log) in self.trouble:
            raise ValueError(f"trouble {len(self.log)}")
        return len(self.log) % 5

    def goes_on(self):
        self.rounds += 1
        return self.rounds < 25 and self.rounds % 4 > 0

    async def wait(self, *values):
        return self.see(*values)

    def call(self, functions):
        return [function() for function in functions]

"""


class Body:
    """Writes one body, four spaces deep in its method, from the choices of `draw`."""

    def __init__(self, draw: random.Random, *, asynchronous: bool, generates: bool) -> None:
        self.draw = draw
        self.asynchronous = asynchronous
        self.generates = generates
        self.likely = ["p", "q"]
        self.serial = 0
        #: How often what stands against a cut is written at all.
        self.wild = draw.choice((0.0, 0.05, 0.3, 1.0))

    def name(self) -> str:
        return self.draw.choice(self.likely if self.draw.random() < 1 - self.wild / 12 else NAMES)

    def target(self) -> str:
        name = self.draw.choice(NAMES)
        if name not in self.likely:
            self.likely.append(name)
        return name

    def value(self, depth: int = 0) -> str:
        kind = self.draw.randrange(14 if depth < 2 else 6)
        if kind < 3:
            return self.name()
        if kind < 5:
            return str(self.draw.randrange(4))
        if kind == 5:
            return f"self.see({self.name()})"
        if kind == 6:
            return f"({self.value(depth + 1)} + {self.value(depth + 1)})"
        if kind == 7:
            return f"({self.value(depth + 1)} if {self.name()} else {self.value(depth + 1)})"
        if kind == 8:
            return f"sum({self.name()} + x for x in range(2))"
        if kind == 9:
            return f"len([x for x in range({self.name()} % 3) if x != {self.name()}])"
        if kind == 10:
            return f"({self.target()} := {self.value(depth + 1)})"
        if kind == 11:
            return f"max(range(3), key=lambda x: x * {self.name()})"
        if kind == 12 and self.asynchronous:
            return f"await self.wait({self.name()})"
        return f"({self.name()} and {self.value(depth + 1)})"

    def block(self, depth: int, loop: bool, count: int | None = None) -> list[str]:
        lines: list[str] = []
        for _ in range(count or self.draw.randint(1, 3)):
            if self.draw.random() < 0.2:
                self.serial += 1
                lines += ["", f"# step {self.serial} of it"]
            lines += self.statement(depth, loop)
        return lines

    def inner(self, depth: int, loop: bool) -> list[str]:
        # What only one branch binds is likely, not certain, after it.
        known = list(self.likely)
        lines = ["    " + line if line else "" for line in self.block(depth + 1, loop)]
        if self.draw.random() > self.wild / 2:
            self.likely = known
        return lines

    def statement(self, depth: int, loop: bool) -> list[str]:
        kind = self.draw.randrange(32 if depth < 2 else 12)
        if kind < 4:
            value = self.value()
            return [f"{self.target()} = {value}"]
        if kind == 4:
            return [f"{self.name()} += {self.value()}  # more"]
        if kind == 5:
            return [f"self.see({self.name()}, {self.value()})"]
        if kind == 6:
            value = self.value()
            return [f"{self.target()}, {self.target()} = {value}, {self.name()}"]
        if kind in (7, 8, 29) and self.draw.random() > self.wild:
            return [f"self.see({self.name()})"]
        if kind == 7:
            return [f"self.kept.append(lambda: {self.name()})"]
        if kind == 8:
            return self.rare(loop)
        if kind < 12:
            return [f"self.see({self.name()})"]
        if kind < 16:
            lines = [f"if {self.value()}:", *self.inner(depth, loop)]
            if self.draw.random() < 0.3:
                lines += [f"elif {self.name()}:", *self.inner(depth, loop)]
            return lines + (["else:", *self.inner(depth, loop)] if self.draw.random() < 0.5 else [])
        if kind < 20:
            head = f"for {self.target()} in range({self.draw.randrange(3)} + {self.name()} % 2):"
            lines = [head, *self.inner(depth, True)]
            return lines + (["else:", *self.inner(depth, loop)] if self.draw.random() < 0.2 else [])
        if kind < 22:
            if self.draw.random() < 0.5:
                return ["while self.goes_on():", *self.inner(depth, True)]
            return ["while True:", "    if not self.goes_on():", "        break", *self.inner(depth, True)]
        if kind < 26:
            lines = ["try:", *self.inner(depth, loop)]
            handlers = self.draw.randrange(3)
            for error in ("ValueError", "ZeroDivisionError")[:handlers]:
                named = self.draw.random() < 0.4
                lines += [f"except {error} as {self.draw.choice('abcde')}:" if named else f"except {error}:"]
                lines += self.inner(depth, loop)
            if handlers and self.draw.random() < 0.3:
                lines += ["else:", *self.inner(depth, loop)]
            if not handlers or self.draw.random() < 0.3:
                lines += ["finally:", *self.inner(depth, loop)]
            return lines
        if kind < 28:
            manager = self.draw.choice(("plain", "Swallow", "contextlib.nullcontext"))
            return [f"with {manager}({self.name()}) as {self.target()}:", *self.inner(depth, loop)]
        if kind == 28:
            lines = [f"match {self.name()}:", f"    case {self.draw.randrange(3)}:"]
            lines += ["    " + line for line in self.inner(depth, loop)]
            last = self.draw.choice(
                ("case _:", f"case {self.target()}:", f"case {self.target()} if {self.name()}:")
            )
            return [*lines, f"    {last}", *("    " + line for line in self.inner(depth, loop))]
        if kind == 29:
            name = self.target()
            lines = [f"def {name}():"]
            if self.draw.random() < 0.3:
                lines += [f"    nonlocal {self.draw.choice([n for n in self.likely if n != name] or ['p'])}"]
                other = lines[-1].split()[-1]
                lines += [f"    {other} = {self.draw.randrange(9)}"]
            lines += [f"    return {self.name()} if isinstance({self.name()}, int) else 7"]
            return [*lines, f"self.kept.append({name})", f"{name} = {name}()"]
        if kind == 30:
            return [f"self.see(*self.call(self.kept[-{self.draw.randrange(1, 3)}:]))"]
        return [f"# about {self.name()}", f'{self.target()} = len("""one', 'two""")']

    def rare(self, loop: bool) -> list[str]:
        kinds = ["return", "del", "raise", "import", "global", "star", "comprehension", "bare"]
        kinds += ["break", "continue"] * 2 if loop else []
        kinds += ["yield"] * 2 if self.generates else []
        kind = self.draw.choice(kinds)
        if kind == "return":
            return [f"if {self.name()} == {self.draw.randrange(4)}:", f"    return {self.name()}"]
        if kind in ("break", "continue"):
            return [f"if {self.name()}:", f"    {kind}"]
        if kind == "del":
            return [f"del {self.name()}"]
        if kind == "raise":
            return [f"if {self.name()} == {self.draw.randrange(6)}:", "    raise ZeroDivisionError"]
        if kind == "import":
            return ["from math import floor", f"{self.target()} = floor({self.name()} / 2)"]
        if kind == "global":
            return ["TOTAL += 1", f"self.see(TOTAL + {self.name()})"]
        if kind == "star":
            name = self.target()
            return [f"{self.target()}, *{name} = ({self.name()}, 1)", f"{name} = len({name})"]
        if kind == "comprehension":
            return [f"self.see(*[{self.target()} := x for x in range({self.name()} % 3)])"]
        if kind == "yield":
            return [f"{self.target()} = (yield {self.name()}) or 1"]
        return [
            self.draw.choice((f"return {self.name()}", "pass", "return", f"raise ValueError({self.name()})"))
        ]


def module(draw: random.Random) -> str:
    """A module with a class Worker whose method `run` is to be split."""
    asynchronous, generates = draw.random() < 0.2, draw.random() < 0.15
    writer = Body(draw, asynchronous=asynchronous, generates=generates)
    lines = ["global TOTAL"]
    if draw.random() > writer.wild / 2:
        lines += [f"{name} = {draw.randrange(5)}" for name in "abcde"]
        writer.likely = list(NAMES)
    lines += writer.block(0, False, draw.randint(5, 9))
    if not any("TOTAL" in line for line in lines[1:]):
        del lines[0]
    if generates:
        lines.append("yield p")
    signature = draw.choice(("p, q=1", "p: int, q: int = 2", "p, /, *q", "p, *, q=3"))
    if "*q" in signature:
        lines.insert(0, "q = len(q)")
    head = f"    {'async ' if asynchronous else ''}def run(self, {signature}):\n"
    return HEAD + head + "".join(f"        {line}\n" if line else "\n" for line in lines)


def behaviour(text: bytes, seed: int) -> list[str]:
    """What a few calls return or raise, and what they leave behind."""
    draw = random.Random(seed)
    space: dict[str, Any] = {"__name__": "split_case"}
    exec(compile(text, "split_case.py", "exec", dont_inherit=True), space)
    seen: list[str] = []
    for argument in (0, 1, 2, 5):
        worker = space["Worker"](frozenset(draw.sample(range(1, 80), draw.randrange(4))))
        try:
            outcome = repr(_finish(worker.run(argument)))
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        seen.append(f"{outcome} {worker.log} {_finish_kept(worker)} {space['TOTAL']}")
    return seen


def _finish(result: Any) -> Any:
    if asyncio.iscoroutine(result):
        return asyncio.run(result)
    if hasattr(result, "asend"):
        return asyncio.run(_drain(result))
    if hasattr(result, "send"):
        sent, found = None, []
        try:
            while len(found) < 40:
                found.append(result.send(sent))
                sent = len(found)
        except StopIteration as stop:
            found.append(("returned", stop.value))
        return found
    return result


async def _drain(result: Any) -> list[Any]:
    return [value async for value in result]


def _finish_kept(worker: Any) -> list[str]:
    """What the closures that outlive the call see by now."""
    found: list[str] = []
    for function in worker.kept:
        try:
            found.append(repr(function()))
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found
