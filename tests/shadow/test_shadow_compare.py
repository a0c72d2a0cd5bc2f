"""Two processes in lockstep, on a toy engine with the hook points of the real one; faults planted by edits."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from junitparser import JUnitXml

from reports import Report, Status, from_json
from shadow.compare import compare_trees
from shadow.demo_fault import FaultError, plant, planted
from shadow.lockstep import Outcome
from shadow.observation import Kind
from shadow.tally import KEPT, Tally
from shadow.verdict import exit_code

FAKE = Path(__file__).parent / "fake_tree"
WORKER = "batchgen/batchgen_worker.py"
HANDLER = "batchgen/worker/kv_manager.py"
FORWARD = "        logits = torch.stack(rows) @ self.head\n"
REQUESTS = (
    {"custom_id": "a", "prompt": [1, 2, 3, 4, 5, 6], "max_tokens": 20},
    {"custom_id": "b", "prompt": [7, 8], "max_tokens": 9},
    {"custom_id": "c", "prompt": [3, 1, 4, 1, 5, 9, 2, 6, 5], "max_tokens": 14},
)
Tree = Callable[..., Path]
# What the toy has. The rest of the kinds needs the real pools.
TOY = (
    *(Kind.INVARIANT, Kind.SCHEDULE, Kind.SEQUENCE, Kind.PAGE_TABLE, Kind.KV),
    *(Kind.BOUNDARY, Kind.LOGITS, Kind.TOKENS, Kind.RESULT, Kind.OUTCOME),
)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A copy of the toy engine with `old` replaced by `new` in one file."""

    def make(name: str = "candidate", old: str = "", new: str = "", file: str = WORKER) -> Path:
        root = tmp_path / name
        shutil.copytree(FAKE, root, ignore=shutil.ignore_patterns("__pycache__"))
        text = (root / file).read_text()
        assert old in text
        (root / file).write_text(text.replace(old, new))
        return root

    return make


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(request) + "\n" for request in REQUESTS))
    return path


def compared(legacy: Path, candidate: Path, requests: Path, timeout: float = 60) -> Report:
    return compare_trees(legacy, candidate, requests, {}, threads=1, timeout=timeout)


def first(report: Report) -> tuple[str, ...]:
    """(kind, step, sequence, layer, field) of the first divergence."""
    assert report.verdict.exit_code == 1, report.verdict.headline
    finding = report.findings[0]
    return (finding.code, *(fact.value for fact in finding.where))


def failing(report: Report) -> set[str]:
    return {check.name for check in report.checks if check.status is Status.FAIL}


def fact(report: Report, name: str) -> str:
    return next(fact.value for fact in report.facts if fact.name == name)


def test_the_same_worker_twice_is_equal_and_every_kind_was_compared(tree: Tree, requests: Path) -> None:
    requests.write_text(requests.read_text() + "not json\n")
    legacy, candidate = tree("legacy"), tree("candidate")
    report = compared(legacy, candidate, requests)
    assert report.verdict.exit_code == 0, report
    assert report.verdict.headline.endswith("A/A run: both trees hold the same code")
    assert all(check.status is Status.PASS and check.count for check in report.checks)
    assert {check.name for check in report.checks} == set(TOY)
    assert fact(report, "candidate worker").startswith(f"{candidate}/{WORKER} (sha256 ")
    assert fact(report, "legacy worker").startswith(f"{legacy}/{WORKER} (sha256 ")
    assert fact(report, "seen by type only") == "sampling"
    assert fact(report, "candidate refused").startswith("1 line")


def test_a_load_that_is_one_page_short_is_found_in_the_page_that_was_not_loaded(
    tree: Tree, requests: Path
) -> None:
    candidate = tree("candidate")
    plant(candidate)
    report = compared(FAKE, candidate, requests)
    assert first(report) == ("kv", "0", "c", "0", "primary.k.page[2]")
    assert "positions 8 to 11" in report.findings[0].message
    assert report.findings[0].actual == "all zero"
    assert {"kv", "logits"} <= failing(report)


def test_a_page_count_off_by_one_is_found_in_the_page_table(tree: Tree, requests: Path) -> None:
    surplus = "(seq.prompt_length + seq.max_decode_length) // size) + (seq.custom_id == 'b')"
    candidate = tree(
        "candidate", "(seq.prompt_length + seq.max_decode_length) // size)", surplus, file=HANDLER
    )
    report = compared(FAKE, candidate, requests)
    assert first(report) == ("page_table", "0", "b", "-", "primary.owned_pages[3]")
    assert report.findings[0].message.startswith("who owns which page")
    assert failing(report) == {"page_table"}


