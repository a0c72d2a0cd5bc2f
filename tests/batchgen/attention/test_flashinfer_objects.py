"""Folders of prebuilt kernels: what is refused, in one line each, and building without what it takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from batchgen.attention.choice import KernelsUnavailableError, find_kernels
from batchgen.attention.flashinfer.kernels import Geometry
from batchgen.attention.flashinfer.manifest import MANIFEST, ObjectsError, read_manifest
from batchgen.attention.flashinfer.objects import ObjectKernels
from scripts import flashinfer_objects as script
from tests.batchgen.attention import flashinfer_double as double

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return double.use_objects(monkeypatch, tmp_path, (8, 16))


def edit(change: Callable[[dict], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        raw = json.loads((folder / MANIFEST).read_text())
        change(raw)
        (folder / MANIFEST).write_text(json.dumps(raw))

    return apply


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / MANIFEST).unlink(), "has no manifest.json .*make flashinfer-objects"),
        (lambda folder: (folder / MANIFEST).write_text("{"), "is no manifest of FlashInfer objects"),
        (lambda folder: (folder / MANIFEST).write_text("[]"), "is no manifest of FlashInfer objects"),
        (edit(lambda raw: raw.update(format=2)), "format 2, expected 1"),
        (edit(lambda raw: raw["files"].update({"../page.so": ""})), "not one .so for each of"),
        (lambda folder: (folder / "page.so").unlink(), "page.so is missing"),
        (
            lambda folder: (folder / "attention_float32_8.so").write_text("x"),
            "_8.so is not the file that was built",
        ),
    ],
)
def test_a_folder_that_is_not_what_was_built_is_refused_in_one_line(
    folder: Path, damage: Callable[[Path], None], words: str
) -> None:
    damage(folder)
    with pytest.raises(ObjectsError, match=words) as found:
        read_manifest(folder)
    assert "\n" not in str(found.value)


def test_objects_for_another_gpu_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A100")
    with pytest.raises(ObjectsError, match=r"is for compute capability 9\.0a, A100 has 8\.0; build it"):
        ObjectKernels(folder, GPU)


def test_objects_of_another_interface_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = SimpleNamespace(
        plan=double.Function("plan", [*double.PLAN[:-3]], None), paged_run=None, ragged_run=None
    )
    whole = double.load_module
    load = lambda path: whole(path) if path.name == "page.so" else older  # noqa: E731
    monkeypatch.setattr("tvm_ffi.load_module", load)
    kernels = ObjectKernels(folder, CPU)
    with pytest.raises(ObjectsError, match=r"plan takes \(DLTensor\*.*\), expected .*build the folder again"):
        kernels.prefill_slot(Geometry(4, 2, 8, torch.float32, torch.float32, 1.0), exact=False)
    monkeypatch.setattr("tvm_ffi.load_module", lambda path: SimpleNamespace())
    with pytest.raises(ObjectsError, match=r"append_paged_kv_cache takes \(nothing known\)"):
        ObjectKernels(folder, CPU)


def test_a_model_that_the_folder_was_not_built_for_is_refused_by_both(folder: Path) -> None:
    kernels = ObjectKernels(folder, CPU)
    assert kernels.lacks(16, torch.float32) is None
    words = r"has kernels for float32 and head dimensions 8, 16, not for float32 and 64; .*--head-dims 64"
    lack = kernels.lacks(64, torch.float32)
    with pytest.raises(ObjectsError, match=words) as found:
        kernels.decode_slot(Geometry(4, 2, 64, torch.float32, torch.float32, 1.0), 4, exact=True, fixed=None)
    assert str(found.value) == lack


def test_what_is_missing_is_one_line_that_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KernelsUnavailableError, match="needs a CUDA device, this run is on cpu; use --att"):
        find_kernels(CPU, folder)
    with pytest.raises(KernelsUnavailableError, match=r"pip install flashinfer-python.*--attention torch"):
        find_kernels(GPU, None)
    with pytest.raises(KernelsUnavailableError, match=r"has no manifest\.json .*make flashinfer-objects"):
        find_kernels(GPU, folder / "nowhere")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setitem(sys.modules, "tvm_ffi", None)
    with pytest.raises(KernelsUnavailableError, match="pip install apache-tvm-ffi") as found:
        find_kernels(GPU, folder)
    assert "\n" not in str(found.value)


def test_building_names_all_that_is_missing_and_ends_with_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(script, "find_spec", lambda name: None)
    assert script.main(["--output", str(tmp_path / "objects")]) == 4
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1 and printed.out == ""
    for name in ("nvcc", "ninja", "cc", "pip install flashinfer-python", "pip install apache-tvm-ffi"):
        assert name in printed.err
    assert not (tmp_path / "objects").exists()


def test_a_collected_folder_is_read_again_and_a_failed_one_has_no_manifest(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = {path.stem: path for path in folder.glob("*.so")}
    facts = {
        "flashinfer": "0.7.4",
        "cuda": "13.0",
        "arch": "9.0a",
        "dtypes": ("float32",),
        "head_dims": (8, 16),
    }
    output = tmp_path / "output"
    script.collect(output, built, facts)
    assert read_manifest(output) == read_manifest(folder)
    monkeypatch.setattr("tvm_ffi.load_module", lambda path: SimpleNamespace())
    with pytest.raises(ObjectsError, match="nothing known"):
        script.collect(output, built, facts)
    assert not (output / MANIFEST).exists()


def test_the_driver_is_a_stub_and_the_toolkit_is_where_nvcc_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "toolkit/bin").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name, text in {
        "nvcc": f"echo '#$ TOP={tmp_path}/toolkit/bin/..' >&2",
        "cc": 'for last; do :; done; echo "$@" > "$last"',
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv("LIBRARY_PATH", "/elsewhere")
    found = script.environment("8.0", tmp_path / "work")
    assert found["CUDA_HOME"] == str(tmp_path / "toolkit") and found["FLASHINFER_CUDA_ARCH_LIST"] == "8.0"
    assert found["LIBRARY_PATH"] == f"{tmp_path}/work/stub:/elsewhere"
    assert "-soname,libcuda.so.1" in (tmp_path / "work/stub/libcuda.so").read_text()
