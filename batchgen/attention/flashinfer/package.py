"""The kernels of an installed FlashInfer, through its wrappers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from batchgen.attention.flashinfer.arrays import PagedArrays
from batchgen.attention.flashinfer.kernels import WORKSPACE_BYTES, Geometry, unsupported

__all__ = ["PackageKernels", "import_flashinfer"]


def import_flashinfer() -> Any:
    """ImportError, in one line, whatever its own import ends with."""
    try:
        import flashinfer
    except Exception as error:
        raise ImportError(
            f"the package flashinfer cannot be imported ({type(error).__name__}: {error}); "
            "pip install flashinfer-python, or give a folder of prebuilt kernels with --flashinfer-objects"
        ) from error
    return flashinfer


class PackageKernels:
    """Decode runs on tensor cores (fa2): the only kernels for any group size that can be told not to split a row."""

    def __init__(self, device: torch.device) -> None:
        """ImportError without FlashInfer."""
        self.device = device
        self._flashinfer = import_flashinfer()
        self._workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)

    def lacks(self, head_dim: int, dtype: torch.dtype) -> str | None:
        return unsupported(head_dim, dtype)

    def decode_slot(
        self, geometry: Geometry, page_size: int, *, exact: bool, fixed: PagedArrays | None
    ) -> _Decode:
        buffers: dict[str, Any] = {}
        if fixed is not None:
            buffers = {
                "use_cuda_graph": True,
                "paged_kv_indptr_buffer": fixed.indptr,
                "paged_kv_indices_buffer": fixed.indices,
                "paged_kv_last_page_len_buffer": fixed.last_page_len,
            }
        wrapper = self._flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            self._workspace, "NHD", use_tensor_cores=True, backend="fa2", **buffers
        )
        return _Decode(wrapper, geometry, page_size, exact)

    def prefill_slot(self, geometry: Geometry, *, exact: bool) -> _Prefill:
        wrapper = self._flashinfer.BatchPrefillWithRaggedKVCacheWrapper(self._workspace, "NHD", backend="fa2")
        return _Prefill(wrapper, geometry, exact)

    def append(self, k: Tensor, v: Tensor, k_pool: Tensor, v_pool: Tensor, device: PagedArrays) -> None:
        self._flashinfer.append_paged_kv_cache(
            k,
            v,
            device.batch_indices,
            device.positions,
            (k_pool, v_pool),
            device.indices,
            device.indptr,
            device.last_page_len,
            "NHD",
        )


class _Decode:
    def __init__(self, wrapper: Any, geometry: Geometry, page_size: int, exact: bool) -> None:
        self._wrapper, self._geometry, self._page_size, self._exact = wrapper, geometry, page_size, exact

    @property
    def plan_info(self) -> list[int]:
        return list(self._wrapper._plan_info)

    def plan(self, host: PagedArrays, device: PagedArrays) -> None:
        g = self._geometry
        self._wrapper.plan(
            host.indptr,
            device.indices[: int(host.indptr[-1])],
            host.last_page_len,
            g.qo_heads,
            g.kv_heads,
            g.head_dim,
            self._page_size,
            # Without this one it plans for float16, whatever else is given.
            q_data_type=g.dtype,
            kv_data_type=g.kv_dtype,
            sm_scale=g.scale,
            disable_split_kv=self._exact,
        )

    def run(self, q: Tensor, k_pool: Tensor, v_pool: Tensor) -> Tensor:
        out: Tensor = self._wrapper.run(q, (k_pool, v_pool))
        return out


class _Prefill:
    def __init__(self, wrapper: Any, geometry: Geometry, exact: bool) -> None:
        self._wrapper, self._geometry, self._exact = wrapper, geometry, exact

    def plan(self, bounds: Tensor, key_bounds: Tensor) -> None:
        g = self._geometry
        self._wrapper.plan(
            bounds,
            key_bounds,
            g.qo_heads,
            g.kv_heads,
            g.head_dim,
            causal=True,
            sm_scale=g.scale,
            q_data_type=g.dtype,
            kv_data_type=g.kv_dtype,
            disable_split_kv=self._exact,
        )

    def run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = self._wrapper.run(q, k, v)
        return out
