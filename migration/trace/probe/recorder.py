"""Counts of what was seen, written as they grow: one append-only file a process.

A fact is written when it is seen first and when its count passes 2, 4, 8 and so on, and once more when the
process ends. So a process that is killed leaves every type that it saw, and counts that are too low by half
at most.
"""

from __future__ import annotations

import _thread
import json
import os
import sys
from collections.abc import Iterable
from typing import Any, Final

from .naming import modules, type_name
from .states import States
from .subjects import Method, Subject

#: Returned value of a call that ended otherwise, or that says nothing.
NOTHING: Final = object()

Fact = tuple[str, str, str, str, str]


class Recorder:
    """Takes method entries and exits of one process; a fault in here ends the tracing, never the program."""

    def __init__(self, folder: str, depth: int, limit: int) -> None:
        self._folder = folder
        self._depth = depth
        self._limit = limit
        self._lock = _thread.RLock()
        self._counts: dict[Fact, int] = {}
        self._states: dict[Subject, States] = {}
        self._modules = 0
        self._notes: list[tuple[str, str]] = []
        self._file = -1
        self._over = False
        self._problem = ""
        self._spent: set[tuple[str, str]] = set()

    def entered(
        self, subject: Subject, method: Method, instance: Any, arguments: Iterable[tuple[str, Any]]
    ) -> bool:
        """A call begins; `instance` is NOTHING for a static or class method.

        False once the method was called so often that it need not be watched any more.
        """
        if self._over:
            return False
        try:
            with self._lock:
                path, name, count = subject.path, method.name, self._count
                call = (path, "call", name, "", "")
                if self._limit and self._counts.get(call, 0) >= self._limit:
                    self._spent.add((path, name))
                    return False
                count(call)
                for parameter, value in arguments:
                    count((path, "parameter", name, parameter, type_name(value, self._depth)))
                if method.returns and method.generator:
                    count((path, "return", name, "", method.generator))
                self._state(subject, instance)
        except Exception as error:
            self._give_up(error)
        return True

    def returned(self, subject: Subject, method: Method, instance: Any, result: Any) -> bool:
        """A call ended with `result`; False as for `entered`. One that ends in an exception is not reported."""
        if self._over or (subject.path, method.name) in self._spent:
            return False
        try:
            with self._lock:
                if method.returns and not method.generator and result is not NOTHING:
                    name = type_name(result, self._depth)
                    self._count((subject.path, "return", method.name, "", name))
                self._state(subject, instance)
        except Exception as error:
            self._give_up(error)
        return True

    def note(self, kind: str, text: str) -> None:
        """A remark of the process, made once: `process`, `class` found, `module` of a type, `problem`."""
        if (kind, text) not in self._notes:
            self._notes.append((kind, text))
            self._write((("", kind, text, "", ""), 1))

    def close(self) -> None:
        """Write all counts as they are now, and that the process ended in good order."""
        with self._lock:
            if self._problem:
                self.note("problem", self._problem)
            elif not self._over:
                for states in self._states.values():
                    states.settle()
                self._write(*self._counts.items(), (("", "end", "", "", ""), 1))
                self._over = True

    def forked(self) -> None:
        """Begin anew in a child that was forked: what the parent saw is in the parent's file."""
        self._lock = _thread.RLock()
        self._counts, self._states, self._spent = {}, {}, set()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._write(*((("", kind, text, "", ""), 1) for kind, text in self._notes))
        if (util := sys.modules.get("multiprocessing.util")) is not None:
            # Such a child leaves through os._exit, which runs no atexit function, but it runs these.
            util.register_after_fork(self, lambda own: util.Finalize(None, own.close, exitpriority=-100))

    def _state(self, subject: Subject, instance: Any) -> None:
        if instance is NOTHING or not subject.owns(instance):
            return
        states = self._states.get(subject)
        if states is None:
            path = subject.path

            def add(name: str, text: str, looks: int) -> None:
                self._count((path, "attribute", name, "", text), looks)

            states = self._states[subject] = States(add, self._depth)
        self._count((subject.path, "state", "", "", ""))
        states.look(instance)

    def _count(self, fact: Fact, more: int = 1) -> None:
        before = self._counts.get(fact)
        self._counts[fact] = count = (before or 0) + more
        if before is None or count.bit_length() > max(1, before.bit_length()):
            self._write((fact, max(1, count)))
        if len(modules) > self._modules:
            self._modules = len(modules)
            for module in sorted(modules):
                self.note("module", module)

    def _write(self, *facts: tuple[Fact, int]) -> None:
        lines = b"".join(json.dumps([*fact, count]).encode() + b"\n" for fact, count in facts)
        try:
            if self._file < 0:
                self._file = self._open()
            os.write(self._file, lines)
        except OSError:  # a full disk: the missing `end` line says that this file is not whole
            self._over = True

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
        number = 0
        while True:  # a process id may come twice
            try:
                return os.open(os.path.join(self._folder, f"{os.getpid()}-{number}.jsonl"), flags, 0o600)
            except FileExistsError:
                number += 1

    def _give_up(self, error: Exception) -> None:
        """Write nothing now: where the stack is full (RecursionError) even that would fail."""
        self._over = True
        self._problem = f"tracing stopped: {type(error).__name__}: {error}"
