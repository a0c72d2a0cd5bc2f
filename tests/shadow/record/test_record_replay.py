"""Planners on records: what fits is equal, what does not is named; planners of one's own; what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports import Report, from_json
from shadow.cli import main
from shadow.observation import Event, Key, Kind, Pages, Point
from shadow.plain import Record as PlainRecord
from shadow.record.snapshot import DECISIONS, input_values, read_snapshot
from shadow.record.values import tree_bytes
from tests.shadow.record.streams import written

PAGE = 4


def step(number: int, lengths: dict[str, int], **changes: Any) -> Event:
    """A decode step of sequences that own one page more than they need; `changes` by `name_field`."""
    values: dict[Key, Any] = {}
    for place, (name, length) in enumerate(lengths.items()):
        pages = tuple(100 * place + page for page in range(length // PAGE + 2))
        shown = {
            "kv_len": length,
            "primary.owned_pages": Pages("primary", pages),
            "primary.live_pages": Pages("primary", pages[: -(-length // PAGE)]),
        }
        for field, value in shown.items():
            changed = changes.get(f"{name}_{field.removeprefix('primary.')}", value)
            values[Key(Kind.PAGE_TABLE, name, field)] = changed
        values[Key(Kind.SEQUENCE, name, "current_context_length")] = length
    return Event(Point.DECODE, number, values)


def boundary(number: int, completed: tuple[str, ...], gone: tuple[str, ...], names: str = "abc") -> Event:
    """Sequences of which `completed` have; the decision says `gone`."""
    arguments = {
        "names": list(names),
        "state": {name: {"completed": name in completed, "pages": 3} for name in names},
        "free": {0: 7},
    }
    decisions = PlainRecord("Decisions", (("gone", gone), ("page_count", len(gone) * 3)))
    return Event(Point.DECISIONS, number, {**input_values(arguments, [], {}), DECISIONS: decisions})


def reported(tmp_path: Path, *arguments: object) -> Report:
    path = tmp_path / "report.json"
    code = main([*map(str, arguments), "--json", str(path)])
    report = from_json(path.read_text())
    assert report.verdict.exit_code == code
    return report


def where(report: Report) -> tuple[str, ...]:
    return tuple(fact.value for fact in report.findings[0].where)


def recorded(path: Path, events: list[Event], page_size: Any = PAGE) -> Path:
    return written(path, events, settings=tree_bytes({"page_size": page_size}))


STEPS = [step(i, {"a": 5 + i, "b": 1 + i}) for i in range(10)]


def test_steps_that_read_the_pages_they_need_are_equal(tmp_path: Path) -> None:
    report = reported(tmp_path, "replay", recorded(tmp_path / "run", STEPS))
    assert report.verdict.headline == "Equal: 20 plans of 10 events"
    assert [(row[0], row[2]) for row in report.tables[0].rows] == [("step", "20")]


@pytest.mark.parametrize(
    ("changes", "field", "expected", "actual"),
    [
        ({"b_kv_len": 9}, "kv_len", "9", "8"),
        ({"b_live_pages": Pages("primary", (100,))}, "primary.live_pages[1]", "(absent)", "101"),
        ({"b_live_pages": Pages("primary", (100, 101, 102))}, "primary.live_pages[2]", "102", "(absent)"),
        ({"b_live_pages": Pages("primary", (100, 55))}, "primary.live_pages[1]", "55", "101"),
        ({"b_owned_pages": Pages("primary", (100,))}, "primary.live_pages[1]", "101", "(absent)"),
    ],
)
def test_a_step_that_reads_other_pages_is_named(
    tmp_path: Path, changes: dict[str, Any], field: str, expected: str, actual: str
) -> None:
    events = [*STEPS[:7], step(7, {"a": 12, "b": 8}, **changes), *STEPS[8:]]
    report = reported(tmp_path, "replay", recorded(tmp_path / "run", events))
    assert report.verdict.exit_code == 1
    assert where(report) == ("7", "b", "-", field)
    finding = report.findings[0]
    assert (finding.expected, finding.actual) == (expected, actual), "recorded, replayed"


PLANNERS = """
def decide(snapshot):
    given = snapshot.arguments
    assert given["names"] == ["a", "b", "c"] and given["free"] == {0: 7}
    gone = tuple(name for name, row in given["state"].items() if row["completed"])
    return {"gone": gone, "page_count": sum(given["state"][name]["pages"] for name in gone)}

