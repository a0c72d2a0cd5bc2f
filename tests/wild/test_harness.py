"""The judge is judged: a small package of our own, with cuts that are good, bad and unseen."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from wild import run_suites as module
from wild.fetch import FetchError, fetch
from wild.outcomes import SuiteError, differences, read_report, run_settled, run_tests
from wild.run_suites import SuiteResult, run_suite, table
from wild.sabotage import broken, moved_methods
from wild.suites import Suite, load_suites

PACKAGE = '''\
class Shelf:
    def __init__(self):
        self.books = []

    def put(self, book):
        """Add one."""
        self.books.append(book)
        return self.count

    @property
    def count(self):
        return len(self.books)

    def forgotten(self):
        return 7
'''
TESTS = """\
import pytest
from shelf import Shelf

def test_put():
    assert Shelf().put("a") == 1

def test_count(subtests):
    shelf = Shelf()
    for number in range(3):
        with subtests.test(number=number):
            assert shelf.count == number
        shelf.put(number)

@pytest.mark.skip
def test_skipped():
    pass

@pytest.mark.xfail
def test_hopeless():
    assert False
"""
RECIPE = """\
schema = 1
name = "shelf"
[source]
file = "shelf.py"
class = "Shelf"
methods = [METHODS]
[target]
file = "shelf_handler.py"
class = "ShelfHandler"
"""


class _Suite(Suite):
    """Its recipe lies beside the package, not among those of the corpus."""

    @property
    def recipe(self) -> Path:
        return Path(self.prelude.removeprefix("# "))


def _package(folder: Path, *methods: str, tests: str = TESTS) -> tuple[Suite, Path]:
    source = folder / "source"
    source.mkdir()
    (source / "shelf.py").write_text(PACKAGE)
    (source / "test_shelf.py").write_text(tests)
    recipe = folder / "shelf.toml"
    recipe.write_text(RECIPE.replace("METHODS", ", ".join(map(json.dumps, methods))))
    suite = _Suite(package="shelf", tests=("test_shelf.py",), module="shelf", prelude=f"# {recipe}")
    return suite, source


def _trial(folder: Path, suite: Suite, source: Path) -> SuiteResult:
    return run_suite(suite, source, Path(sys.executable), folder / "trees" / "shelf")


def test_a_good_cut_gives_the_same_result_and_each_broken_method_is_noticed(tmp_path: Path) -> None:
    result = _trial(tmp_path, *_package(tmp_path, "put", "count"))
    assert result.before == result.after == "2 passed, 1 skipped, 1 xfailed"
    assert (result.changed, result.unnoticed) == ((), ())
    assert set(result.noticed) == {"put", "count"}
    assert result.problems == ["tests notice 2 moved methods, 5 are wanted"]
    handler = (tmp_path / "trees" / "shelf" / "shelf_handler.py").read_text()
    assert "broken on purpose" not in handler, "the last sabotage was not taken back"


def test_a_method_that_no_test_runs_is_reported(tmp_path: Path) -> None:
    result = _trial(tmp_path, *_package(tmp_path, "put", "forgotten"))
    assert result.unnoticed == ("forgotten",)
    assert "no test notices that forgotten is broken" in result.problems


def test_a_cut_that_breaks_the_package_is_reported_test_by_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = module._cut

    def bad(suite: Suite, tree: Path) -> None:
        good(suite, tree)
        handler = tree / "shelf_handler.py"
        handler.write_text(handler.read_text().replace("len(self", "1 + len(self"))

    monkeypatch.setattr(module, "_cut", bad)
    result = _trial(tmp_path, *_package(tmp_path, "put", "count"))
    assert [line.partition("::")[2] for line in result.changed] == [
        "test_count: passed before, failed after",  # one subtest of it
        "test_put: passed before, failed after",
    ]
    assert any(line.startswith("not the same after the cut: ") for line in result.problems)


def test_a_refused_cut_is_an_error_that_names_the_method(tmp_path: Path) -> None:
    suite, source = _package(tmp_path, "put", "absent")
    with pytest.raises(SuiteError, match="absent"):
        _trial(tmp_path, suite, source)


def test_a_suite_that_fails_before_the_cut_proves_nothing(tmp_path: Path) -> None:
    suite, source = _package(tmp_path, "put", tests=TESTS + "\ndef test_red():\n    assert 0\n")
    with pytest.raises(SuiteError, match="before anything is cut"):
        _trial(tmp_path, suite, source)


def test_what_a_suite_leaves_out_is_left_out_of_a_package_without_settings_too(tmp_path: Path) -> None:
    suite, source = _package(tmp_path, "put", tests=TESTS + "\ndef test_red():\n    assert 0\n")
    suite = dataclasses.replace(suite, deselect={"test_shelf.py::test_red": "fails"})
    assert _trial(tmp_path, suite, source).before == "2 passed, 1 skipped, 1 xfailed"


def test_a_module_from_elsewhere_is_an_error(tmp_path: Path) -> None:
    suite, source = _package(tmp_path, "put")
    elsewhere = _Suite(package="shelf", tests=suite.tests, module="json", prelude=suite.prelude)
    with pytest.raises(SuiteError, match="json does not come from"):
        _trial(tmp_path, elsewhere, source)


def test_a_suite_that_cannot_be_run_is_an_error_not_an_empty_pass(tmp_path: Path) -> None:
    suite, source = _package(tmp_path, "put")
    with pytest.raises(SuiteError, match="pytest exit 4"):
        run_tests(Path(sys.executable), suite, source, ["no_such_test.py"])


def test_outcomes_tell_a_failed_collection_from_a_pass(tmp_path: Path) -> None:
    suite, source = _package(tmp_path, "put", tests="import absent_module\n")
    outcomes = run_tests(Path(sys.executable), suite, source, suite.tests)
    assert not outcomes.green and outcomes.count("error") == 1


def test_a_test_that_passes_once_in_the_tries_it_has_counts_as_passed(tmp_path: Path) -> None:
    flaky = "from pathlib import Path\n\n" + TESTS + "\ndef test_second_time():\n"
    flaky += (
        "    count = Path('count')\n    count.write_text(count.read_text() + '+' if count.exists() else '')\n"
    )
    flaky += "    assert count.read_text() == '+'\n\ndef test_never():\n    assert False\n"
    suite, source = _package(tmp_path, "put", tests=flaky)
    python = Path(sys.executable)
    once = run_settled(python, suite, source)
    assert {name.rpartition("::")[2] for name in once.red} == {"test_second_time", "test_never"}
    (source / "count").unlink()
    settled = run_settled(python, dataclasses.replace(suite, tries=3), source)
    assert {name.rpartition("::")[2] for name in settled.red} == {"test_never"}
    assert settled.summary == "3 passed, 1 failed, 1 skipped, 1 xfailed"


def test_a_test_that_is_gone_or_new_is_a_difference(tmp_path: Path) -> None:
    def report(*names: str) -> Path:
        cases = "".join(f'<testcase classname="t" name="{name}"/>' for name in names)
        file = tmp_path / "report.xml"
        file.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
        return file

    before = read_report(report("a", "b", "b"))
    after = read_report(report("a", "b", "c"))
    assert differences(before, before) == []
    assert differences(before, after) == [
        "t::b: passed+passed before, passed after",
        "t::c: not run before, passed after",
    ]


@pytest.mark.parametrize(
    "body",
    [
        "    def m(self):\n        return 1\n",
        "    def m(self): return 1\n",
        '    def m(self):\n        """Doc."""\n        return 1\n',
        '    def m(self):\n        """Only this."""\n',
        "    def m(self):\n        @staticmethod\n        def inner(): pass\n        return inner\n",
        "    async def m(self):\n        return 1\n",
        "    def m(self): 'ä'; return 1\n",
    ],
)
def test_sabotage_is_the_first_act_of_the_method_and_touches_no_other(body: str) -> None:
    other = "    def n(self):\n        return 2\n"
    source = f"class H:\n{other}{body}"
    space: dict[str, type] = {}
    exec(broken(source, "H", "m"), space)
    handler = space["H"]()  # type: ignore[misc]
    assert handler.n() == 2
    if "Doc." in body:
        assert handler.m.__doc__ == "Doc.", "a test that looks at the docstring must not notice"
    with pytest.raises(AssertionError, match="broken on purpose"):
        result = handler.m()
        result.send(None)


@pytest.mark.parametrize("name", ["x", "__init__", "for_worker"])
def test_only_what_moved_can_be_broken(name: str) -> None:
    own = "    def __init__(self): pass\n    @classmethod\n    def for_worker(cls, w): pass\n"
    source = f"class P:\n    def x(self): pass\nclass H:\n{own}    def m(self): pass\n"
    assert moved_methods(source, "H") == ("m",)
    with pytest.raises(LookupError, match=f"H has no method {name}"):
        broken(source, "H", name)


def test_an_unknown_entry_of_a_suite_is_named() -> None:
    with pytest.raises(ValueError, match=r"\[click\] has unknown entries: test"):
        load_suites('[click]\nmodule = "click"\ntest = ["tests"]\n')


def test_a_package_that_cannot_be_downloaded_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wild.corpus.OUT", tmp_path)
    monkeypatch.setattr("wild.fetch.OUT", tmp_path)
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        FetchError, match=r"cannot download bpytop-.*\(is PyPI within reach\?\): \S.*"
    ) as caught:
        fetch("bpytop")
    assert "\n" not in str(caught.value)
    with pytest.raises(FetchError, match=r"nonsense is not in wild/corpus\.toml"):
        fetch("nonsense")


def test_the_table_has_a_row_for_each_package_and_says_when_tests_differ() -> None:
    row = {"package": "p", "version": "1", "class_name": "C", "methods": ["a", "b"], "before": "2 passed"}
    row |= {"after": "2 passed", "changed": ["t"], "noticed": {"a": "t"}, "unnoticed": ["b"]}
    last = table([row]).splitlines()[-1]
    assert last == "| p 1 | `C` | 2 | 2 passed | 2 passed, not the same tests | 1 of 2: `a` |"
