"""`shadow gates` adds up what gates wrote in several runs; a method or branch that none compared is exit 3."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reports.json_report import from_json
from shadow.cli import main
from shadow.experiment import Gate, Pure
from tests.shadow.experiment_support import fresh_gates, untraced

__all__ = ["fresh_gates", "untraced"]
pytestmark = pytest.mark.usefixtures("untraced")

PREFIX = "GATES_TEST"


class Handler:
    @classmethod
    def for_worker(cls, worker: Any) -> Handler:
        return cls()

    def sign(self, n: int) -> int:
        return -1 if n < 0 else 1

    def double(self, n: int) -> int:
        return 2 * n


class Off(Handler):
    def double(self, n: int) -> int:
        return 2 * n + (n == 3)


class Worker:
    def _legacy_sign(self, n: int) -> int:
        return -1 if n < 0 else 1

    def _legacy_double(self, n: int) -> int:
        return 2 * n


def write(
    path: Path, calls: Sequence[tuple[str, int]], handler: type[Handler] = Handler, branches: str = "1"
) -> str:
    """The report of one run of a gate."""
    gate = Gate(PREFIX, handler, {"sign": Pure(), "double": Pure()})
    gate.reload({f"{PREFIX}_COMPARE": "1", f"{PREFIX}_BRANCHES": branches, f"{PREFIX}_REPORT": str(path)})
    for name, n in calls:
        gate.run(Worker(), name, n)
    gate.close()
    return str(path)


def counted(path: Path, *arguments: str) -> tuple[int, dict[str, tuple[str, ...]], list[str]]:
    """(exit code, row of each method, what was found)."""
    code = main(["gates", *arguments, "--json", str(path / "sum.json")])
    report = from_json((path / "sum.json").read_bytes())
    return code, {row[1]: row[2:] for row in report.tables[0].rows}, [f.message for f in report.findings]


def refused(path: Path, *arguments: str) -> str:
    """The line with which reports are refused."""
    assert main(["gates", *arguments, "--json", str(path / "sum.json")]) == 2
    return from_json((path / "sum.json").read_bytes()).verdict.headline


def test_what_one_run_lacks_another_may_have_compared(tmp_path: Path) -> None:
    one = write(tmp_path / "1.jsonl", [("sign", 4)])
    two = write(tmp_path / "2.jsonl", [("double", 1), ("sign", -4)])
    assert main(["gates", one]) == 3
    code, rows, found = counted(tmp_path, one, two, "--all-branches", PREFIX)
    assert (code, found) == (0, [])
    assert rows["sign"][:2] == ("2", "2") and rows["sign"][3] == "2 of 2"


def test_runs_appended_to_one_report_are_added_up_as_well(tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl"
    write(path, [("sign", 4)])
    assert counted(tmp_path, write(path, [("double", 1)]))[0] == 0


def test_a_method_that_no_run_called_is_short(tmp_path: Path) -> None:
    code, _, found = counted(tmp_path, write(tmp_path / "1.jsonl", [("sign", 4), ("sign", -4)]))
    assert code == 3 and found == ["double: was never called"]


def test_a_branch_that_no_compared_call_took_is_short_where_all_are_wanted(tmp_path: Path) -> None:
    report = write(tmp_path / "1.jsonl", [("sign", 4), ("double", 1)])
    assert main(["gates", report]) == 0
    code, _, found = counted(tmp_path, report, "--all-branches", PREFIX)
    assert code == 3 and len(found) == 1 and "sign: no compared call took test_shadow_gates.py:" in found[0]


def test_an_allowed_name_that_was_compared_is_said_to_be_superfluous(tmp_path: Path) -> None:
    report = write(tmp_path / "1.jsonl", [("sign", 4)])
    assert counted(tmp_path, report, "--allow", "double")[0] == 0
    code, _, found = counted(tmp_path, report, "--allow", "double", "--allow", "nothing")
    assert code == 3 and found == ["nothing: was to be allowed, but is compared everywhere"]


def test_a_divergence_of_any_run_is_the_verdict(tmp_path: Path) -> None:
    good = write(tmp_path / "1.jsonl", [("sign", 4), ("double", 1)])
    bad = write(tmp_path / "2.jsonl", [("double", 3)], Off)
    code, _, found = counted(tmp_path, good, bad)
    assert code == 1 and found == ["double: 1 of 2 compared calls diverged, 0 harness faults"]


def test_a_gate_that_must_be_there_and_is_not_is_short(tmp_path: Path) -> None:
    report = write(tmp_path / "1.jsonl", [("sign", 4), ("double", 1)])
    code, _, found = counted(tmp_path, report, "--require", "OTHER")
    assert code == 3 and found == ["OTHER: no report has a summary of this gate"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no summary of a gate"),
        ('{"record": "divergence"}\n', "has no summary of a gate"),
        ("hello\n", ":1: not a line of a gate's report"),
        ('{"record": "summary", "methods": 3}\n', ":1: not a line of a gate's report"),
    ],
)
def test_a_file_that_is_no_report_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "no.jsonl").write_text(text)
    assert said in refused(tmp_path, str(tmp_path / "no.jsonl"))


def test_reports_of_different_versions_of_a_method_are_not_added_up(tmp_path: Path) -> None:
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    record = json.loads(Path(write(one, [("sign", 4)])).read_text().splitlines()[-1])
    record["methods"]["sign"]["branches"] = 4
    two.write_text(json.dumps(record) + "\n")
    assert "sign has 2 branches in" in refused(tmp_path, str(one), str(two))


def test_branches_that_were_never_counted_are_short_where_all_are_wanted(tmp_path: Path) -> None:
    report = write(tmp_path / "1.jsonl", [("sign", 4), ("double", 1)], branches="0")
    code, _, found = counted(tmp_path, report, "--all-branches", PREFIX)
    assert code == 3 and found == [f"{PREFIX}: no branches were counted"]


def test_all_branches_may_be_wanted_of_one_method(tmp_path: Path) -> None:
    report = write(tmp_path / "1.jsonl", [("sign", 4), ("double", 1)])
    assert counted(tmp_path, report, "--all-branches", f"{PREFIX}:double")[0] == 0
    assert counted(tmp_path, report, "--all-branches", f"{PREFIX}:sign")[0] == 3
    code, _, found = counted(tmp_path, report, "--all-branches", f"{PREFIX}:signs")
    assert code == 3 and found == ["signs: no gated method has this name"]
