"""One run of a package's own tests: what became of each test, by its id."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from junitparser import JUnitXml, TestCase, TestSuite

from wild.suites import Suite

#: Seconds that one run of a suite may take, on a busy machine too.
TIME_LIMIT = 900
_PYTEST = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"


class SuiteError(Exception):
    """The tests could not be run at all; the message holds the end of what pytest said."""


@dataclass(frozen=True)
class Outcomes:
    #: (test id, "passed" | "failed" | "error" | "skipped" | "xfailed"), as often as it was reported.
    tests: Counter[tuple[str, str]]

    def count(self, outcome: str) -> int:
        return sum(number for (_, what), number in self.tests.items() if what == outcome)

    @property
    def red(self) -> set[str]:
        """Ids of the tests that failed, or could not be run."""
        return {name for name, what in self.tests if what in ("failed", "error")}

    @property
    def green(self) -> bool:
        return bool(self.tests) and not self.red

    @property
    def summary(self) -> str:
        kinds = ("passed", "failed", "error", "skipped", "xfailed")
        return ", ".join(f"{self.count(kind)} {kind}" for kind in kinds if self.count(kind)) or "nothing ran"


def differences(before: Outcomes, after: Outcomes) -> list[str]:
    """One line for each test that did not come out as before."""
    ids = sorted({name for name, _ in (before.tests - after.tests) + (after.tests - before.tests)})
    return [f"{name}: {_of(before, name)} before, {_of(after, name)} after" for name in ids]


def _of(outcomes: Outcomes, name: str) -> str:
    found = sorted(what for (test, what) in outcomes.tests.elements() if test == name)
    return "+".join(found) or "not run"


def run_settled(python: Path, suite: Suite, tree: Path) -> Outcomes:
    """Run all tests of the package; where some fail run them again, up to `suite.tries` times in all.

    A test counts as it came out in the first run that it passed. More than one try is for suites that wait for
    sockets and timers: what a cut has broken fails every time.
    """
    outcomes = run_tests(python, suite, tree, suite.tests)
    for _ in range(suite.tries - 1):
        if outcomes.green:
            break
        again = run_tests(python, suite, tree, suite.tests)
        for name in outcomes.red - again.red:
            for found in [key for key in outcomes.tests if key[0] == name]:
                del outcomes.tests[found]
            outcomes.tests.update({key: count for key, count in again.tests.items() if key[0] == name})
    return outcomes


def run_tests(
    python: Path, suite: Suite, tree: Path, tests: Iterable[str], *, stop_early: bool = False
) -> Outcomes:
    """Run `tests` of the package in `tree`; with `stop_early` only up to the first failure.

    Raises SuiteError when pytest could not start or did not come to an end.
    """
    with tempfile.TemporaryDirectory(prefix="wild-") as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", f"--basetemp={folder}/tmp"]
        # Ids, those of --deselect too, begin at the root: for a package without settings it would be above `tree`.
        options += [f"--rootdir={tree}"]
        options += [*suite.options, *(["-x"] if stop_early else [])]
        options += [f"--{'deselect' if '::' in test else 'ignore'}={test}" for test in suite.deselect]
        command = [str(python), "-c", f"{suite.prelude}\n{_PYTEST}", *options, *tests]
        try:
            done = subprocess.run(
                command,
                cwd=tree,
                env=environment(suite, tree),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=TIME_LIMIT,
            )
        except subprocess.TimeoutExpired:
            raise SuiteError(f"{suite.package}: its tests took more than {TIME_LIMIT} s") from None
        # 0 all passed, 1 some failed, 2 collection failed; anything else is no verdict.
        if done.returncode not in (0, 1, 2) or not report.is_file():
            raise SuiteError(f"{suite.package}: pytest exit {done.returncode}\n{done.stdout[-3000:]}")
        return read_report(report)


def environment(suite: Suite, tree: Path) -> dict[str, str]:
    """The variables of a test run: the copy is imported, and nothing of our own pytest leaks in."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "COV_", "COVERAGE_"))
    }
    ours = {"PYTHONPATH": str(tree / suite.path), "PYTHONHASHSEED": "0", "COLUMNS": "100"}
    return kept | ours | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def read_report(path: Path) -> Outcomes:
    """Outcomes from a JUnit file of pytest."""
    found: Counter[tuple[str, str]] = Counter()
    for suite in JUnitXml.fromfile(str(path)):
        assert isinstance(suite, TestSuite)
        for case in suite:
            found[f"{case.classname}::{case.name}", _outcome(case)] += 1
    return Outcomes(found)


def _outcome(case: TestCase) -> str:
    kinds = {type(result).__name__: result for result in case.result}
    if "Error" in kinds or "Failure" in kinds:
        return "error" if "Error" in kinds else "failed"
    if "Skipped" in kinds:
        return "xfailed" if kinds["Skipped"].type == "pytest.xfail" else "skipped"
    return "passed"
