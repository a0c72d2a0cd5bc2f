"""`python -m wild.run_suites [PACKAGE ...]`: does a package pass its own tests as before after a cut?

For each package: its tests as they come from PyPI; `migrate port RECIPE --cut`; the same tests again, which
must come out the same one by one; then methods that moved are broken in the handler, one at a time, which the
tests must notice: a method that they never run would prove nothing.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from migration.recipe import Recipe, parse_recipe
from wild.corpus import HERE, OUT, corpus
from wild.fetch import FetchError, fetch
from wild.outcomes import SuiteError, differences, environment, run_settled, run_tests
from wild.sabotage import broken, moved_methods
from wild.suites import Suite, suites

#: So many moved methods, at least, must be seen by the tests of a package.
LEAST_METHODS = 5


@dataclass(frozen=True)
class SuiteResult:
    package: str
    version: str
    class_name: str
    #: What moved, by the names that it has in the handler (`__len__` is `dunder_len` there).
    methods: tuple[str, ...]
    before: str
    after: str
    #: Tests that came out otherwise after the cut.
    changed: tuple[str, ...]
    #: Moved methods that were broken without a test failing.
    unnoticed: tuple[str, ...]
    #: The others that were broken, each with a test that failed.
    noticed: dict[str, str]
    seconds: float

    @property
    def problems(self) -> list[str]:
        found = [f"not the same after the cut: {line}" for line in self.changed]
        found += [f"no test notices that {method} is broken" for method in self.unnoticed]
        if not self.changed and len(self.noticed) < LEAST_METHODS:
            found.append(f"tests notice {len(self.noticed)} moved methods, {LEAST_METHODS} are wanted")
        return found


def environment_python() -> Path:
    """The interpreter of the environment in which all suites run; made on the first call."""
    wanted = (HERE / "requirements.txt").read_text() + sys.version
    folder, stamp = OUT / "venv", OUT / "venv.stamp"
    python = folder / "bin" / "python"
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / ".venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (python.exists() and stamp.is_file() and stamp.read_text() == wanted):
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
            pip += ["--python", str(python), "install", "-q", "-r", str(HERE / "requirements.txt")]
            done = subprocess.run(pip, capture_output=True, text=True)
            if done.returncode:
                raise FetchError(f"cannot install wild/requirements.txt: {done.stderr.strip()[-500:]}")
            stamp.write_text(wanted)
    return python


def run_suite(suite: Suite, source: Path, python: Path, work: Path) -> SuiteResult:
    """Run the whole trial of one package in a copy of `source` under `work`.

    Raises SuiteError where the tests cannot be run, fail before the cut, or the cut is refused.
    """
    start = time.monotonic()
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(source, work, symlinks=True)
    # A package without settings for pytest must not find ours in a folder above it.
    (work.parent / "pytest.ini").write_text("[pytest]\n")
    _give_metadata(suite, work)
    _comes_from(suite, python, work)
    recipe = parse_recipe(suite.recipe.read_text(encoding="utf-8"), suite.recipe.name)
    before = run_settled(python, suite, work)
    if not before.green:
        red = ", ".join(sorted(before.red)[:5])
        raise SuiteError(f"{suite.package}: its tests fail before anything is cut: {before.summary}: {red}")
    _cut(suite, work)
    handler = (work / recipe.target_file).read_text(encoding="utf-8")
    methods = moved_methods(handler, recipe.handler_class)
    after = run_settled(python, suite, work)
    changed = differences(before, after)
    to_break = suite.breaks or tuple(name for name in methods if name not in suite.unseen)
    noticed = {} if changed else _break_each(suite, recipe, to_break, python, work)
    return SuiteResult(
        package=suite.package,
        version=corpus()[suite.package].version if suite.package in corpus() else "",
        class_name=recipe.source_class,
        methods=methods,
        before=before.summary,
        after=after.summary,
        changed=tuple(changed),
        unnoticed=tuple(name for name, test in noticed.items() if not test),
        noticed={name: test for name, test in noticed.items() if test},
        seconds=time.monotonic() - start,
    )


def _give_metadata(suite: Suite, tree: Path) -> None:
    """Let importlib.metadata find the package, as if it had been installed from this folder."""
    described = tree / "PKG-INFO"
    if described.is_file() and not list((tree / suite.path).glob("*.egg-info")):
        folder = tree / suite.path / f"{suite.package}-0.dist-info"
        folder.mkdir()
        shutil.copyfile(described, folder / "METADATA")


def _comes_from(suite: Suite, python: Path, tree: Path) -> None:
    """The module under test is the copy's, not one that the environment happens to have."""
    code = f"import {suite.module} as module; print(module.__file__)"
    done = subprocess.run(
        [str(python), "-c", code], env=environment(suite, tree), cwd=tree, capture_output=True, text=True
    )
    if done.returncode or not Path(done.stdout.strip()).is_relative_to(tree):
        found = done.stdout.strip() or done.stderr.strip()[-500:]
        raise SuiteError(f"{suite.package}: {suite.module} does not come from {tree}: {found}")