def short(inputs):
    from shadow.record.planners import StepPlan
    return StepPlan(inputs.context, inputs.context // inputs.page_size)

BOUNDARY_PLANNERS = {"mine": decide}
"""


def test_planners_of_ones_own_are_replayed_beside_the_others(tmp_path: Path) -> None:
    events = [*STEPS[:3], boundary(3, ("b",), ("b",)), *STEPS[3:], boundary(10, (), ("c",))]
    (tmp_path / "mine.py").write_text(PLANNERS)
    path = recorded(tmp_path / "run", events)
    report = reported(tmp_path, "replay", path, "--planners", tmp_path / "mine.py")
    assert report.verdict.exit_code == 1 and where(report) == ("10", "c", "-", "decisions.gone")
    assert (report.findings[0].expected, report.findings[0].actual) == ("named", "(absent)")
    assert report.findings[1].where[3].value == "decisions.page_count"
    assert {row[0]: row[2] for row in report.tables[0].rows} == {"step": "20", "mine": "6"}


def test_a_step_planner_of_ones_own_is_compared_with_the_record(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLANNERS + 'STEP_PLANNERS = {"short": short}\n')
    path = recorded(tmp_path / "run", [*STEPS, boundary(10, ("c",), ("c",))])
    report = reported(tmp_path, "replay", path, "--planners", tmp_path / "mine.py")
    assert {row[0]: row[2] for row in report.tables[0].rows} == {"step": "20", "mine": "3", "short": "20"}
    # 5 tokens need two pages of 4, the planner says one; 8 tokens need two, and there it is right
    assert where(report) == ("0", "a", "-", "primary.live_pages[1]")
    assert {f.where[0].value for f in report.findings if f.where[1].value == "a"} == set("01245689")


def test_an_order_is_told_from_a_choice_and_an_exception_is_a_difference(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run", [*STEPS, boundary(10, ("a", "b"), ("b", "a"))])
    (tmp_path / "mine.py").write_text(PLANNERS)
    report = reported(tmp_path, "replay", path, "--planners", tmp_path / "mine.py")
    assert where(report) == ("10", "b", "-", "decisions.gone[0]") and "order" in report.findings[0].message
    (tmp_path / "mine.py").write_text("BOUNDARY_PLANNERS = {'broken': lambda snapshot: 1 // 0}")
    report = reported(tmp_path, "replay", path, "--planners", tmp_path / "mine.py")
    assert report.verdict.exit_code == 1
    assert report.findings[0].actual == "raised ZeroDivisionError: integer division or modulo by zero"


def test_a_planner_that_is_asked_for_and_never_called_is_short_coverage(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLANNERS)
    path = recorded(tmp_path / "run", STEPS)
    report = reported(tmp_path, "replay", path, "--planners", tmp_path / "mine.py")
    assert report.verdict.exit_code == 3 and "boundary" in report.verdict.headline
    assert reported(tmp_path, "replay", recorded(tmp_path / "none", [])).verdict.exit_code == 3


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 1", "names no planners"),
        ("1 // 0", "ZeroDivisionError"),
        ("STEP_PLANNERS = {'a': 1}", "no planners"),
    ],
)
def test_a_file_without_planners_is_refused(tmp_path: Path, source: str, says: str) -> None:
    (tmp_path / "mine.py").write_text(source)
    path = recorded(tmp_path / "run", STEPS)
    report = reported(tmp_path, "replay", path, "--planners", tmp_path / "mine.py")
    assert report.verdict.exit_code == 2 and says in report.verdict.headline


def test_a_record_that_does_not_say_its_page_size_is_refused(tmp_path: Path) -> None:
    report = reported(tmp_path, "replay", recorded(tmp_path / "run", STEPS, page_size=None))
    assert report.verdict.exit_code == 2 and "page size" in report.verdict.headline


WORKER = """
class BatchGenWorker:
    def _compute_boundary_decisions(self, {parameters}):
        {body}
"""


def tree(root: Path, parameters: str = "names, state, free", body: str = "return None") -> Path:
    package = root / "batchgen"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "batchgen_worker.py").write_text(WORKER.format(parameters=parameters, body=body))
    return root


def test_a_tree_whose_planner_needs_more_than_a_record_holds_is_refused_in_one_line(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run", [*STEPS, boundary(10, (), ())])
    for name, how, says in [
        (
            "reads",
            {"body": "return self.core_engine"},
            "reads the worker's 'core_engine', which no record has",
        ),
        ("other", {"parameters": "sequences"}, "the recorded inputs do not fit it"),
    ]:
        report = reported(tmp_path, "replay", path, "--tree", tree(tmp_path / name, **how))
        assert report.verdict.exit_code == 2 and says in report.verdict.headline
        assert "\n" not in report.verdict.headline
    broken = tree(tmp_path / "broken")
    (broken / "batchgen/batchgen_worker.py").write_text("import no_such_module")
    report = reported(tmp_path, "replay", path, "--tree", broken)
    assert report.verdict.exit_code == 2 and "cannot be imported" in report.verdict.headline


def test_the_planner_of_a_tree_sees_settings_and_fields_of_sequences(tmp_path: Path) -> None:
    body = "assert (self.args.page_size, self.world_size) == (4, 1); return {'gone': (), 'page_count': 0}"
    path = recorded(tmp_path / "run", [*STEPS, boundary(10, (), ())])
    report = reported(tmp_path, "replay", path, "--tree", tree(tmp_path / "tree", body=body))
    assert report.verdict.exit_code == 0, report


def test_inputs_come_back_as_they_were_given() -> None:
    class Entry:
        def __init__(self, uuid: str, **fields: Any) -> None:
            self.uuid, self.priority, self.tensor = uuid, 3, object()

    arguments = {
        "order": ["u2", "u1"],
        "state": {"u2": {"n": 1, "done": True}, "u1": {"n": 1 << 70, "done": None}},
        "none": {},
        "free": {1: 5, 0: 7},
        "ragged": {"u1": {"a": 1}, "u2": {"b": 2}},
    }
    values = input_values(arguments, [Entry("u1"), Entry("u2")], {"u1": "one", "u2": "two"})
    snapshot = read_snapshot({key.field: value for key, value in values.items()}, {})
    assert snapshot.arguments == {
        "order": ["two", "one"],
        "state": {"two": {"n": 1, "done": True}, "one": {"n": 1 << 70, "done": None}},
        "none": {},
        "free": {1: 5, 0: 7},
        "ragged": {"one": {"a": 1}, "two": {"b": 2}},
    }
    assert list(snapshot.arguments["free"]) == [1, 0], "in the order given"
    assert snapshot.get_sequence("one").priority == 3 and snapshot.get_sequence("two").uuid == "two"
    with pytest.raises(AttributeError, match="no field 'tensor'"):
        _ = snapshot.get_sequence("one").tensor
    with pytest.raises(KeyError):
        snapshot.get_sequence("u1")


def test_a_difference_in_the_inputs_names_the_sequence(tmp_path: Path) -> None:
    good = boundary(3, ("b",), ("b",))
    column = Key(Kind.BOUNDARY, None, "given.state.pages")
    assert good.values[column] == (3, 3, 3)
    other = replace(good, values={**good.values, column: (3, 4, 3)})
    paths = [recorded(tmp_path / name, [*STEPS, event]) for name, event in (("a", good), ("b", other))]
    report = reported(tmp_path, "diff", *paths)
    assert where(report) == ("3", "b", "-", "given.state.pages[1]")


@pytest.mark.parametrize("command", ["replay", "diff"])
def test_a_damaged_or_foreign_file_is_refused_by_every_command(tmp_path: Path, command: str) -> None:
    good = recorded(tmp_path / "good", STEPS)
    damaged, foreign = tmp_path / "damaged", tmp_path / "foreign"
    damaged.write_bytes(good.read_bytes()[:-40] + bytes(40))
    foreign.write_text(json.dumps({"record": 1}) * 20)
    for path in (damaged, foreign):
        arguments = [path] if command == "replay" else [good, path]
        report = reported(tmp_path, command, *arguments)
        assert report.verdict.exit_code == 2
        assert str(path) in report.verdict.headline and "\n" not in report.verdict.headline


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay"],
        ["replay", "no-such-file"],
        ["diff", "no-such-file", "other"],
        ["diff", __file__, __file__, "--bound", "-1"],
        ["diff", __file__, __file__, "--bound", "nan"],
        ["record", "-o", "out"],
        ["record", "--requests", __file__, "-o", "out", "--chunk", "0"],
    ],
)
def test_usage_errors_exit_with_64(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 64


def test_record_does_not_write_over_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("mine")
    report = reported(tmp_path, "record", "--requests", __file__, "-o", path)
    assert report.verdict.exit_code == 2 and "exists already" in report.verdict.headline
    assert path.read_text() == "mine"


def test_record_of_a_tree_that_fails_says_why(tmp_path: Path) -> None:
    report = reported(
        tmp_path, "record", "--tree", tree(tmp_path / "tree"), "--requests", __file__, "-o", tmp_path / "run"
    )
    assert report.verdict.exit_code == 2 and "outside of the tree" in report.verdict.headline
