"""The test of the harness, tested: what the registry refuses, and what the trial says of good and bad mutants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reports import from_json
from shadow.cli import main
from shadow.diff import Mismatch, Nature
from shadow.mutants import Fault, MutantError, Where, load, mutant
from shadow.mutants.detect import Alarms, Alone
from shadow.mutants.detectors import detectors, idle_invariants
from shadow.mutants.listing import as_markdown
from shadow.mutants.registry import _REGISTRY, Mutant
from shadow.mutants.report import build_report
from shadow.mutants.run import collect, try_all
from shadow.mutants.trial import MEASURED, Trial, Verdict, judge, misplaced
from shadow.mutants.workload import WORKLOADS
from shadow.observation import Kind, Point
from shadow.pairing import PAIRINGS

ROOT = Path(__file__).parents[2]
HEAD = """
from contextlib import contextmanager
from shadow.mutants import Fault, Where, mutant
from shadow.mutants.patch import around, module, sequence
from shadow.observation import Kind
"""
TOY = '''
@mutant("{name}", Fault.STRUCTURAL, Where(Kind.SEQUENCE, "text", step={step}, sequence="b"))
@contextmanager
def planter(plant):
    """A toy."""
    def update(original, batch, tokens):
        original(batch, tokens)
        {body}
    with around(plant.worker, "{method}", update):
        yield
'''
STRIKE = 'if plant.step() == 4: sequence(plant, "b").text = "?"; plant.fired()'


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "mine.py"
    for name in [name for name, made in _REGISTRY.items() if made.source == str(tmp_path / "mine.py")]:
        del _REGISTRY[name]


def toys(file: Path, **bodies: str) -> str:
    text = HEAD
    for name, body in bodies.items():
        step, method = 4, "_decode_update_sequences"
        if name == "elsewhere":
            step = 5
        if name == "unplantable":
            method = "_no_such_method"
        text += TOY.format(name=name, step=step, body=body, method=method)
    file.write_text(text)
    return str(file)


# the registry


def test_a_mutant_needs_a_name_of_its_own_a_report_and_a_declaration() -> None:
    def planter(plant: object) -> object:
        """A bug."""

    def silent(plant: object) -> object: ...

    taken = next(iter(load()))
    with pytest.raises(ValueError, match="registered twice"):
        mutant(taken, Fault.NUMERIC, Where(Kind.KV))(planter)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs a docstring"):
        mutant("no-docstring", Fault.NUMERIC, Where(Kind.KV))(silent)  # type: ignore[arg-type]
    for kind, where in ((Fault.CONTROL, Where(Kind.KV)), (Fault.NUMERIC, Where(None))):
        with pytest.raises(ValueError, match="declares where it is found, a control does not"):
            mutant("wrong", kind, where)(planter)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def broken(:\n", "line 1: SyntaxError"),
        ("x = 1\n", "registers no mutant"),
        ("\nimport nothing_of_the_sort\n", "line 2: ModuleNotFoundError"),
        (None, "there is no file of mutants"),
    ],
)
def test_a_bad_file_is_one_line_that_says_what_is_wrong(
    text: str | None, said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        file.write_text(text)
    assert main(["mutants", "--mutants", str(file), "--no-catalogue"]) == 64
    error = capsys.readouterr().err
    assert said in error and str(file) in error and len(error.splitlines()) == 1


def test_a_file_may_be_loaded_again_and_a_name_that_is_none_is_refused(file: Path) -> None:
    source = toys(file, mine="pass")
    assert [m.name for m in collect([source], catalogue=False)] == ["mine"]
    assert [m.name for m in collect([source], catalogue=False)] == ["mine"]
    with pytest.raises(MutantError, match="no mutant theirs"):
        collect([source], ["theirs"], catalogue=False)


# the trial


def test_toy_mutants_get_the_verdict_that_they_deserve(file: Path) -> None:
    source = toys(
        file,
        found=STRIKE,
        elsewhere=STRIKE,
        survivor="if plant.step() == 4: plant.fired()",
        idle="pass",
        slow='plant.step() == 1 and plant.fired(); plant.step() == 4 and setattr(sequence(plant, "b"), "text", "?")',
        early='plant.step() == 9 and plant.fired(); plant.step() == 4 and setattr(sequence(plant, "b"), "text", "?")',
        unplantable="pass",
    )
    trials = {t.mutant.name: t for t in try_all(collect([source], catalogue=False), ROOT)}
    assert {name: trial.verdict for name, trial in trials.items()} == {
        "found": Verdict.KILLED,
        "elsewhere": Verdict.MISLOCATED,
        "survivor": Verdict.SURVIVED,
        "idle": Verdict.IDLE,
        "slow": Verdict.LATE,
        "early": Verdict.EARLY,
        "unplantable": Verdict.ERROR,
    }
    assert "declared step 5, found 4" in trials["elsewhere"].detail
    assert "has no method _no_such_method" in trials["unplantable"].detail
    assert trials["found"].latency == 0 and next(iter(trials["found"].alarms)) == "sequence"
    report = build_report(list(trials.values()), whole=False, seconds=1.0)
    assert report.verdict.exit_code == 2 and len(report.findings) == 6


def test_the_example_file_is_caught_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "report.json"
    example = str(ROOT / "examples" / "my_mutants.py")
    code = main(
        ["mutants", "--tree", str(ROOT), "--mutants", example, "--no-catalogue", "--json", str(written)]
    )
    assert code == 0, capsys.readouterr()
    headline = from_json(written.read_text()).verdict.headline
    assert headline == "2 of 2 mutants found as declared and in time"


def test_a_fast_part_of_the_catalogue_is_found_as_declared() -> None:
    chosen = [
        "padding-slot-wraps-to-last-page",
        "page-freed-in-use",
        "append-skipped",
        "hold-picks-the-longest",
    ]
    trials = try_all(collect([], [*chosen, "free-list-served-from-the-front"]), ROOT)
    assert [t.verdict for t in trials if t.mutant.name in chosen] == [Verdict.KILLED] * 4
    assert [t.verdict for t in trials if t.mutant.name not in chosen] == [Verdict.SILENT]


def _mismatch(step: int = 4, layer: int | None = None, field: str = "kv_len") -> Mismatch:
    return Mismatch(Kind.PAGE_TABLE, Nature.VALUE, Point.DECODE, step, "b", layer, field, "1", "2")


def test_every_coordinate_of_the_declaration_counts() -> None:
    where = Where(Kind.PAGE_TABLE, "kv_*", step=4, sequence="b")
    assert misplaced(where, _mismatch()) is None
    assert "step 4, found 5" in str(misplaced(where, _mismatch(step=5)))
    assert "layer None, found 0" in str(misplaced(where, _mismatch(layer=0)))
    assert "field kv_*" in str(misplaced(where, _mismatch(field="owned")))
    assert "sequence a" in str(misplaced(Where(Kind.PAGE_TABLE, sequence="a"), _mismatch()))
    assert "kind logits" in str(misplaced(Where(Kind.LOGITS), _mismatch()))


def test_a_control_is_silent_or_a_false_alarm() -> None:
    control = Mutant("calm", Fault.CONTROL, Where(None), lambda plant: None, "x")  # type: ignore[arg-type,return-value]
    alarms = Alarms(fired=0)
    assert judge(control, alarms, Alone({}, frozenset())).verdict is Verdict.SILENT
    assert judge(control, alarms, Alone({"poison": 3}, frozenset())).verdict is Verdict.FALSE_ALARM
    alarms.find(_mismatch())
    assert judge(control, alarms, Alone({}, frozenset())).verdict is Verdict.FALSE_ALARM


def test_invariants_that_kill_none_alone_fail_the_whole_run_and_redundancy_is_reported() -> None:
    fault = Mutant("m", Fault.STRUCTURAL, Where(Kind.KV), lambda plant: None, "x")  # type: ignore[arg-type,return-value]
    checked = frozenset(("poison", "coverage"))
    trial = Trial(
        fault,
        Verdict.KILLED,
        4,
        _mismatch(),
        {"kv": 4, "invariant:poison": 4, "tokens": 6},
        {"poison": 4},
        checked,
    )
    assert idle_invariants([trial]) == ["coverage"]
    worth = {detector.name: detector for detector in detectors([trial])}
    assert worth["kv"].first == worth["kv"].kills == 1 and worth["tokens"].redundant
    assert build_report([trial], whole=True, seconds=0).verdict.exit_code == 1
    assert build_report([trial], whole=False, seconds=0).verdict.exit_code == 0
    assert build_report([], whole=False, seconds=0).verdict.exit_code == 3


# the catalogue


def test_the_catalogue_is_large_names_what_exists_and_reports_public_bugs() -> None:
    found = load()
    assert sum(m.kind is not Fault.CONTROL for m in found.values()) >= 40
    assert sum(m.kind is Fault.CONTROL for m in found.values()) >= 4
    for made in found.values():
        assert made.workload in WORKLOADS and made.pairing in (*PAIRINGS, *MEASURED), made.name
        assert re.search(r"#\d+|B-\d\d|m19|Control|flashinfer", made.report), made.report


def test_the_table_in_the_docs_is_up_to_date() -> None:
    text = (ROOT / "docs" / "mutants.md").read_text()
    table = text.split("<!-- catalogue -->\n", 1)[1].split("<!-- /catalogue -->", 1)[0]
    fresh = as_markdown(list(load().values()))
    assert table == fresh, "run `shadow mutants --list --markdown` and put it between the catalogue marks"


def test_listing_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", "--list", "--only", "barrier-left-out"]) == 0
    out = capsys.readouterr().out
    assert "B-39" in out and "declared: effects, step 8" in out
    assert main(["mutants", "--no-catalogue"]) == 64
