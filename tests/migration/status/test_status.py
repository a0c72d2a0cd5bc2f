"""`migrate status` on real repositories."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from reports import Check, Fact, Report, Status, Verdict, to_json
from tests.migration.test_cli import migrate

from .conftest import Life
from .lives import CASE, RECIPE, commit, git, of_case, phase, start, status

WORKER = "app/worker.py"


def test_a_tree_before_the_port_has_no_handler(life: Life):
    found = of_case(status(life("start")))
    assert (found["phase"], found["proof"], found["flags"]) == ("absent", None, [])
    assert [entry["reached"] for entry in found["phases"].values()] == [False, False, False]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("port", {"port": 20, "gate": None, "cleanup": None}),
        ("gate", {"port": 20, "gate": 9, "cleanup": None}),
        ("cleanup", {"port": 20, "gate": 9, "cleanup": 3}),
    ],
)
def test_each_phase_has_the_commit_that_brought_it_and_its_age(
    life: Life, stage: str, expected: dict[str, int | None]
):
    root = life(stage)
    phases = of_case(status(root))["phases"]
    assert {name: entry["age_days"] for name, entry in phases.items()} == expected
    subjects = {
        name: entry["commit"] and git(root, "log", "-1", "--format=%s", entry["commit"]).strip()
        for name, entry in phases.items()
    }
    assert subjects == {name: name if days else None for name, days in expected.items()}


@pytest.mark.parametrize(
    ("stage", "phase_name"), [("port", "port"), ("gate", "gate"), ("cleanup", "cleanup")]
)
def test_the_proof_file_that_says_so_holds(life: Life, stage: str, phase_name: str):
    proof = of_case(status(life(stage)))["proof"]
    assert proof == {"path": ".migrate/handles.proof.json", "phase": phase_name, "holds": True, "reasons": []}


def test_a_proof_that_an_edit_broke_is_shown_as_broken_with_the_reason(life: Life):
    root = life("gate")
    file = root / "app/parts/cache.py"
    file.write_text(file.read_text() + "\nEXTRA = 1\n")
    proof = of_case(status(root))["proof"]
    assert proof["holds"] is False
    assert "app/parts/cache.py was edited after the proof" in proof["reasons"]
    shown = migrate("status", RECIPE, "--repo", root)
    assert shown.returncode == 0
    assert "proof .migrate/handles.proof.json (gate) broken" in shown.stdout


def test_a_tree_without_its_proof_file_says_that_nothing_is_shown(life: Life):
    root = life("port")
    (root / ".migrate/handles.proof.json").unlink()
    assert of_case(status(root))["proof"] is None
    assert "no proof file" in migrate("status", RECIPE, "--repo", root).stdout


def test_a_proof_file_that_is_none_is_said_and_the_rest_is_shown(life: Life):
    root = life("port")
    (root / ".migrate/handles.proof.json").write_text("{}")
    found = of_case(status(root))
    assert found["phase"] == "ported"
    assert found["proof"]["holds"] is None
    assert found["proof"]["reasons"][0].startswith("MG110")


def test_a_proof_of_another_recipe_of_that_name_does_not_hold_for_this_one(life: Life, tmp_path: Path):
    other = tmp_path / "handles.toml"
    other.write_text(RECIPE.read_text().replace("app/parts/cache.py", "app/parts/other.py"))
    done = migrate("status", other, "--repo", life("port"), "--json")
    found = of_case(json.loads(done.stdout))
    assert (found["phase"], found["proof"]["holds"]) == ("absent", False)
    assert found["proof"]["reasons"] == ["it is of the phase port, and the tree is handler absent"]


def test_gates_of_the_past_are_not_known_without_git(life: Life):
    root = life("cleanup")
    assert of_case(status(root))["phases"]["gate"]["reached"] is True
    shutil.rmtree(root / ".git")
    assert of_case(status(root))["phases"]["gate"]["reached"] is None


def test_a_phase_that_is_not_committed_has_no_commit(life: Life):
    root = life("port")
    phase(root, "gate")
    found = of_case(status(root))
    assert found["phase"] == "gated"
    assert found["phases"]["port"]["committed"] is True
    assert found["phases"]["gate"] == {
        "reached": True,
        "committed": False,
        "commit": None,
        "date": None,
        "age_days": None,
    }
    assert "not committed" in migrate("status", RECIPE, "--repo", root).stdout


def test_a_phase_that_was_taken_back_and_came_again_has_its_second_commit(life: Life):
    root = life("gate")
    git(root, "revert", "--no-edit", "HEAD", days_ago=6.5)
    phase(root, "gate")
    commit(root, "gate again", 2.5)
    assert of_case(status(root))["phases"]["gate"]["age_days"] == 2


def test_a_one_step_cut_never_had_gates(tmp_path: Path):
    root = start(tmp_path / "tree")
    assert migrate("port", RECIPE, "--cut", "--repo", root).returncode == 0
    commit(root, "cut", 4.5)
    found = of_case(status(root))
    assert (found["phase"], found["note"]) == ("cleaned", "in one step (--cut)")
    assert found["phases"]["gate"]["reached"] is False
    assert found["phases"]["cleanup"]["age_days"] == found["phases"]["port"]["age_days"] == 4


def test_a_part_of_a_port_says_how_many_methods_it_has(tmp_path: Path):
    root = start(tmp_path / "tree")
    part = tmp_path / "handles.toml"
    part.write_text(RECIPE.read_text() + "\n[port]\nbudget = 65\n")
    assert migrate("port", part, "--repo", root).returncode == 0
    found = of_case(status(root))
    assert found["phase"] == "ported"
    assert 0 < found["methods"]["done"] < found["methods"]["of"]
    assert found["words"].startswith("ported in part")


def test_open_gate_flags_are_listed_with_their_age(life: Life):
    flags = of_case(status(life("gate")))["flags"]
    assert [(flag["name"], flag["age_days"]) for flag in flags] == [
        ("HANDLES_NATIVE", 9),
        ("HANDLES_COMPARE", 9),
    ]


def test_a_cleaned_slice_has_no_open_flags(life: Life):
    assert of_case(status(life("cleanup")))["flags"] == []


def test_lines_of_the_section_shrink_to_what_the_cleanup_leaves(stages: dict[str, Path]):
    left = {name: of_case(status(root))["lines_left"] for name, root in stages.items()}
    assert left["port"] == left["start"]
    assert left["cleanup"] < left["start"] < left["gate"]


def test_without_git_it_says_what_it_cannot_tell(life: Life):
    root = life("gate")
    shutil.rmtree(root / ".git")
    value = status(root)
    found = of_case(value)
    assert value["git"]["known"] is False
    assert "not a git repository" in value["git"]["why"]
    assert (found["phase"], found["proof"]["holds"]) == ("gated", True)
    assert found["phases"]["port"] == {
        "reached": True,
        "committed": None,
        "commit": None,
        "date": None,
        "age_days": None,
    }
    shown = migrate("status", RECIPE, "--repo", root)
    assert shown.returncode == 0
    assert "which commit brought what, and when, is not known" in shown.stdout


def test_a_repository_without_a_commit_is_no_error(tmp_path: Path):
    root = tmp_path / "tree"
    shutil.copytree(CASE / "before", root)
    git(root, "init", "-q")
    assert "nothing is committed yet" in status(root)["git"]["why"]


def test_a_folder_within_the_repository_can_be_named(life: Life, tmp_path: Path):
    root = life("gate")
    outer = tmp_path / "outer"
    shutil.copytree(root, outer / "inner", ignore=shutil.ignore_patterns(".git"))
    git(outer, "init", "-q")
    commit(outer, "all", 5.5)
    assert of_case(status(outer / "inner"))["phases"]["gate"]["age_days"] == 5


def test_where_no_slice_can_be_looked_at_it_fails(tmp_path: Path):
    done = migrate("status", "--repo", tmp_path)
    assert done.returncode == 3
    assert "no slice could be looked at" in done.stderr
    assert "cannot tell" in done.stdout


def test_a_named_slice_that_cannot_be_looked_at_fails_though_others_can(life: Life, tmp_path: Path):
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("schema = 1\n")
    done = migrate("status", RECIPE, wrong, "--repo", life("port"))
    assert done.returncode == 3
    assert "MG401" in done.stdout
    assert "ported" in done.stdout


def test_a_class_that_does_not_parse_is_not_told_from_its_proof(life: Life):
    root = life("port")
    (root / WORKER).write_text("class Worker(:\n")
    found = of_case(status(root, code=3))
    assert (found["seen"], found["phase"]) == (False, None)
    assert WORKER in found["why"]


def test_a_slice_is_known_by_its_proof_file_without_its_recipe(life: Life):
    done = migrate("status", "--repo", life("gate"), "--json")
    assert done.returncode == 0
    assert of_case(json.loads(done.stdout))["phase"] == "gated"


def shadow_report(worker: Path, *, compared: int = 120, of: str | None = None) -> str:
    digest = of or hashlib.sha256(worker.read_bytes()).hexdigest()
    passed = Verdict(Status.PASS, 0, "120 steps compared, all equal")
    facts = (Fact("candidate worker", f"{worker} (sha256 {digest[:12]})"),)
    checks = (Check("logits", Status.PASS, compared), Check("kv", Status.PASS, 0))
    return to_json(Report("shadow compare", passed, facts=facts, checks=checks))


def test_a_shadow_report_in_out_is_evidence_with_verdict_and_counts(life: Life):
    root = life("gate")
    (root / "out").mkdir()
    (root / "out/compare.json").write_text(shadow_report(root / WORKER))
    (run,) = of_case(status(root))["shadow"]
    assert (run["path"], run["verdict"]) == ("out/compare.json", "pass")
    assert (run["compared"], run["compared_total"]) == ({"logits": 120, "kv": 0}, 120)
    assert run["of_this_file"] is True


def test_a_report_of_another_version_of_the_file_is_said_to_be_one(life: Life):
    root = life("gate")
    (root / "compare.json").write_text(shadow_report(root / WORKER, of="0" * 64))
    (run,) = of_case(status(root))["shadow"]
    assert run["of_this_file"] is False
    assert "of another version of the file" in migrate("status", RECIPE, "--repo", root).stdout


def test_a_report_that_compared_nothing_is_no_pass(life: Life):
    root = life("gate")
    (root / "compare.json").write_text(shadow_report(root / WORKER, compared=0))
    (run,) = of_case(status(root))["shadow"]
    assert (run["verdict"], run["compared_total"]) == ("short", 0)


def gate_line(compared: int, verdict: int = 0) -> str:
    methods = {"get": {"calls": 9, "compared": compared, "diverged": 0}}
    value = {
        "record": "summary",
        "schema": 1,
        "gate": "HANDLES",
        "verdict": verdict,
        "line": "said",
        "methods": methods,
    }
    return json.dumps(value) + "\n"


def test_the_last_summary_of_a_gate_in_compare_mode_is_evidence(life: Life):
    root = life("gate")
    (root / "out").mkdir()
    (root / "out/gate.jsonl").write_text(gate_line(3, 1) + gate_line(9) + '{"record": "divergence", "ha')
    (run,) = of_case(status(root))["shadow"]
    assert (run["gate"], run["verdict"], run["compared_total"]) == ("HANDLES", "equal", 9)


def test_a_gate_that_compared_nothing_is_short_of_coverage(life: Life):
    root = life("gate")
    (root / "gate.jsonl").write_text(gate_line(0))
    assert of_case(status(root))["shadow"][0]["verdict"] == "coverage short"


def test_a_slice_without_a_shadow_run_says_that_nothing_was_compared(life: Life):
    assert "no shadow run: nothing was compared" in migrate("status", RECIPE, "--repo", life("gate")).stdout


def test_json_that_is_no_report_is_passed_over(life: Life):
    root = life("gate")
    (root / "other.json").write_text('{"schema": "report/1", "report": 5}')
    (root / "more.jsonl").write_bytes(b'{"record" \xff')
    assert of_case(status(root))["shadow"] == []


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path):
    done = migrate("status", "--repo", tmp_path / "none")
    assert done.returncode == 3
    assert "MG303" in done.stderr


def test_nothing_is_written(life: Life):
    root = life("gate")
    before = git(root, "status", "--porcelain")
    status(root)
    assert git(root, "status", "--porcelain") == before