def test_a_wrong_key_of_the_new_token_is_found_with_its_layer_and_position(
    tree: Tree, requests: Path
) -> None:
    honest = "            pages = pool.gpu_table[row"
    fault = (
        "            if self.steps == 4 and row == 1:\n"
        "                page = pool._sequences[seq.global_idx][(length - 1) // size]\n"
        "                pool.k_cache[1, page, (length - 1) % size] += 1e-3\n"
    )
    report = compared(FAKE, tree("candidate", honest, fault + honest), requests)
    assert first(report) == ("kv", "4", "b", "1", "primary.k.written.position[6]")


def test_a_small_error_in_one_row_of_logits_is_found_with_its_size(tree: Tree, requests: Path) -> None:
    fault = FORWARD + "        if self.steps == 5:\n            logits[1, 3] += 1e-4\n"
    report = compared(FAKE, tree("candidate", FORWARD, fault), requests)
    assert first(report) == ("logits", "5", "b", "-", "logits")
    assert "1 elements, same argmax" in report.findings[0].message
    assert (report.total_findings, failing(report)) == (1, {"logits"})


def test_after_a_token_divergence_the_candidate_goes_on_with_the_control_s_tokens(
    tree: Tree, requests: Path
) -> None:
    honest = "        return logits.argmax(-1)\n"
    fault = (
        "        tokens = logits.argmax(-1)\n        tokens[0] = (tokens[0] + (self.steps == 7)) % VOCAB\n"
    )
    report = compared(FAKE, tree("candidate", honest, fault + "        return tokens\n"), requests)
    assert first(report) == ("tokens", "7", "a", "-", "token")
    assert report.total_findings == 1, "later steps, KV and results agree again"
    assert fact(report, "teacher-forced") == "1 tokens of the candidate"
    assert fact(report, "observed").startswith("3 x prefill, 24 x decode")


def test_decisions_in_another_order_are_found_with_the_field_path(tree: Tree, requests: Path) -> None:
    honest = "tuple(s.uuid for s in running if s.uuid not in done)"
    candidate = tree("candidate", honest, f"{honest}[::-1]")
    report = compared(FAKE, candidate, requests)
    assert first(report) == ("boundary", "8", "-", "-", "decisions.active_uuids[0]")
    assert "(order)" in report.findings[0].message
    assert failing(report) == {"boundary"}


def test_a_status_that_is_not_set_is_found_at_the_boundary(tree: Tree, requests: Path) -> None:
    candidate = tree("candidate", "                seq.status = Status.COMPLETED\n", "")
    report = compared(FAKE, candidate, requests)
    assert first(report) == ("sequence", "8", "b", "-", "status")
    assert (report.findings[0].expected, report.findings[0].actual) == ("'COMPLETED'", "'IN_DECODE'")


def test_a_result_that_is_reported_wrong_is_found_at_the_end(tree: Tree, requests: Path) -> None:
    candidate = tree(
        "candidate", "tuple(s.decoded_tokens[0].tolist())", "tuple(s.decoded_tokens[0, 1:].tolist())"
    )
    report = compared(FAKE, candidate, requests)
    assert first(report)[0] == "result" and failing(report) == {"result"}


@pytest.mark.parametrize(
    ("old", "new", "step", "legacy", "candidate"),
    [
        (
            "self.interval = 2 * options.page_size",
            "self.interval = 2 * options.page_size + 1",
            "8",
            "boundary decisions after 8 decode steps",
            "decode after 8 decode steps",
        ),
        (
            "while running:",
            "while running and self.steps < 20:",
            "20",
            "decode after 20 decode steps",
            "the run ends after 20 decode steps",
        ),
    ],
    ids=["late boundary", "missing steps"],
)
def test_schedules_that_part_are_a_finding_with_the_step_counts(
    tree: Tree, requests: Path, old: str, new: str, step: str, legacy: str, candidate: str
) -> None:
    report = compared(FAKE, tree("candidate", old, new), requests)
    assert first(report) == ("schedule", step, "-", "-", "next point")
    assert (report.findings[0].expected, report.findings[0].actual) == (legacy, candidate)


