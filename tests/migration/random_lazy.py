"""Small random classes that make attributes on first use, with an `__init__` that may ask for them early."""

from __future__ import annotations

import random

NAMES = ("x", "y")
METHODS = ("m0", "m1", "m2")


class LazyWriter:
    """Writes one module with a class `C` for `random_class.Run`; most attributes of it can be declared."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.unit = rng.choice(["    ", "\t", "  "])
        self.lines: list[str] = []

    def module(self) -> str:
        rng = self.rng
        based = rng.random() < 0.4
        if based:
            self._put(0, "class B:")
            self._init(rng.random() < 0.2)
            if rng.random() < 0.5:
                self._method("m1")
        self._put(0, f"class C{'(B)' * based}:")
        if rng.random() < 0.3:
            # Both may ask: whatever looks like a plain attribute of self runs code.
            self._put(1, "@property")
            self._put(1, "def p(self):")
            self._ask(2)
            self._put(2, "return 1")
            self._put(1, "@p.setter")
            self._put(1, "def p(self, value):")
            self._ask(2)
        self._init(based and rng.random() < 0.7)
        for name in METHODS:
            self._method(name)
        if rng.random() < 0.3:
            self._put(0, "class D(C):")
            self._method(rng.choice(METHODS))
        return "\n".join(self.lines) + "\n"

    def _put(self, depth: int, text: str) -> None:
        self.lines.append(self.unit * depth + text)

    def _init(self, supers: bool) -> None:
        rng = self.rng
        if rng.random() < 0.1:
            self._put(
                1, "def __init__(self, n=1): " + rng.choice(["self.a = n", "'doc'; self.a = n", "'doc'"])
            )
            return
        self._put(1, "def __init__(self, n=1):")
        if rng.random() < 0.4:
            self._put(2, '"""Makes one."""')
        lines = [self._opening() for _ in range(rng.randint(1, 5))]
        if supers:
            lines.insert(rng.randint(0, len(lines)), "super().__init__()")
        for line in lines:
            self._put(2, line)

    def _opening(self) -> str:
        rng = self.rng
        quiet = [
            "self.a = n",
            "self.b: int = n  # b",
            "k = flag()",
            "self.c = [n,\n\t\t\tn]",
            "tick()",
            "note(n)",
        ]
        quiet += [
            "self.a = n; self.b = n",
            "self.a, self.b = n, n",
            "self.d = lambda: n",
            "self.b = n; self.m0()",
        ]
        loud = [f"self.{rng.choice(METHODS)}()", "self.p = n", "note(self.p)", "leak(self)", "me = self"]
        loud += [
            "self.e = self.m0; self.e()",
            "self.f = lambda: self.m1()",
            "self.f()",
            "locals()['self'].m0()",
        ]
        loud += ["note(getattr(self, 'p', 0))", "KEEP.append(self.m0)", "self.m1() if flag() else 0"]
        return rng.choice(quiet if rng.random() < 0.7 else [*loud, "[self.m2() for _ in [0]]"])

    def _method(self, name: str) -> None:
        self._put(1, f"def {name}(self, k='x'):")
        self._put(2, "tick()")
        for _ in range(self.rng.randint(1, 4)):
            self._ask(2)

    def _ask(self, depth: int) -> None:
        rng = self.rng
        name = rng.choice(NAMES)
        test = f"hasattr(self, '{name}')" if name == "x" else f"getattr(self, '{name}', 0)"
        value = rng.choice(["1", "[]", "'s'", "0"])
        kind = rng.randint(0, 7)
        if kind <= 2:
            self._put(depth, f"if not {test}:")
            self._put(depth + 1, f"self.{name} = {value}")
            if kind == 0 and name == "x":
                self._put(depth, f"note(self.{name})")
        elif kind == 3:
            self._put(depth, f"note({test})")
        elif kind == 4:
            self._put(depth, f"note(not {test} or self.{name})" if name == "x" else f"note(not({test}))")
        elif kind == 5:
            self._put(depth, f"note(1 if {test}else 2)")
        elif kind == 6:
            self._put(depth, f"note({test} == True)")
        else:
            self._put(depth, f"if flag(): self.{rng.choice(METHODS)}()")
