"""The ready-made workflow files: parsed, and each of their shell steps run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LONG = ("bash .ci/run", "make gpu")


def parsed(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def steps() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(workflow, job, step) of every step."""
    for path in WORKFLOWS:
        for name, job in parsed(path)["jobs"].items():
            for step in job["steps"]:
                yield path.stem, name, step


SHELL = [pytest.param(step, id=f"{flow}: {step['name']}") for flow, _, step in steps() if "run" in step]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder as a step finds it, with a `gh` and a `make` that only say what they were asked."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("gh", "make"):
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@" >> "{tmp_path}/asked"\n')
        (tools / name).chmod(0o755)
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    return tmp_path


def run(step: dict[str, Any], folder: Path) -> str:
    """Runs it as a runner does; what was added to the job's summary."""
    summary = folder / "summary.md"
    environment = {
        **os.environ,
        "PATH": f"{folder / 'tools'}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(summary),
        **{name: re.sub(r"\$\{\{.*?\}\}", "7", str(value)) for name, value in step.get("env", {}).items()},
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return summary.read_text() if summary.exists() else ""


def test_there_is_a_job_without_a_gpu_and_one_with() -> None:
    jobs = {name: job for path in WORKFLOWS for name, job in parsed(path)["jobs"].items()}
    assert jobs["cpu"]["runs-on"] == "ubuntu-latest"
    assert jobs["h20"]["runs-on"] == ["self-hosted", "h20"]
    assert all(job["timeout-minutes"] for job in jobs.values())


def test_the_gpu_job_runs_where_the_engine_or_a_slice_changed() -> None:
    (flow,) = (parsed(path) for path in WORKFLOWS if path.stem == "gpu")
    paths = flow[True]["pull_request"]["paths"]  # `on` is true in YAML 1.1
    assert {"batchgen/**", "migration/slices/**"} <= set(paths)
    assert all((ROOT / path.removesuffix("/**")).exists() for path in paths)


def test_code_of_a_fork_does_not_run_on_the_gpu_machine() -> None:
    (flow,) = (parsed(path) for path in WORKFLOWS if path.stem == "gpu")
    assert "head.repo.full_name == github.repository" in flow["jobs"]["h20"]["if"]


@pytest.mark.parametrize("step", SHELL)
def test_a_shell_step_runs_with_and_without_a_report(step: dict[str, Any], checkout: Path) -> None:
    run(step, checkout)
    for report in ("out/gpu/report.md", "out/mutants/report.md"):
        (checkout / report).parent.mkdir(parents=True)
        (checkout / report).write_text("## The report\n")
    summary = run(step, checkout)
    if step["name"] == "job summary":
        assert summary.endswith("## The report\n") and not summary.startswith("## The report")
    if step["run"].strip() in LONG:
        assert (checkout / "asked").read_text().splitlines() == [
            "make ci" if "ci" in step["run"] else "make gpu"
        ] * 2


def test_the_report_becomes_a_comment_on_the_pull_request(checkout: Path) -> None:
    (step,) = (step for _, _, step in steps() if "comment" in step.get("name", ""))
    run(step, checkout)
    assert not (checkout / "asked").exists()
    (checkout / "out/gpu").mkdir(parents=True)
    (checkout / "out/gpu/report.md").write_text("## The report\n")
    run(step, checkout)
    asked = (checkout / "asked").read_text()
    assert asked.startswith("gh pr comment 7 ") and "--body-file out/gpu/report.md" in asked


def test_reports_are_kept_when_a_check_fails() -> None:
    kept = [step for _, _, step in steps() if "upload-artifact" in step.get("uses", "")]
    assert len(kept) == len(WORKFLOWS) and all(step["if"] == "always()" for step in kept)


def test_every_make_target_of_a_step_is_there() -> None:
    targets = {name for _, _, step in steps() for name in re.findall(r"make ([\w-]+)", step.get("run", ""))}
    assert targets == {"gpu"}
    for name in targets:
        done = subprocess.run(["make", "-n", name], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