def test_an_extra_step_is_a_finding(tree: Tree, requests: Path) -> None:
    extra = (
        "        self._select_tokens(torch.zeros(1, VOCAB), self.global_batch[:1])\n        return [Result("
    )
    report = compared(FAKE, tree("candidate", "        return [Result(", extra), requests)
    assert first(report)[0] == "schedule"
    assert report.findings[0].expected == "the run ends after 24 decode steps"


RAISES = FORWARD + "        if self.steps == 3:\n            raise ValueError('planted')\n"


def test_an_exception_of_the_candidate_alone_is_a_divergence(tree: Tree, requests: Path) -> None:
    report = compared(FAKE, tree("candidate", FORWARD, RAISES), requests)
    assert report.verdict.exit_code == 1
    assert report.findings[0].code == "outcome"
    assert report.findings[0].actual == "raised ValueError: planted"
    assert report.findings[0].expected == "goes on (decode after 3 decode steps)"
    assert any("_decode_forward_step" in row[0] for table in report.tables for row in table.rows)


def test_an_exception_of_the_legacy_side_gives_no_verdict(tree: Tree, requests: Path) -> None:
    legacy = tree("legacy", FORWARD, RAISES)
    for candidate in (FAKE, legacy):
        report = compared(legacy, candidate, requests)
        assert report.verdict.exit_code == 2
        assert report.verdict.headline == "No verdict: the legacy side raised ValueError: planted"


def test_a_candidate_that_dies_is_reported_with_the_signal(tree: Tree, requests: Path) -> None:
    dies = FORWARD + "        if self.steps == 3:\n            print('last words', flush=True)\n"
    dies += "            os.kill(os.getpid(), 9)\n"
    report = compared(FAKE, tree("candidate", FORWARD, dies), requests)
    assert report.verdict.exit_code == 1
    assert report.findings[0].actual == "was killed by SIGKILL"
    assert any("last words" in row[0] for table in report.tables for row in table.rows)


def test_a_candidate_that_hangs_is_stopped_and_reported(tree: Tree, requests: Path) -> None:
    hangs = FORWARD + "        if self.steps == 3:\n            time.sleep(3600)\n"
    started = time.monotonic()
    report = compared(FAKE, tree("candidate", FORWARD, hangs), requests, timeout=3)
    assert report.verdict.exit_code == 1
    assert report.findings[0].actual == "gave no sign of life for 3 s"
    assert time.monotonic() - started < 60


def test_nothing_compared_is_a_failure_that_says_of_what(tree: Tree, requests: Path) -> None:
    requests.write_text("")
    report = compared(FAKE, tree("candidate"), requests)
    assert report.verdict.exit_code == 3
    assert "kv" in report.verdict.headline and "logits" in report.verdict.headline


def test_a_run_without_a_boundary_is_short_of_coverage(tree: Tree, requests: Path) -> None:
    requests.write_text(json.dumps(REQUESTS[1] | {"max_tokens": 5}) + "\n")
    honest = "            if since >= self.interval:\n"
    ends = honest + "                break\n"
    legacy, candidate = tree("legacy", honest, ends), tree("candidate", honest, ends)
    report = compared(legacy, candidate, requests)
    assert report.verdict.exit_code == 3
    assert report.verdict.headline == "Coverage short: nothing compared of boundary"
    detail = {check.name: check.detail for check in report.checks}
    assert "--page-size" in detail["boundary"]


def test_a_module_from_outside_of_the_tree_gives_no_verdict(
    tree: Tree, requests: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere.py").write_text("")
    load = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('batchgen.x', {str(tmp_path / 'elsewhere.py')!r})\n"
        "sys.modules['batchgen.x'] = importlib.util.module_from_spec(spec)\n"
    )
    candidate = tree("candidate", "import os\n", load + "import os\n")
    report = compared(FAKE, candidate, requests)
    assert report.verdict.exit_code == 2
    assert "module batchgen.x was loaded from" in report.verdict.headline


def test_a_worker_without_a_hook_gives_no_verdict(tree: Tree, requests: Path) -> None:
    report = compared(FAKE, tree("candidate", "_page_boundary_fast", "_boundary"), requests)
    assert report.verdict.exit_code == 2
    assert "BatchGenWorker has no method _page_boundary_fast" in report.verdict.headline


def test_a_report_stays_bounded_when_everything_differs(tree: Tree, requests: Path) -> None:
    report = compared(FAKE, tree("candidate", "* 0.37", "* 0.38"), requests)
    assert len(report.findings) == KEPT < report.total_findings
    assert report.total_findings == sum(
        int(check.detail.split()[0].replace(",", "")) for check in report.checks if check.detail
    )


