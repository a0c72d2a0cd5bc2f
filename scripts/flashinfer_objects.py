"""`make flashinfer-objects`: FlashInfer's kernels as shared objects, for GPU machines that cannot install it.

Needs nvcc, ninja, a C compiler and the packages flashinfer and tvm_ffi, but no GPU: what would be linked against the
driver is linked against a stub. The folder goes to the GPU machine, where `batchgen run --flashinfer-objects FOLDER`
needs tvm_ffi and the CUDA runtime. Ends with 4 where something to build with is missing, with 1 where a build fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from batchgen.attention.flashinfer.manifest import (
    MANIFEST,
    PAGE,
    Manifest,
    ObjectsError,
    attention_name,
    sha256,
    write_manifest,
)

ROOT = Path(__file__).resolve().parent.parent
EXIT_FAILED, EXIT_MISSING = 1, 4
#: The version whose arguments `batchgen.attention.flashinfer.objects` gives; another is refused if they differ.
TESTED = "0.7.4"
_PACKAGES = {"flashinfer": "flashinfer-python", "tvm_ffi": "apache-tvm-ffi"}


def missing() -> list[str]:
    """What there is to install before anything can be built."""
    tools = [name for name in ("nvcc", "ninja", "cc") if shutil.which(name) is None]
    packages = [
        f"the package {package} (pip install {package})"
        for name, package in _PACKAGES.items()
        if find_spec(name) is None
    ]
    return [*tools, *packages]


def stub_driver(folder: Path) -> Path:
    """An empty libcuda, to link against where there is no driver; the GPU machine has the real one."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libcuda.so"
    command = ["cc", "-shared", "-Wl,-soname,libcuda.so.1", "-x", "c", "/dev/null", "-o", str(library)]
    subprocess.run(command, check=True)
    return folder


def environment(arch: str, work: Path) -> dict[str, str]:
    """What FlashInfer's build reads; it must be set before flashinfer is imported."""
    nvcc = shutil.which("nvcc")
    assert nvcc is not None
    home = os.environ.get("CUDA_HOME") or _toolkit(Path(nvcc))
    paths = [str(stub_driver(work / "stub")), os.environ.get("LIBRARY_PATH", "")]
    return {
        "CUDA_HOME": home,
        "FLASHINFER_CUDA_ARCH_LIST": arch,
        "FLASHINFER_WORKSPACE_BASE": str(work),
        "LIBRARY_PATH": os.pathsep.join(filter(None, paths)),
    }


def _toolkit(nvcc: Path) -> str:
    """Where nvcc says that it lies: the one on the path may be a script that calls it."""
    answer = subprocess.run([nvcc, "-dryrun", "-x", "cu", "/dev/null"], capture_output=True, text=True)
    for line in answer.stderr.splitlines():
        if line.startswith("#$ TOP="):
            return str(Path(line.removeprefix("#$ TOP=")).resolve())
    return str(nvcc.resolve().parent.parent)


def specs(dtypes: Sequence[str], head_dims: Sequence[int]) -> Iterator[tuple[str, Any]]:
    """(name of the object, what FlashInfer builds it from)."""
    import torch
    from flashinfer.jit.attention.modules import gen_customize_batch_prefill_module
    from flashinfer.jit.page import gen_page_module

    yield PAGE, gen_page_module()
    for dtype in dtypes:
        for dim in head_dims:
            kind, name = getattr(torch, dtype), attention_name(dtype, dim)
            yield (
                name,
                gen_customize_batch_prefill_module(
                    "fa2",
                    f"batchgen_{name}",
                    kind,
                    kind,
                    kind,
                    torch.int32,
                    dim,
                    dim,
                    [],
                    [],
                    ["sm_scale"],
                    ["double"],
                    "DefaultAttention<false, false, false, false>",
                    "#include <flashinfer/attention/variants.cuh>",
                ),
            )


def collect(output: Path, built: Mapping[str, Path], manifest: Mapping[str, Any]) -> None:
    """The objects into ``output``, checked by loading them, and then the manifest."""
    from batchgen.attention.flashinfer.objects import SIGNATURES, load_object

    output.mkdir(parents=True, exist_ok=True)
    (output / MANIFEST).unlink(missing_ok=True)
    files = {}
    for name, path in built.items():
        target = output / f"{name}.so"
        shutil.copyfile(path, target)
        appends = ("append_paged_kv_cache",)
        load_object(target, appends if name == PAGE else tuple(set(SIGNATURES) - set(appends)))
        files[target.name] = sha256(target)
    write_manifest(output, Manifest(files=files, **manifest))


def build(arguments: argparse.Namespace) -> None:
    os.environ.update(environment(arguments.arch, arguments.work))
    os.environ.setdefault("MAX_JOBS", str(arguments.jobs))
    import flashinfer
    from flashinfer.jit.cpp_ext import get_cuda_version

    built = {}
    for name, spec in specs(arguments.dtypes, arguments.head_dims):
        print(f"    {name}", flush=True)
        spec.build()
        built[name] = Path(spec.jit_library_path)
    manifest = {
        "flashinfer": flashinfer.__version__,
        "cuda": str(get_cuda_version()),
        "arch": arguments.arch,
        "dtypes": tuple(arguments.dtypes),
        "head_dims": tuple(arguments.head_dims),
    }
    try:
        collect(arguments.output, built, manifest)
    except ObjectsError as error:
        version = flashinfer.__version__
        advice = "" if version == TESTED else f" (this is FlashInfer {version}, tested is {TESTED})"
        raise ObjectsError(f"{error}{advice}") from error


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="flashinfer_objects.py", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--output", type=Path, default=ROOT / "out" / "flashinfer-objects")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "out" / "flashinfer-build", help="kept: what is built stays"
    )
    parser.add_argument(
        "--arch", default="9.0a", help="compute capability of the GPU machine (9.0a: H100, H200)"
    )
    parser.add_argument(
        "--dtypes", nargs="+", default=["bfloat16", "float16"], choices=["bfloat16", "float16"]
    )
    parser.add_argument("--head-dims", nargs="+", type=int, default=[64, 128], choices=[64, 128, 256])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args(argv)
    lacking = missing()
    if lacking:
        print(f"flashinfer-objects: cannot build without {', '.join(lacking)}", file=sys.stderr)
        return EXIT_MISSING
    try:
        build(arguments)
    except Exception as error:
        print(f"flashinfer-objects: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_FAILED
    size = sum(path.stat().st_size for path in arguments.output.iterdir())
    print(f"{arguments.output}: {size / 1e6:.1f} MB for compute capability {arguments.arch}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
