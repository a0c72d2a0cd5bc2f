"""`make gpu`: what it says on a machine without a GPU, and how the outcomes of its parts become one."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "gpu.py"


@pytest.fixture(scope="module")
def gpu() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_checks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_checks"] = module
    spec.loader.exec_module(module)
    return module


def command(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False
    )


def cuda() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.mark.skipif(cuda(), reason="there is a CUDA device")
def test_a_machine_without_a_gpu_is_told_what_it_lacks_and_ends_with_4(tmp_path: Path) -> None:
    done = command("--out", str(tmp_path / "gpu"))
    assert done.returncode == 4 and "a CUDA device" in done.stderr and "--device cpu" in done.stderr
    assert not (tmp_path / "gpu").exists()


def test_a_python_without_the_packages_is_told_all_of_them() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert all(name in done.stderr for name in ("msgspec", "xxhash", "torch", "GPU_PYTHON"))


def test_an_empty_folder_of_wheels_is_refused(tmp_path: Path) -> None:
    done = command("--wheels", str(tmp_path))
    assert done.returncode == 1 and "make gpu-wheels" in done.stderr


def test_the_whole_list_can_be_seen_without_a_gpu() -> None:
    done = command("--list")
    assert done.returncode == 0
    for part in ("tests", "native", "gates", "noise", "eager", "graphs", "overhead", "bandwidth"):
        assert f"{part}: " in done.stdout
    assert "test_replay_cuda.py" in done.stdout and "L2-2048,L2-4096" in done.stdout


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ((0, 0), 0),
        ((0, 3), 3),
        ((3, 1, 0), 1),
        ((1, 2, 3), 2),
        ((0, 4), 3),
    ],
    ids=str,
)
def test_the_worst_part_decides_and_one_that_could_not_run_was_not_compared(
    gpu: ModuleType, codes: tuple[int, ...], code: int
) -> None:
    assert gpu.worst(codes) == code


@pytest.mark.parametrize(
    ("tests", "skipped", "failures", "code"),
    [(5, 0, 0, 0), (5, 1, 0, 3), (5, 5, 0, 3), (0, 0, 0, 3), (5, 1, 1, 1)],
)
def test_a_skipped_test_is_no_test_that_held(
    gpu: ModuleType, tmp_path: Path, tests: int, skipped: int, failures: int, code: int
) -> None:
    suite = f'<testsuite tests="{tests}" skipped="{skipped}" failures="{failures}" errors="0"/>'
    (tmp_path / "tests.xml").write_text(f"<testsuites>{suite}</testsuites>")
    assert gpu.judged_tests(tmp_path / "tests.xml", int(failures > 0))[0] == code


def test_results_that_are_not_there_are_a_failure(gpu: ModuleType, tmp_path: Path) -> None:
    assert gpu.judged_tests(tmp_path / "tests.xml", 0)[0] == 2


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_rehearsal_without_a_gpu_runs_its_comparisons_and_says_what_it_left_out(tmp_path: Path) -> None:
    out = tmp_path / "gpu"
    asked = [option for part in ("tests", "native", "eager") for option in ("--only", part)]
    done = command("--device", "cpu", "--scale", "caps/512,prompts/32", "--out", str(out), *asked)
    report = json.loads((out / "report.json").read_text())
    codes = {part["name"]: part["code"] for part in report["parts"]}
    assert codes == {"tests": 4, "native": 0, "eager": 2}, done.stdout
    assert done.returncode == report["code"] == 2  # the bound that `eager` is judged by was not measured
    page = (out / "index.html").read_text()
    assert "native.html" in page and "not here" in page
    assert "failed to run" in (out / "report.md").read_text()