def test_the_worst_applicable_exit_code_wins() -> None:
    assert exit_code(Tally(), Outcome()) == 3


# the command line


def shadow(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shadow.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_command_prints_and_writes_one_report(tree: Tree, requests: Path, tmp_path: Path) -> None:
    fault = FORWARD + "        logits[0] += (self.steps == 2)\n"
    out = tmp_path / "out"
    done = shadow(
        *("compare", "--legacy", FAKE, "--candidate", tree("candidate", FORWARD, fault)),
        *("--requests", requests, "--page-size", "4", "--gpu-pages", "32"),
        *("--json", out / "r.json", "--junit", out / "r.xml"),
        *("--markdown", out / "r.md", "--html", out / "r.html"),
    )
    assert done.returncode == 1, done.stderr
    for part in ("First divergence", "logits", "sequence", "legacy", "candidate"):
        assert part in done.stdout
    report = from_json((out / "r.json").read_text())
    assert first(report) == ("logits", "2", "a", "-", "logits")
    assert fact(report, "gpu_kv_pages") == "32"
    (suite,) = JUnitXml.fromstring((out / "r.xml").read_bytes())
    assert suite.failures == 2
    assert (out / "r.md").read_text().startswith("## ❌ shadow compare: Diverged at step 2, sequence a")
    page = (out / "r.html").read_text()
    assert "<h1>Diverged at step 2, sequence a" in page and ">First divergence</h2>" in page
    assert [picture.title for picture in report.pictures] == ["Logits error", "What differs when", "Time"]
    (modules,) = (table for table in report.tables if table.title == "Modules loaded")
    assert ("batchgen", "batchgen/__init__.py", "batchgen/__init__.py") in modules.rows


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "COMMAND"),
        (("compare", "--steps", "0"), "not a whole number above 0"),
        (("compare", "--legacy-env", "A"), "'A' is not NAME=VALUE"),
        (("compare", "--requests", "/nowhere"), "there is no file"),
        (("compare", "--page-size", "0"), "not a whole number above 0"),
        (("compare", "--page-size", "²"), "not a whole number above 0"),
        (("frobnicate",), "frobnicate"),
    ],
)
def test_usage_errors_are_64_and_say_what_is_wrong(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from shadow.cli import main

    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 64
    assert said in capsys.readouterr().err


def test_help_imports_neither_torch_nor_batchgen() -> None:
    code = (
        "import sys\nfrom shadow.cli import main\n"
        "try:\n    main(['compare', '--help'])\n"
        "finally:\n    print({'torch', 'batchgen', 'numpy', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert "--candidate TREE" in done.stdout and done.stdout.rstrip().endswith("set()")


# the fault of the demo


def test_the_demo_fault_is_refused_where_its_anchors_are_missing(tmp_path: Path) -> None:
    with pytest.raises(FaultError, match="has no method load_host_kv_to_gpu"):
        plant(tmp_path)
    source = (FAKE / HANDLER).read_text()
    with pytest.raises(FaultError, match="0 methods are named load_host_kv_to_gpu"):
        planted(source.replace("load_host_kv_to_gpu", "other"))
    with pytest.raises(FaultError, match="0 times"):
        planted(source.replace("async_load_layer_paged_kv_to_device", "other"))
    with pytest.raises(FaultError, match="no argument active_page_counts"):
        planted(source.replace("(sequences, counts, pool)", "(sequences)"))
    with pytest.raises(FaultError, match="there already"):
        planted(planted(source))


def test_the_demo_fault_wraps_the_page_counts_however_they_are_passed() -> None:
    source = (FAKE / HANDLER).read_text()
    assert "device(sequences, _one_page_short(counts), pool)" in planted(source)
    named = source.replace("(sequences, counts, pool)", "(sequences, pool=pool, active_page_counts=counts)")
    assert "active_page_counts=_one_page_short(counts))" in planted(named)


def test_the_demo_fault_command_edits_or_says_why_not(tree: Tree, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shadow.demo_fault"]
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True)
    assert done.returncode == 2 and "give a copy of the engine" in done.stderr
    root = tree("candidate")
    done = subprocess.run([*command, root, "--load", "2"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "load 2 leaves out the last page" in (root / HANDLER).read_text()
