"""`migrate check` as a command: exit codes, all forms, git, and our own worker."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from migration.check.rules import RULES
from pipeline.copies import copy_before

from .support import HANDLER, HERE, TEXT, edited, tree

ROOT = Path(__file__).resolve().parents[3]
EVICT = "        self._state.held.update(uuids)\n"
#: A date that no clock of a test machine reaches.
LASTING = TEXT.replace("max_age_days = 60", "max_age_days = 100000")


def migrate(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "migration.cli", *arguments]
    code = "from migration.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def write(root: Path, files: dict[str, bytes], text: str = LASTING) -> None:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    (root / "slice.toml").write_text(text, encoding="utf-8")


def ported(root: Path, phase: str = "port") -> Path:
    from migration.proofs.record import dumps

    from .support import phases

    write(root, tree(phase))
    proof = phases()[phase][1]
    (root / ".migrate").mkdir()
    (root / proof.path).write_bytes(dumps(proof))
    return root


def broken(root: Path) -> Path:
    ported(root)
    files = edited(tree("port"), HANDLER, EVICT, EVICT + "        self._last = uuids\n")
    files = edited(files, HANDLER, "if self._config.layers > 1", "if self._state.model_config.layers > 1")
    write(root, files)
    return root


@pytest.mark.parametrize("phase", ["port", "gate", "cleanup"])
def test_a_clean_slice_is_exit_code_0_and_its_phase_is_said(phase: str, tmp_path: Path):
    done = migrate("check", "slice.toml", cwd=ported(tmp_path, phase))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"check kv, phase {phase} (found: ") and ": clean, " in done.stdout


def test_findings_are_exit_code_1_with_place_reason_and_patch(tmp_path: Path):
    done = migrate("check", "slice.toml", cwd=broken(tmp_path))
    assert done.returncode == 1
    assert f"{HANDLER}:" in done.stdout and "MG614" in done.stdout and "  why  " in done.stdout
    assert "+        if self._config.layers > 1:" in done.stdout and "\n  to do  " in done.stdout


def test_nothing_to_look_at_is_exit_code_2(tmp_path: Path):
    write(tmp_path, {path: data for path, data in tree("port").items() if path != HANDLER})
    done = migrate("check", "slice.toml", cwd=tmp_path)
    assert done.returncode == 2 and "MG604" in done.stdout + done.stderr
    done = migrate("check", "slice.toml", "--json", cwd=tmp_path)
    assert done.returncode == 2 and json.loads(done.stdout)["exit_code"] == 2


def test_a_wrong_checklist_is_exit_code_3(tmp_path: Path):
    ported(tmp_path)
    waiver = '\n[[checklist.waivers]]\nrule = "gate"\nplace = "x"\nreason = "y"\nexpires = 2999-01-01\n'
    (tmp_path / "slice.toml").write_text(LASTING + waiver)
    done = migrate("check", "slice.toml", cwd=tmp_path)
    assert done.returncode == 3 and "MG603" in done.stdout
    (tmp_path / "slice.toml").write_text(LASTING + waiver.replace('reason = "y"\n', ""))
    done = migrate("check", "slice.toml", cwd=tmp_path)
    assert done.returncode == 3 and "MG401" in done.stderr and "reason: missing" in done.stderr
    assert migrate("check", "slice.toml", "--phase", "later", cwd=tmp_path).returncode == 64


def test_sarif_has_rules_results_fixes_and_suppressions(tmp_path: Path):
    broken(tmp_path)
    waiver = (
        '\n[[checklist.waivers]]\nrule = "stateless"\nplace = "_evict"\nreason = "y"\nexpires = 2999-01-01\n'
    )
    (tmp_path / "slice.toml").write_text(LASTING + waiver)
    done = migrate("check", "slice.toml", "--format", "sarif", "-o", "out/check.sarif", cwd=tmp_path)
    assert done.returncode == 1 and "findings in" in done.stdout
    body = json.loads((tmp_path / "out" / "check.sarif").read_text())
    assert body["version"] == "2.1.0" and body["$schema"].endswith("sarif-2.1.0.json")
    (run,) = body["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert {rule.code for rule in RULES} <= {rule["id"] for rule in rules}
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] and result["message"]["text"]
        for location in result["locations"]:
            physical = location["physicalLocation"]
            assert (tmp_path / physical["artifactLocation"]["uri"]).is_file()
            assert physical.get("region", {"startLine": 1})["startLine"] >= 1
    failed = [result for result in run["results"] if result["kind"] == "fail"]
    (mended,) = [result for result in failed if result["ruleId"] == "MG611"]
    (change,) = mended["fixes"][0]["artifactChanges"]
    (replacement,) = change["replacements"]
    region = replacement["deletedRegion"]
    line = (tmp_path / HANDLER).read_text().splitlines()[region["startLine"] - 1]
    assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == "self._state.model_config.layers"
    assert replacement["insertedContent"]["text"] == "self._config.layers"
    (waived,) = [result for result in failed if result["ruleId"] == "MG614"]
    assert waived["suppressions"][0]["justification"] == "y (until 2999-01-01)"
    assert any(result["kind"] == "pass" for result in run["results"])


def test_markdown_is_the_checklist_of_the_seeds_ticked_with_links(tmp_path: Path):
    clean = migrate("check", "slice.toml", "--format", "markdown", cwd=ported(tmp_path / "a")).stdout
    titles = [
        line.removeprefix('title = "').rstrip('"') for line in TEXT.splitlines() if line.startswith("title")
    ]
    assert len(titles) > len(set(titles)) > 10
    for title in titles:
        assert clean.count(f"- [x] {title}\n") == 1, title
    assert "](app/worker/kv_manager.py#L" in clean and "- [ ]" not in clean
    found = migrate("check", "slice.toml", "--format", "markdown", cwd=broken(tmp_path / "b")).stdout
    assert "- [ ] _pending_kv_append_tensors lifecycle stays on worker (handler is stateless).\n" in found
    assert "- [ ] No self.model_config access — passed via frozen snapshot.\n" in found
    assert "- [x] DualKVCacheCoordinator import resolved.\n" in found and "(fix: " in found


def test_junit_has_a_case_for_each_line(tmp_path: Path):
    broken(tmp_path)
    (tmp_path / "slice.toml").write_text(
        LASTING.replace('first = "wait"\nthen = "free"', 'first = "w"\nthen = "f"')
    )
    done = migrate("check", "slice.toml", "--format", "junit", cwd=tmp_path)
    suite = ET.fromstring(done.stdout)
    cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
    own = next(case for name, case in cases.items() if name.startswith("MG611"))
    failure = own.find("failure")
    assert failure is not None and HANDLER in (failure.text or "")
    unseen = next(case for name, case in cases.items() if name.startswith("MG623"))
    assert unseen.find("error") is not None
    assert next(case for name, case in cases.items() if name.startswith("MG615")).find("failure") is None
    assert cases["verdict"].find("failure") is not None


def test_json_has_every_check_with_its_evidence(tmp_path: Path):
    body = json.loads(migrate("check", "slice.toml", "--json", cwd=broken(tmp_path)).stdout)
    assert body["schema"] == 1 and body["exit_code"] == 1 and body["phase"] == "port"
    assert all(check["evidence"] for check in body["checks"] if check["status"] == "passed")
    fixes = {finding["code"]: finding["fix"] for finding in body["findings"]}
    (tmp_path / "x.patch").write_text(fixes["MG611"]["patch"])
    git(tmp_path, "init", "-q")
    git(tmp_path, "apply", "x.patch")
    assert b"if self._config.layers > 1:" in (tmp_path / HANDLER).read_bytes()


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(root), *identity, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_lines_are_counted_from_git(tmp_path: Path):
    write(tmp_path, {path: data for path, data in tree("port").items() if path != HANDLER})
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "before")
    ported_files = tree("port")
    write(tmp_path, ported_files, LASTING.replace("budget = 500", "budget = 100"))
    lines = ported_files[HANDLER].count(b"\n")
    done = migrate("check", "slice.toml", cwd=tmp_path)  # git does not know the handler yet
    assert (
        done.returncode == 1 and "MG630" in done.stdout and f"{lines} lines added since HEAD" in done.stdout
    )
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "port")
    done = migrate("check", "slice.toml", cwd=tmp_path)
    assert f"{lines} lines added since HEAD~1" in done.stdout
    done = migrate("check", "slice.toml", "--base", "HEAD", cwd=tmp_path)
    assert done.returncode == 0
    done = migrate("check", "slice.toml", "--base", "nowhere", cwd=tmp_path)
    assert done.returncode == 3 and "git knows no revision nowhere" in done.stderr


def test_the_command_is_listed_and_loads_nothing_heavy(tmp_path: Path):
    listed = migrate("--help", cwd=tmp_path)
    assert "check" in listed.stdout
    code = (
        "import sys\nfrom migration import cli\ncli._parser()\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'libcst', 'rich', 'msgspec', 'pyflakes', 'torch'}),"
        " 'migration.check' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[] False"


KV = """
[checklist.flag]
owner = "KV"
introduced = 2026-05-27
max_age_days = 100000

