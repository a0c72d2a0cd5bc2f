"""From a run that diverges to a small pytest file that tells the two sides apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shadow.cli import main
from shadow.messages import HarnessError, Setup
from shadow.observation import Kind
from shadow.shrink import Replay, Scenario, ScenarioError, Shrunk, read_scenario, shrink
from shadow.shrink.lengths import limit_of, prompt_length, with_limit, with_prompt_length

ROOT = Path(__file__).parents[3]
OPTIONS = {"model": "tiny", "page_size": 4, "gpu_kv_pages": 60, "host_kv_pages": 120, "max_batch_size": 4}
MUTANT = '''
from contextlib import contextmanager

from shadow.mutants import Fault, Where, mutant
from shadow.mutants.patch import around
from shadow.observation import Kind


@mutant("last-page-is-not-loaded", Fault.STRUCTURAL, Where(Kind.EFFECTS))
@contextmanager
def last_page_is_not_loaded(plant):
    """Strikes wherever 'x', which must be of two pages, is loaded together with another sequence."""

    def load(original, ids, counts, *rest):
        counts = counts.clone()
        for place, index in enumerate(ids.tolist()):
            entry = next(e for e in plant.worker.global_batch if e.global_idx == index)
            if entry.custom_id == "x" and len(ids) > 1 and counts[place] > 1:
                plant.fired()
                counts[place] -= 1
        return original(ids, counts, *rest)

    with around(plant.worker.host_paged_kv_worker_view, "async_load_layer_paged_kv_to_device", load):
        yield
'''


def line(name: str, prompt: str, max_tokens: int) -> dict[str, object]:
    body = {"prompt": prompt, "max_tokens": max_tokens}
    return {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body}


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    path = tmp_path / "faults.py"
    path.write_text(MUTANT)
    return path


@pytest.fixture
def scenario() -> Scenario:
    requests = [line(f"r{i}", "y" * (5 + 3 * i), 4 + i) for i in range(6)]
    requests.insert(3, line("x", "the one that is loaded badly", 9))
    return Scenario((tuple(requests),), OPTIONS)


def replay(faults: Path, **more: object) -> Replay:
    control = Setup(str(ROOT), (), 1)
    candidate = Setup(str(ROOT), (), 1, mutant=(str(faults), "last-page-is-not-loaded"))
    return Replay(control, candidate, timeout=120)


@pytest.mark.slow
def test_what_is_left_is_what_the_fault_needs(faults: Path, scenario: Scenario) -> None:
    shrunk = shrink(scenario, replay(faults), seconds=500)
    assert isinstance(shrunk, Shrunk) and shrunk.complete
    left = {request["custom_id"]: request for request in shrunk.scenario.batches[0]}
    assert len(left) == 2 and "x" in left, "the sequence, and one more that is loaded with it"
    assert shrunk.found.signature == shrunk.before.signature
    assert shrunk.found.signature.kind is Kind.EFFECTS
    assert shrunk.found.events < shrunk.before.events
    # Two pages of four, the first of which holds a bos token and three characters.
    assert prompt_length(left["x"]) in (4, 5) and limit_of(left["x"]) == 2
    assert shrunk.scenario.options["max_batch_size"] == 2


def test_equal_sides_have_nothing_to_shrink(scenario: Scenario) -> None:
    side = Setup(str(ROOT), (), 1)
    assert shrink(scenario, Replay(side, side, timeout=120)) is None


def test_when_time_runs_out_the_smallest_so_far_is_the_result(faults: Path, scenario: Scenario) -> None:
    shrunk = shrink(scenario, replay(faults), seconds=0)
    assert shrunk is not None and not shrunk.complete
    assert shrunk.found.signature == shrunk.before.signature


def test_options_that_no_worker_can_be_built_with_are_no_failure_of_the_candidate(scenario: Scenario) -> None:
    side = Setup(str(ROOT), (), 1)
    with pytest.raises(HarnessError):
        Replay(side, side, timeout=120).run(scenario.with_option("page_size", 0))


@pytest.mark.slow
def test_the_command_writes_a_file_that_fails_on_the_candidate_and_passes_on_the_legacy(
    faults: Path, scenario: Scenario, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    requests, script = tmp_path / "r.jsonl", tmp_path / "test_shrunk.py"
    requests.write_text("".join(json.dumps(request) + "\n" for request in scenario.batches[0]))
    options = ["--model", "tiny", "--page-size", "4", "--gpu-pages", "60", "--host-pages", "120"]
    sides = ["--legacy", str(ROOT), "--candidate", str(ROOT), "--threads", "1"]
    fault = ["--mutants", str(faults), "--mutant", "last-page-is-not-loaded"]
    files = ["--requests", str(requests), "-o", str(script)]
    assert main(["shrink", *sides, *fault, *options, *files, "--seconds", "5"]) == 0
    assert "requests 7 -> " in capfd.readouterr().err
    for candidate, code in (("", 1), ("legacy", 0)):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(script)],
            cwd=tmp_path,
            env={**os.environ, "SHADOW_CANDIDATE": candidate, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout


def test_a_file_that_is_no_requests_file_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"custom_id": "a"}\n\n[1]\n')
    with pytest.raises(ScenarioError, match=r"r\.jsonl:3: a request is a JSON object"):
        read_scenario([path], {})
    path.write_text("{")
    with pytest.raises(ScenarioError, match=r"r\.jsonl:1: not JSON"):
        read_scenario([path], {})


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "abcd", "max_tokens": 9},
        {"prompt": [1, 2, 3, 4], "max_tokens": 9},
        {
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "abcd"}],
            "max_tokens": 9,
        },
    ],
)
def test_prompts_of_every_form_can_be_made_shorter(body: dict[str, object]) -> None:
    for request in ({"custom_id": "a", "body": body}, {"custom_id": "a", **body}):
        assert (prompt_length(request), limit_of(request)) == (4, 9)
        shorter = with_limit(with_prompt_length(request, 2), 3)
        assert (prompt_length(shorter), limit_of(shorter)) == (2, 3)
        assert shorter["custom_id"] == "a"
        assert (prompt_length(request), limit_of(request)) == (4, 9), "the original stays"
