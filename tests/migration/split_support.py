"""Methods to be split, written as bodies; single cuts, chosen by markers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from migration.code.source import Source
from migration.code.structure import Method, outline
from migration.split.assemble import assemble
from migration.split.choose import Piece
from migration.split.layout import Block, Layout, layout
from migration.split.plan import (
    SplitOptions,
    SplitOutcome,
    SplitPlan,
    SplitRefused,
    cutter_of,
    plan_split,
    style_of,
)
from migration.split.runs import Cutter, Run
from migration.split.traits import Obstacle

OPTIONS = SplitOptions(budget=10, cap=20)


def worker(body: str, signature: str = "self, a, b", head: str = "", definition: str = "def run") -> bytes:
    """A module with one class and one method; `head` stands above the class."""
    text = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
    return f"{textwrap.dedent(head)}\nclass Worker:\n    {definition}({signature}):\n{text}\n".encode()


def plan(data: bytes, options: SplitOptions = OPTIONS, method: str = "run") -> SplitOutcome:
    return plan_split(Source("app/worker.py", data), method, "Worker", options)


def planned(data: bytes, options: SplitOptions = OPTIONS, method: str = "run") -> SplitPlan:
    outcome = plan(data, options, method)
    assert isinstance(outcome, SplitPlan), outcome
    return outcome


def refused(data: bytes, options: SplitOptions = OPTIONS, method: str = "run") -> SplitRefused:
    outcome = plan(data, options, method)
    assert isinstance(outcome, SplitRefused), outcome
    return outcome


class Cuts:
    """Every possible cut of the method `run` of a module."""

    def __init__(self, data: bytes, options: SplitOptions = OPTIONS) -> None:
        self.source = Source("app/worker.py", data)
        shape = outline(self.source, "Worker")
        self.method: Method = shape.definitions("run")[0]
        parts = layout(self.source, self.method)
        assert parts is not None
        self.parts: Layout = parts
        self.cutter: Cutter = cutter_of(self.source, shape, self.method, options)
        self.style = style_of(self.source, self.method, parts, options)

    def blocks(self) -> Iterator[Block]:
        waiting = [self.parts.body]
        while waiting:
            block = waiting.pop()
            yield block
            waiting += [inner for item in block.items for inner in item.blocks]

    def judge(self, block: Block, first: int, last: int) -> Run | Obstacle:
        effect = self.cutter.effect(block.items[first])
        for item in block.items[first + 1 : last]:
            effect = self.cutter.effect(item, effect)
        return self.cutter.judge(block, first, last, effect)

    def marked(self) -> Run | Obstacle:
        """The verdict on the statements between the comments `# <` and `# >`."""
        (opened,) = (c.line for c in self.source.comments if c.text == "# <")
        (closed,) = (c.line for c in self.source.comments if c.text == "# >")
        for block in self.blocks():
            inside = [i for i, item in enumerate(block.items) if opened < item.first_line < closed]
            if inside and block.items[inside[0]].gap_line <= opened:
                return self.judge(block, inside[0], inside[-1] + 1)
        raise AssertionError("the marks are around no statements")

    def runs(self) -> list[Run]:
        """Every run that may be cut out."""
        found: list[Run] = []
        for block in self.blocks():
            for first in range(len(block.items)):
                verdicts = (self.judge(block, first, last) for last in range(first + 1, len(block.items) + 1))
                found += [verdict for verdict in verdicts if isinstance(verdict, Run)]
        return found

    def cut(self, run: Run) -> bytes:
        """The file with this one run made a helper."""
        text, _ = assemble(self.method, [Piece(run, ())], self.style)
        start = self.source.offset(self.method.first_line)
        lines = self.source.lines[self.method.first_line - 1 : self.method.block_end]
        return self.source.data[:start] + text + self.source.data[start + sum(map(len, lines)) :]
