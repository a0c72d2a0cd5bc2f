"""What a benchmark found: one ratio against a peer or a limit of the same run, and whether its bar holds.

Ratios of one run can be compared between machines, seconds cannot. Each is appended to `out/bench/ratios.jsonl` when it
is found, so that a run that breaks off keeps what it has; `python -m benchmarks.page` makes the page of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOUND = ROOT / "out" / "bench" / "ratios.jsonl"


@dataclass(frozen=True)
class Ratio:
    """`against`: the peer or limit of this run that `value` is a ratio to. `unit`: "x", "%" or what it counts.

    `bar`: None where nothing was asked for; `at_least` says on which side of it the value has to be. `figures`: what
    the ratio was made of, with units in their names.
    """

    name: str
    value: float
    against: str
    bar: float | None = None
    at_least: bool = True
    unit: str = "x"
    figures: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        if self.bar is None:
            return True
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    @property
    def limit(self) -> str:
        """The bar in words."""
        if self.bar is None:
            return "-"
        return f"{'at least' if self.at_least else 'at most'} {shown(self.bar, self.unit)}"

    def line(self) -> str:
        """One line for a terminal."""
        figures = "; ".join(f"{name} {_figure(value)}" for name, value in self.figures.items())
        return f"{self.name}: {shown(self.value, self.unit)} of {self.against} ({self.limit})" + (
            f"; {figures}" if figures else ""
        )


def shown(value: float, unit: str) -> str:
    """Three digits that matter, with the unit."""
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{number}{unit}" if unit == "x" else f"{number} {unit}"


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def tell(ratio: Ratio, file: Path = FOUND) -> Ratio:
    """Keeps the ratio and prints its line; gives it back, so that a test can assert that it holds."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(asdict(ratio)) + "\n")
    print(f"\n{ratio.line()}")
    return ratio


def read(file: Path = FOUND) -> list[Ratio]:
    """All that were told, in order; of one that was told twice the last.

    Raises:
        ValueError: a line that is no ratio, with its place.
    """
    found: dict[str, Ratio] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            ratio = Ratio(**json.loads(line))
        except (json.JSONDecodeError, TypeError) as error:
            raise ValueError(
                f"{file}:{number} is no ratio of a benchmark: {error}; run `make bench` again"
            ) from error
        found.pop(ratio.name, None)
        found[ratio.name] = ratio
    return list(found.values())