[[checklist.items]]
title = "No self.host_paged_kv_worker_view reference drift"
rule = "forbidden-reference"
expressions = ["self.host_paged_kv_worker_view", "self.core_engine.host_paged_kv_worker_view"]

[[checklist.items]]
rule = "worker-only"
names = ["_pending_kv_append_tensors"]

[[checklist.items]]
rule = "imported"
names = ["DualKVCacheCoordinator"]

[[checklist.items]]
rule = "paired"
primary = "primary"
auxiliary = "auxiliary"

[[checklist.items]]
rule = "call-order"
first = "_sync_sequence_metadata"
then = "assign_rank"

[[checklist.items]]
rule = "collectives"
agreed = ["BATCHGEN_ENABLE_DECODE_PREEMPTION"]
"""
EARLIER = """# The KV section behind handles that are the worker itself, seen in part.
schema = 1
name = "kv-check"

[source]
file = "batchgen/batchgen_worker.py"
class = "BatchGenWorker"
section = "KV Cache Helper Methods"

[target]
file = "batchgen/checked/kv_manager.py"
class = "CheckedKVCacheManager"
siblings = "handler"
late_bound = ["_get_host_kv_utilization"]

[gate]
prefix = "CHECKED_KV"
"""


@pytest.mark.slow
def test_our_own_worker_in_its_phases(tmp_path: Path):
    """What does not hold is the drift that narrower handles are for, and private names; nothing else alarms."""
    copy_before(ROOT, tmp_path)
    (tmp_path / "kv.toml").write_text(EARLIER + KV)
    for command in ("port", "gate", "cleanup"):
        done = migrate(command, "kv.toml", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        done = migrate("check", "kv.toml", "--json", cwd=tmp_path)
        body = json.loads(done.stdout)
        assert body["phase"] == command
        drift = [f["message"] for f in body["findings"] if f["code"] == "MG610"]
        assert drift and all("host_paged_kv_worker_view" in message for message in drift)
        # A habit of the real worker that the patient may have: its allocator is asked past its public names.
        assert {f["code"] for f in body["findings"]} <= {"MG610", "MG639"}, done.stdout
        assert all("_sequences" in f["message"] for f in body["findings"] if f["code"] == "MG639")


def test_the_documentation_names_every_rule():
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    for rule in RULES:
        assert f"| `{rule.name}` {rule.code} |" in page
    assert HERE.is_dir()
