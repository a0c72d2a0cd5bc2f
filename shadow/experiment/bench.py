"""What a gate costs: `python -m shadow.experiment.bench [--torch]` prints a table of CPU times per call."""

from __future__ import annotations

import argparse
import importlib
import threading
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shadow.experiment import Gate, Isolated, Pure

_PREFIX = "SHADOW_BENCH"


@dataclass
class _Sequence:
    uuid: str
    tokens: list[int]
    status: int = 0
    pages: int = 0
    fields: dict[str, int] = field(default_factory=lambda: {f"f{i}": i for i in range(20)})


class _Pool:
    def __init__(self) -> None:
        self.free = 100
        self.thread = threading.local()

    def stats(self) -> dict[str, int]:
        return {"free": self.free}


class _Worker:
    def __init__(self, sequences: int, tokens: int) -> None:
        self.count = 1
        self.pool = _Pool()
        self.batch = {f"u{i}": _Sequence(f"u{i}", list(range(tokens))) for i in range(sequences)}

    def read(self, n: int) -> int:
        if _GATE.on:
            return _GATE.run(self, "read", n)
        return self._legacy_read(n)

    def plain(self, n: int) -> int:
        return self._legacy_read(n)

    def _legacy_read(self, n: int) -> int:
        return self.count + n

    def ask(self, n: int) -> int:
        if _GATE.on:
            return _GATE.run(self, "ask", n)
        return self._legacy_ask(n)

    def _legacy_ask(self, n: int) -> int:
        return self.pool.stats()["free"] - n

    def mark(self, n: int) -> int:
        if _GATE.on:
            return _GATE.run(self, "mark", n)
        return self._legacy_mark(n)

    def _legacy_mark(self, n: int) -> int:
        self.batch["u0"].pages += n
        self.pool.stats()
        return self.batch["u0"].pages


class _Handler:
    def __init__(self, worker: Any) -> None:
        self._worker = worker

    @classmethod
    def for_worker(cls, worker: Any) -> _Handler:
        return cls(worker)

    def read(self, n: int) -> int:
        return self._worker.count + n

    def ask(self, n: int) -> int:
        return self._worker.pool.stats()["free"] - n

    def mark(self, n: int) -> int:
        self._worker.batch["u0"].pages += n
        self._worker.pool.stats()
        return self._worker.batch["u0"].pages


_GATE = Gate(_PREFIX, _Handler, {"read": Pure(), "ask": Pure(), "mark": Isolated()})


def _nanoseconds(call: Callable[[], Any], number: int = 200_000) -> float:
    return min(timeit.repeat(call, number=number, repeat=7, timer=time.process_time)) / number * 1e9


def _microseconds(call: Callable[[], Any], number: int) -> float:
    for _ in range(20):
        call()
    return min(timeit.repeat(call, number=number, repeat=5, timer=time.process_time)) / number * 1e6


def rows() -> list[tuple[str, str]]:
    """(what, cost) for each case."""
    small, large = _Worker(4, 16), _Worker(128, 1024)
    found: list[tuple[str, str]] = []
    _GATE.reload({})
    plain, gated = _nanoseconds(lambda: small.plain(1)), _nanoseconds(lambda: small.read(1))
    found.append(("off: a delegating call without a gate", f"{plain:.0f} ns"))
    found.append(("off: the same with a gate", f"{gated:.0f} ns"))
    _GATE.reload({f"{_PREFIX}_NATIVE": "1"})
    found.append(("native: a call through the gate", f"{_nanoseconds(lambda: small.read(1), 20_000):.0f} ns"))
    _GATE.reload({f"{_PREFIX}_COMPARE": "1"})
    found.append(("compare: Pure, reads one number", f"{_microseconds(lambda: small.read(1), 200):.0f} µs"))
    found.append(("compare: Pure, one call of a pool", f"{_microseconds(lambda: small.ask(1), 200):.0f} µs"))
    found.append(("compare: Isolated, 4 sequences", f"{_microseconds(lambda: small.mark(1), 100):.0f} µs"))
    cost = f"{_microseconds(lambda: large.mark(1), 5) / 1000:.1f} ms"
    found.append(("compare: Isolated, 128 sequences of 1,024 tokens", cost))
    assert _GATE.summary().diverged == 0
    _GATE.reload({})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m shadow.experiment.bench", description=__doc__)
    parser.add_argument("--torch", action="store_true", help="with torch loaded: its generators are kept too")
    if parser.parse_args().torch:
        importlib.import_module("torch")
    for what, cost in rows():
        print(f"{what:52} {cost:>10}")


if __name__ == "__main__":
    main()
