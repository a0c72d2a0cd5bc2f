"""`migrate inventory` of a 10,000-line class against the parse of the same file by libcst, in the same run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import libcst
import pytest

from benchmarks.monolith import CLASS, monolith
from benchmarks.ratios import Ratio, tell
from benchmarks.test_migrate_bench import ROUNDS, best
from migration.survey.inventory import Inventory, take_inventory

LINES = 10_000
BAR = 3.0


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inventory") / "worker.py"
    path.write_text(monolith(LINES), encoding="utf-8")
    return path


def libcst_seconds(data: bytes) -> float:
    """Seconds that libcst takes to parse a file, the best of some runs."""
    return best(lambda: _parse(data))


def told(name: str, own: float, theirs: float) -> Ratio:
    figures = {"own s": own, "libcst parse s": theirs}
    return tell(Ratio(name, own / theirs, "the parse alone by libcst", BAR, at_least=False, figures=figures))


def _parse(data: bytes) -> None:
    libcst.parse_module(data)


def test_inventory_in_process(file: Path, benchmark):
    """Bar: at most three times the parse by libcst."""
    data = file.read_bytes()
    found: Inventory = benchmark.pedantic(
        take_inventory, args=(str(file), data, CLASS), rounds=ROUNDS, warmup_rounds=1
    )
    assert found.last_line - found.first_line + 1 >= LINES * 0.9 and len(found.methods) > 400
    theirs, own = libcst_seconds(data), benchmark.stats.stats.min
    benchmark.extra_info |= {"libcst_parse_s": round(theirs, 3), "ratio": round(own / theirs, 2)}
    assert told("inventory of 10,000 lines, in process", own, theirs).holds


@pytest.mark.parametrize("options", [(), ("--json",), ("--clusters",)], ids=["tables", "json", "clusters"])
def test_inventory_as_a_whole_process(file: Path, benchmark, options: tuple[str, ...]):
    """Bar: start, inventory and output together at most three times the parse alone."""
    migrate = Path(sys.executable).with_name("migrate")

    def ours() -> None:
        done = subprocess.run(
            [str(migrate), "inventory", str(file), "--class", CLASS, *options],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 and CLASS in done.stdout, done.stderr

    benchmark.pedantic(ours, rounds=ROUNDS)
    theirs, own = libcst_seconds(file.read_bytes()), benchmark.stats.stats.min
    benchmark.extra_info |= {"libcst_parse_s": round(theirs, 3), "ratio": round(own / theirs, 2)}
    assert told(" ".join(("migrate inventory", *options)), own, theirs).holds
