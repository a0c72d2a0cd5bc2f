"""`migrate` as a whole process against the tools it is measured by, in the same run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.monolith import PORT_TEN, write_project
from benchmarks.ratios import Ratio, tell
from pipeline.copies import copy_before

ROUNDS = 5
#: A command line as small as typer makes it, without rich help.
BARE_TYPER = """\
import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def one(file: str) -> None:
    "The first command."


@app.command()
def two(file: str) -> None:
    "The second command."


app()
"""
LIBCST_CONFIG = """\
generated_code_marker: '@gen'
formatter: ['cat']
blacklist_patterns: []
modules: ['libcst.codemod.commands']
repo_root: '.'
"""


def run(*command: object, cwd: Path) -> None:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def peak_megabytes(command: Sequence[object], cwd: Path) -> float:
    """Peak resident memory of one run, measured by the child itself after it has done its work."""
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, capture_output=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, command)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def best(action: Callable[[], None], rounds: int = ROUNDS) -> float:
    """Seconds of the fastest of some runs."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a class of 7,000 lines and a recipe for ten of its methods."""
    root = tmp_path_factory.mktemp("project")
    write_project(root, 7000)
    (root / ".libcst.codemod.yaml").write_text(LIBCST_CONFIG, encoding="utf-8")
    return root


def test_port_and_verify_of_ten_methods_against_a_bare_rename_by_libcst(project: Path, benchmark):
    """Bar: at least ten times faster than `libcst.tool codemod rename` on the same file."""
    migrate = Path(sys.executable).with_name("migrate")
    port = (migrate, *PORT_TEN)

    def ours() -> None:
        done = subprocess.run([*map(str, port)], cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "would move 10 methods" in done.stdout, done.stdout + done.stderr

    benchmark.pedantic(ours, rounds=ROUNDS)
    rename = ("--old_name", "app.worker.math", "--new_name", "app.worker.maths")
    theirs = best(
        lambda: run(
            sys.executable,
            "-m",
            "libcst.tool",
            "codemod",
            "rename.RenameCommand",
            "-j",
            1,
            *rename,
            "app/worker.py",
            cwd=project,
        ),
        rounds=2,
    )
    own = benchmark.stats.stats.min
    benchmark.extra_info |= {"libcst_rename_s": round(theirs, 2), "ratio": round(theirs / own, 1)}
    script = "import sys; from migration.cli import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass"
    memory = peak_megabytes((sys.executable, "-c", script, *port[1:]), project)
    figures = {"own s": own, "libcst s": theirs, "own MB": memory}
    ratio = Ratio("port and verify of ten methods", theirs / own, "libcst's rename", 10, figures=figures)
    assert tell(ratio).holds


def test_help_against_a_bare_typer_application(tmp_path: Path, benchmark):
    """Bar: at most 1.5 times a two-command typer application without rich help."""
    (tmp_path / "bare.py").write_text(BARE_TYPER, encoding="utf-8")
    migrate = Path(sys.executable).with_name("migrate")
    benchmark.pedantic(lambda: run(migrate, "--help", cwd=tmp_path), rounds=10)
    bare = best(lambda: run(sys.executable, "bare.py", "--help", cwd=tmp_path), rounds=10)
    own = benchmark.stats.stats.min
    benchmark.extra_info |= {"typer_s": round(bare, 3), "ratio": round(own / bare, 2)}
    figures = {"own s": own, "typer s": bare}
    ratio = Ratio(
        "migrate --help", own / bare, "two commands of bare typer", 1.5, at_least=False, figures=figures
    )
    assert tell(ratio).holds


def test_check_of_our_own_worker(tmp_path: Path) -> None:
    """Bar: `migrate check` under three seconds, as a whole process, in each phase."""
    root = Path(__file__).resolve().parents[1]
    copy_before(root, tmp_path)
    migrate = (sys.executable, "-c", "from migration.cli import main; main()")
    for phase in ("port", "gate", "cleanup"):
        subprocess.run(
            [*migrate, phase, "kv", "--repo", str(tmp_path)], cwd=root, check=True, capture_output=True
        )
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            done = subprocess.run(
                [*migrate, "check", "kv", "--repo", str(tmp_path)], cwd=root, capture_output=True
            )
            times.append(time.perf_counter() - start)
            assert done.returncode in (0, 1), done.stderr
        name = f"migrate check kv after {phase}"
        assert tell(Ratio(name, min(times), "the clock", 3, at_least=False, unit="s")).holds
