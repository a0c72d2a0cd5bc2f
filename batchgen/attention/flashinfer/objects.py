"""FlashInfer's kernels from prebuilt shared objects, by tvm_ffi alone, where the package cannot be installed.

`scripts/flashinfer_objects.py` builds them: one that appends, and one for each dtype and head dimension (fa2, no mask
but the causal, the scale as the only extra argument) that decodes and prefills.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from batchgen.attention.flashinfer.arrays import PagedArrays
from batchgen.attention.flashinfer.kernels import WORKSPACE_BYTES, Geometry
from batchgen.attention.flashinfer.manifest import PAGE, ObjectsError, attention_name, read_manifest

__all__ = ["ObjectKernels", "load_object"]

INT_WORKSPACE_BYTES = 8 << 20
_NHD, _CAUSAL, _ALL = 0, 1, 0
#: Arguments after the tensors of a run: layout, window on the left (none), programmatic dependent launch.
_RUN = (_NHD, -1, False)

_TENSORS = "DLTensor* "
_RUN_TYPES = "Array<int> " + _TENSORS * 3
_RUN_REST = _TENSORS + "Optional<DLTensor*> int int int bool float"
SIGNATURES = {
    "plan": _TENSORS * 6 + "int int int int int bool int int bool int int bool int int bool",
    "paged_run": _TENSORS * 2 + _RUN_TYPES + _TENSORS * 4 + _RUN_REST,
    "ragged_run": _TENSORS * 2 + _RUN_TYPES + _TENSORS * 2 + _RUN_REST,
    "append_paged_kv_cache": _TENSORS * 9 + "int",
}


def load_object(path: Path, functions: tuple[str, ...]) -> Any:
    """The module of one object. ObjectsError when it cannot be loaded, or its functions take other arguments."""
    try:
        import tvm_ffi
    except ImportError as error:
        raise ObjectsError(
            f"prebuilt kernels are loaded by tvm_ffi, which is missing ({error}); pip install apache-tvm-ffi"
        ) from error
    try:
        module = tvm_ffi.load_module(path)
    except Exception as error:
        raise ObjectsError(
            f"{path} cannot be loaded ({_line(error)}); it needs the CUDA runtime that it was built with"
        ) from error
    for name in functions:
        found = _signature(module, name)
        if found != SIGNATURES[name].split():
            raise ObjectsError(
                f"{path}: {name} takes ({' '.join(found) or 'nothing known'}), expected ({SIGNATURES[name]}); "
                "build the folder again with make flashinfer-objects of this version"
            )
    return module


def _signature(module: Any, name: str) -> list[str]:
    """The argument types, from what a call without any is answered."""
    try:
        getattr(module, name)()
    except AttributeError:
        return []
    except TypeError as error:
        return re.findall(r"\d+: ([A-Za-z<>*]+)", str(error))
    return []


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


class ObjectKernels:
    """The kernels of a folder on ``device``; each object is loaded when it is first needed."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        """ObjectsError for a folder that is not whole or is not for this GPU."""
        self.device = device
        self._folder, self._manifest = folder, read_manifest(folder)
        if device.type == "cuda":
            major, minor = torch.cuda.get_device_capability(device)
            if self._manifest.arch.rstrip("af") != f"{major}.{minor}":
                raise ObjectsError(
                    f"{folder} is for compute capability {self._manifest.arch}, {torch.cuda.get_device_name(device)} "
                    f"has {major}.{minor}; build it with make flashinfer-objects ARGS='--arch {major}.{minor}'"
                )
        self._page = load_object(folder / f"{PAGE}.so", ("append_paged_kv_cache",))
        self._attention: dict[str, Any] = {}
        self._float = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)

    def lacks(self, head_dim: int, dtype: torch.dtype) -> str | None:
        name, built = _dtype_name(dtype), self._manifest
        if name in built.dtypes and head_dim in built.head_dims:
            return None
        dims = ", ".join(map(str, built.head_dims))
        return (
            f"{self._folder} has kernels for {', '.join(built.dtypes)} and head dimensions {dims}, not for {name} "
            f"and {head_dim}; build it with make flashinfer-objects ARGS='--dtypes {name} --head-dims {head_dim}'"
        )

    def decode_slot(
        self, geometry: Geometry, page_size: int, *, exact: bool, fixed: PagedArrays | None
    ) -> _Decode:
        workspace = _Workspace(self._module(geometry), self._float, geometry, exact)
        return _Decode(workspace, page_size, captured=fixed is not None)

    def prefill_slot(self, geometry: Geometry, *, exact: bool) -> _Prefill:
        return _Prefill(_Workspace(self._module(geometry), self._float, geometry, exact))

    def append(self, k: Tensor, v: Tensor, k_pool: Tensor, v_pool: Tensor, device: PagedArrays) -> None:
        self._page.append_paged_kv_cache(
            k,
            v,
            device.batch_indices,
            device.positions,
            k_pool,
            v_pool,
            device.indices,
            device.indptr,
            device.last_page_len,
            _NHD,
        )

    def _module(self, geometry: Geometry) -> Any:
        if geometry.dtype != geometry.kv_dtype:
            raise ObjectsError(f"queries are {geometry.dtype}, the KV pool is {geometry.kv_dtype}")
        lack = self.lacks(geometry.head_dim, geometry.dtype)
        if lack is not None:
            raise ObjectsError(lack)
        name = attention_name(_dtype_name(geometry.dtype), geometry.head_dim)
        if name not in self._attention:
            functions = ("plan", "paged_run", "ragged_run")
            self._attention[name] = load_object(self._folder / f"{name}.so", functions)
        return self._attention[name]


class _Workspace:
    """Where one slot's schedule lies, on the device and, pinned, where it is made."""

    def __init__(self, module: Any, floats: Tensor, geometry: Geometry, exact: bool) -> None:
        self.module, self.floats, self.geometry, self.exact = module, floats, geometry, exact
        with torch.inference_mode(False):
            self.ints = torch.empty(INT_WORKSPACE_BYTES, dtype=torch.uint8, device=floats.device)
            pinned = floats.device.type == "cuda"
            self._host = torch.empty(INT_WORKSPACE_BYTES, dtype=torch.uint8, pin_memory=pinned)
        self.info: list[int] = []

    def plan(
        self,
        bounds: Tensor,
        key_bounds: Tensor,
        key_lengths: Tensor,
        page_size: int,
        *,
        one_each: bool,
        captured: bool,
    ) -> None:
        """``one_each``: every row has one query and need not be masked."""
        g = self.geometry
        self.info = list(
            self.module.plan(
                self.floats,
                self.ints,
                self._host,
                bounds,
                key_bounds,
                key_lengths,
                int(bounds[-1]),
                len(bounds) - 1,
                g.qo_heads,
                g.kv_heads,
                page_size,
                captured,
                g.head_dim,
                g.head_dim,
                not one_each,  # causal
                -1,  # no window
                -1,  # rows are not split at a fixed length
                self.exact,  # and not at all
                0,  # no other kernel beside it
                int(one_each),
                one_each,
            )
        )


