"""Small random classes that make, delete and ask for attributes in any order, and a way to run them."""

from __future__ import annotations

import builtins
import contextlib
import random
import sys
import types
from collections.abc import Callable
from typing import Any

from migration.code.collector import no_collections

METHODS = ("m0", "m1", "m2")
HEAD = "import contextlib\n"


class Writer:
    """Writes one module with a class `C`; `wild` adds what makes proofs impossible."""

    def __init__(self, rng: random.Random, *, wild: bool) -> None:
        self.rng = rng
        self.wild = wild
        self.lines: list[str] = []
        self.names = ("x", "y") if rng.random() < 0.7 else ("x", "y", "z", "m1", "p")
        #: Deletions and Nones are rare in most classes, so that most attributes can be proven something of.
        self.deletes = rng.random() < 0.25
        self.nones = rng.random() < 0.4

    def module(self) -> str:
        rng = self.rng
        based = rng.random() < 0.25
        if based:
            self._class("B", "", rng.choice([True, False]))
        self._class("C", "(B)" if based else "", rng.random() < 0.85, based=based)
        if rng.random() < 0.25:
            self._class("D", "(C)", rng.random() < 0.6, based=True, methods=rng.sample(METHODS, 1))
        return HEAD + "\n".join(self.lines) + "\n"

    def _class(
        self, name: str, bases: str, init: bool, *, based: bool = False, methods: Any = METHODS
    ) -> None:
        rng = self.rng
        self.lines += ["", f"class {name}{bases}:", "    pass"]
        if rng.random() < 0.15:
            self.lines.append(f"    {rng.choice(self.names)} = {rng.choice(['1', 'None', '[]'])}")
        if rng.random() < 0.1:
            self.lines += [
                "    @property",
                "    def p(self):",
                f"        return self.{rng.choice(self.names[:2])}",
            ]
        if self.wild and rng.random() < 0.2:
            self.lines += [
                "    def __getattr__(self, name):",
                "        if name == 'x' and flag():",
                "            return 1",
            ]
            self.lines += ["        raise AttributeError(name)"]
        if init:
            self.lines.append("    def __init__(self, k='x'):")
            where = rng.choice(["first", "last", "none"]) if based else "none"
            if where == "first":
                self.lines.append("        super().__init__()")
            self._body(4, starting=True)
            if where == "last":
                self.lines.append("        super().__init__()")
        if rng.random() < 0.1:
            self.lines += ["    def __del__(self, k='x'):", "        try:", "            tick()"]
            self._block(3, 2)
            self.lines += ["        except BaseException:", "            pass"]
        for method in methods:
            self.lines.append(f"    def {method}(self, k='x'):")
            self._body(4)

    def _body(self, size: int, *, starting: bool = False) -> None:
        self.lines.append("        tick()")
        self._block(2, size, starting=starting)

    def _block(self, depth: int, size: int, *, starting: bool = False) -> None:
        for _ in range(self.rng.randint(1, size)):
            self._statement(depth, starting)

    def _statement(self, depth: int, starting: bool = False) -> None:
        rng, put = self.rng, lambda text: self.lines.append("    " * depth + text)
        name = rng.choice(self.names)
        simple: list[tuple[int, Callable[[], None]]] = [
            (6 if starting else 3, lambda: put(f"self.{name} = {self._value()}")),
            (5, lambda: put(f"note(hasattr(self, '{name}'))")),
            (2, lambda: put(f"note(hasattr(self, '{name}') and bool(self.{name}))")),
            (2, lambda: put(f"note(getattr(self, '{name}', {rng.choice(['None', 'None', '0'])}))")),
            (1, lambda: put(f"note(getattr(self, '{name}'))")),
            (1, lambda: put(f"self.{name} += 1")),
            (1, lambda: put(f"note(self.{name})")),
            (2, lambda: put(f"self.{rng.choice(METHODS)}()")),
            (1, lambda: put(f"setattr(self, '{name}', {self._value()})")),
            (1, lambda: put(f"KEEP.append(lambda: note(hasattr(self, '{name}')))")),
            (1, lambda: put(f"KEEP.append(self.{rng.choice(METHODS)})")),
            (1, lambda: put("return")),
        ]
        if self.deletes:
            simple += [(2, lambda: put(f"del self.{name}")), (1, lambda: put(f"delattr(self, '{name}')"))]
        if self.wild:
            simple += [
                (1, lambda: put("setattr(self, k, 1)")),
                (1, lambda: put("delattr(self, k)")),
                (1, lambda: put("leak(self)")),
                (1, lambda: put(f"self.__dict__.update({name}=1)")),
                (1, lambda: put(f"self.__dict__.pop('{name}', None)")),
                (1, lambda: put(f"vars(self)['{name}'] = 1")),
                (1, lambda: put(f"type(self).{name} = 1")),
                (1, lambda: put(f"del type(self).{name}")),
                (1, lambda: put(f"C.__new__(C).{rng.choice(METHODS)}()")),
                (1, lambda: put("self = C()")),
                (1, lambda: put(f"other = self; other.{name} = {self._value()}")),
                (1, lambda: put(f"other = self; del other.{name}")),
                (1, lambda: put(f"super().__setattr__('{name}', 1)")),
                (1, lambda: put(f"super().__delattr__('{name}')")),
            ]
        nested: list[tuple[int, Callable[[], None]]] = []
        if depth < 4:
            nested = [
                (3, lambda: self._if(depth, f"hasattr(self, '{name}')")),
                (3, lambda: self._if(depth, f"not hasattr(self, '{name}')")),
                (1, lambda: self._if(depth, f"getattr(self, '{name}', None) is not None")),
                (1, lambda: self._if(depth, f"getattr(self, '{name}', None)")),
                (1, lambda: self._if(depth, f"'{name}' in self.__dict__") if self.wild else put("pass")),
                (2, lambda: self._if(depth, "flag()")),
                (1, lambda: self._compound(depth, "for _ in range(flag()):")),
                (1, lambda: self._compound(depth, "while flag():", leave=True)),
                (1, lambda: self._compound(depth, "while True:", leave=True, always=True)),
                (1, lambda: self._compound(depth, "with contextlib.suppress(AttributeError):")),
                (1, lambda: self._compound(depth, "with contextlib.nullcontext():")),
                (2, lambda: self._try(depth)),
                (1, lambda: self._compound(depth, "def later():", call=True)),
                (1, lambda: self._match(depth)),
            ]
        options = simple + nested
        rng.choices([make for _, make in options], [weight for weight, _ in options])[0]()

    def _value(self) -> str:
        return self.rng.choice(
            ["1", "[]", "'s'", "None", f"self.{self.rng.choice(self.names)}"][: 5 if self.nones else 3]
        )

    def _if(self, depth: int, test: str) -> None:
        self._compound(depth, f"if {test}:")
        if self.rng.random() < 0.4:
            self._compound(depth, "else:")

    def _compound(
        self, depth: int, head: str, *, leave: bool = False, always: bool = False, call: bool = False
    ) -> None:
        self.lines.append("    " * depth + head)
        self._block(depth + 1, 3)
        if leave:
            test = "" if always or self.rng.random() < 0.5 else "if flag(): "
            self.lines.append("    " * (depth + 1) + test + self.rng.choice(["break", "break", "return"]))
            if always:
                self.lines.append("    " * (depth + 1) + "break")
        if call:
            self.lines.append("    " * depth + self.rng.choice(["later()", "KEEP.append(later)"]))

    def _try(self, depth: int) -> None:
        self._compound(depth, "try:")
        kind = self.rng.choice(["except", "except", "finally", "both"])
        if kind != "finally":
            self._compound(depth, "except AttributeError:")
            if self.rng.random() < 0.3:
                self._compound(depth, "else:")
        if kind != "except":
            self._compound(depth, "finally:")

    def _match(self, depth: int) -> None:
        self.lines.append("    " * depth + "match flag():")
        self._compound(depth + 1, "case 0:")
        self._compound(depth + 1, self.rng.choice(["case _:", "case 1:"]))