def _cut(suite: Suite, tree: Path) -> None:
    """Cut as a user does, on the command line."""
    migrate = [sys.executable, "-c", "from migration.cli import main; main()"]
    arguments = ["port", str(suite.recipe), "--cut", "--repo", str(tree), "--allow-dirty", "--json"]
    done = subprocess.run([*migrate, *arguments], capture_output=True, text=True, cwd=HERE.parent)
    if done.returncode or not done.stdout:
        raise SuiteError(
            f"{suite.package}: migrate exit {done.returncode}: {_why(done.stdout)}{done.stderr[-2000:]}"
        )
    answer = json.loads(done.stdout)
    if answer["outcome"] != "written":
        raise SuiteError(f"{suite.package}: nothing was cut: {answer['outcome']}")


def _why(stdout: str) -> str:
    try:
        answer: dict[str, Any] = json.loads(stdout)
    except ValueError:
        return stdout[-2000:]
    lines = [f"\n  {r['code']} {r['where']}:{r['line']} {r['message']}" for r in answer.get("refusals", ())]
    return "".join(lines)


def _break_each(
    suite: Suite, recipe: Recipe, methods: Sequence[str], python: Path, tree: Path
) -> dict[str, str]:
    """For each method the first test that fails while it is broken, "" where none does."""
    handler = tree / recipe.target_file
    good = handler.read_text(encoding="utf-8")
    found = {}
    try:
        for method in methods:
            try:
                _write(handler, broken(good, recipe.handler_class, method))
            except LookupError as error:
                raise SuiteError(f"{suite.package}: {error} in {recipe.target_file}") from None
            found[method] = ""
            for tests in (suite.first, suite.tests):
                if tests and not found[method]:
                    ran = run_tests(python, suite, tree, tests, stop_early=True)
                    found[method] = min(ran.red, default="")
    finally:
        _write(handler, good)
    return found


def _write(file: Path, text: str) -> None:
    """Two texts of one length in one second would share their compiled file: drop it."""
    file.write_text(text, encoding="utf-8")
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


# The table.


def record(result: SuiteResult) -> None:
    """Keep the result as a row of out/wild/suites.md, which is written anew."""
    folder = OUT / "suites"
    folder.mkdir(parents=True, exist_ok=True)
    with open(OUT / ".suites.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / f"{result.package}.json").write_text(json.dumps(asdict(result), indent=1) + "\n")
        rows = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
        (OUT / "suites.md").write_text(table(rows))


def forget(package: str) -> None:
    """Drop the row of an earlier run, so that a failing one does not leave it standing."""
    (OUT / "suites" / f"{package}.json").unlink(missing_ok=True)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    head = "| package | class | methods moved | tests before | tests after | red when broken |\n"
    lines = [
        f"| {row['package']} {row['version']} | `{row['class_name']}` | {len(row['methods'])} "
        f"| {row['before']} | {row['after']}{', not the same tests' if row['changed'] else ''} "
        f"| {len(row['noticed'])} of {len(row['noticed']) + len(row['unnoticed'])}: "
        f"{', '.join(f'`{name}`' for name in sorted(row['noticed']))} |\n"
        for row in rows
    ]
    return (
        "# Their own tests, before and after a cut\n\n"
        + head
        + "|---|---|---|---|---|---|\n"
        + "".join(lines)
    )


def trial(package: str) -> SuiteResult:
    """Fetch, run and record one package of suites.toml."""
    source, python = fetch(package), environment_python()
    with open(OUT / f".{package}.suite.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        forget(package)
        result = run_suite(suites()[package], source, python, OUT / "trees" / package)
        record(result)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m wild.run_suites", description=__doc__)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: all of wild/suites.toml")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="packages at a time (default: 2)")
    arguments = parser.parse_args()
    names = arguments.packages or list(suites())
    if unknown := [name for name in names if name not in suites()]:
        parser.error(f"not in wild/suites.toml: {', '.join(unknown)}")

    def attempt(name: str) -> bool:
        try:
            result = trial(name)
        except (FetchError, SuiteError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return False
        verdict = "same" if not result.changed else "NOT THE SAME"
        print(f"{name}: {len(result.methods)} methods, {result.after}: {verdict}, {result.seconds:.0f} s")
        print("".join(f"  {line}\n" for line in result.problems), end="", flush=True)
        return not result.problems

    with ThreadPoolExecutor(arguments.jobs) as pool:
        good = list(pool.map(attempt, names))
    print(f"\n{(OUT / 'suites.md').read_text()}" if (OUT / "suites.md").is_file() else "")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