class _Decode:
    def __init__(self, workspace: _Workspace, page_size: int, *, captured: bool) -> None:
        self._workspace, self._page_size, self._captured = workspace, page_size, captured
        self._arrays: PagedArrays | None = None
        self._bounds: Tensor | None = None

    @property
    def plan_info(self) -> list[int]:
        return self._workspace.info

    def plan(self, host: PagedArrays, device: PagedArrays) -> None:
        rows = len(host.last_page_len)
        bounds = torch.arange(rows + 1, dtype=torch.int32)
        lengths = (host.indptr.diff() - 1) * self._page_size + host.last_page_len
        self._workspace.plan(
            bounds, host.indptr, lengths, self._page_size, one_each=True, captured=self._captured
        )
        if self._bounds is None or len(self._bounds) != rows + 1:
            self._bounds = bounds.to(device.indptr.device)
        self._arrays = device

    def run(self, q: Tensor, k_pool: Tensor, v_pool: Tensor) -> Tensor:
        work, arrays = self._workspace, self._arrays
        assert arrays is not None, "run before plan"
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        work.module.paged_run(
            work.floats,
            work.ints,
            work.info,
            q,
            k_pool,
            v_pool,
            self._bounds,
            arrays.indptr,
            arrays.indices,
            arrays.last_page_len,
            out,
            None,
            _ALL,
            *_RUN,
            work.geometry.scale,
        )
        return out


class _Prefill:
    def __init__(self, workspace: _Workspace) -> None:
        self._workspace = workspace
        self._bounds: tuple[Tensor, Tensor] | None = None

    def plan(self, bounds: Tensor, key_bounds: Tensor) -> None:
        self._workspace.plan(bounds, key_bounds, key_bounds.diff(), 1, one_each=False, captured=False)
        device = self._workspace.floats.device
        self._bounds = bounds.to(device), key_bounds.to(device)

    def run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        work = self._workspace
        assert self._bounds is not None, "run before plan"
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        work.module.ragged_run(
            work.floats,
            work.ints,
            work.info,
            q,
            k,
            v,
            *self._bounds,
            out,
            None,
            _CAUSAL,
            *_RUN,
            work.geometry.scale,
        )
        return out


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