class Run:
    """One execution: what each test said by line, and everything that the program showed."""

    def __init__(self, text: str, seed: int, *, spy: bool = True) -> None:
        self.rng = random.Random(seed)
        self.seen: list[tuple[int, bool]] = []
        self.shown: list[object] = []
        self.steps = 0
        self.over = False
        keep: list[Callable[[], object]] = []
        module = types.ModuleType("random_class")
        if spy:
            module.__dict__.update(hasattr=self._hasattr, getattr=self._getattr)
        module.__dict__.update(
            flag=self._flag,
            note=self._note,
            KEEP=keep,
            tick=self._tick,
            leak=lambda obj: self._call(getattr(obj, self.rng.choice(METHODS))),
        )
        # When a cycle dies is chance: its `__del__` would show itself in one of two runs that are compared.
        with no_collections():
            self._run(module, text, keep)
            self.over = True  # before the collector may run again, which it may on the way out

    def _run(self, module: types.ModuleType, text: str, keep: list[Callable[[], object]]) -> None:
        exec(compile(text, "random_class.py", "exec"), module.__dict__)
        kinds = [module.__dict__[name] for name in ("C", "D") if name in module.__dict__]
        with contextlib.suppress(RecursionError, _TooLong):
            for _ in range(3):
                obj = self._call(self.rng.choice(kinds))
                for _ in range(6):
                    if keep and self.rng.random() < 0.3:
                        self._call(self.rng.choice(keep))
                    elif obj is not None:
                        self._call(getattr(obj, self.rng.choice(METHODS), None))
                obj = None
            keep.clear()

    def _call(self, action: Any) -> Any:
        try:
            return action()
        except (AttributeError, TypeError, NameError, RuntimeError) as error:
            self.shown.append(type(error).__name__)
            return None

    def _tick(self) -> None:
        self.steps += 1
        if self.over or self.steps > 300:
            raise _TooLong  # of a `__del__` that the collector runs later nothing is noted

    def _flag(self) -> int:
        self._tick()
        return self.rng.randint(0, 1)

    def _note(self, value: object) -> None:
        self._tick()
        self.shown.append(value if isinstance(value, int | str | bool | type(None)) else type(value).__name__)

    def _hasattr(self, obj: object, name: str) -> bool:
        found = builtins.hasattr(obj, name)
        self.seen.append((sys._getframe(1).f_lineno, found))
        return found

    def _getattr(self, obj: object, name: str, *default: object) -> object:
        self.seen.append((sys._getframe(1).f_lineno, builtins.hasattr(obj, name)))
        return builtins.getattr(obj, name, *default)


class _TooLong(BaseException):
    pass
