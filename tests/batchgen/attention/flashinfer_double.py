"""FlashInfer's wrappers as far as the engine uses them, in plain torch, with what they demand of their caller.

`use` puts it in the place of the package.  It follows version 0.7.4: what a plan takes from the host, what is copied
into the buffers of a captured wrapper, and what a run then reads.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from batchgen.attention.flashinfer.manifest import Manifest, attention_name, sha256, write_manifest


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Tensor:
    """``q`` [n, Hq, D] over [m, Hkv, D]; the queries are those of the last positions."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1).float() for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.float(), k) * scale
    if causal:
        seen = torch.ones(len(q), len(k), dtype=torch.bool).tril_(len(k) - len(q))
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.einsum("hqk,khd->qhd", torch.softmax(scores, -1), v).to(q.dtype)


class _Wrapper:
    plans: ClassVar[list[dict[str, Any]]]
    captured: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()
    in_capture = False

    def _planned(self, **facts: Any) -> None:
        assert not _Wrapper.in_capture, "plan cannot be used in a CUDA graph"
        for name in ("indptr", "last_page_len"):
            if name in facts:
                assert facts[name].device.type == "cpu" and facts[name].dtype == torch.int32
        assert facts["num_qo_heads"] % facts["num_kv_heads"] == 0
        self.facts = facts
        type(self).plans.append(facts)

    def _check_dtypes(self, q: Tensor, k: Tensor) -> None:
        assert (q.dtype, k.dtype) == (self.facts["q_data_type"], self.facts["kv_data_type"])


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    plans: ClassVar[list[dict[str, Any]]] = []

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: Tensor | None = None,
        paged_kv_indices_buffer: Tensor | None = None,
        paged_kv_last_page_len_buffer: Tensor | None = None,
        backend: str = "auto",
    ) -> None:
        assert kv_layout == "NHD" and use_tensor_cores and backend == "fa2"
        buffers = (paged_kv_indptr_buffer, paged_kv_indices_buffer, paged_kv_last_page_len_buffer)
        assert all((buffer is not None) == use_cuda_graph for buffer in buffers)
        self.buffers, self.graph = buffers, use_cuda_graph
        self._plan_info: list[int] = []
        if use_cuda_graph:
            self.captured.add(self)

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        q_data_type: Any = torch.float16,
        kv_data_type: Any = None,
        sm_scale: float | None = None,
        disable_split_kv: bool = False,
    ) -> None:
        rows = len(last_page_len)
        assert len(indptr) == rows + 1 and len(indices) == int(indptr[-1]) and indices.dtype == torch.int32
        assert ((last_page_len >= 1) & (last_page_len <= page_size)).all() and (indptr.diff() >= 1).all()
        self._planned(
            indptr=indptr,
            last_page_len=last_page_len,
            num_qo_heads=num_qo_heads,
            num_kv_heads=num_kv_heads,
            q_data_type=q_data_type,
            kv_data_type=kv_data_type,
            sm_scale=sm_scale,
            exact=disable_split_kv,
        )
        if self.graph:
            fixed_indptr, fixed_indices, fixed_last = self.buffers
            assert fixed_indptr is not None and fixed_indices is not None and fixed_last is not None
            assert len(fixed_last) == rows, "the batch size is fixed"
            fixed_indptr.copy_(indptr)
            fixed_last.copy_(last_page_len)
            fixed_indices[: len(indices)].copy_(indices)
        else:
            self.buffers = indptr, indices, last_page_len
        # The schedule, which lies in a workspace of the wrapper's own.
        self.kv_lens = (indptr.diff() - 1) * page_size + last_page_len
        self._plan_info = [rows, num_qo_heads, int(disable_split_kv), int(self.graph)]

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor]) -> Tensor:
        k_pool, v_pool = paged_kv_cache
        self._check_dtypes(q, k_pool)
        indptr, indices, last = (buffer.tolist() for buffer in self.buffers if buffer is not None)
        rows = []
        for row, ((first, stop), tail) in enumerate(zip(pairwise(indptr), last, strict=True)):
            kv_len = (stop - first - 1) * k_pool.shape[1] + tail
            assert kv_len == int(self.kv_lens[row]), (
                "the schedule does not cover the row: no plan since it grew"
            )
            pages = indices[first:stop]
            keys, values = (pool[pages].flatten(0, 1)[:kv_len] for pool in (k_pool, v_pool))
            rows.append(attend(q[row : row + 1], keys, values, self.facts["sm_scale"], causal=False))
        return torch.cat(rows)


class BatchPrefillWithRaggedKVCacheWrapper(_Wrapper):
    plans: ClassVar[list[dict[str, Any]]] = []

    def __init__(
        self, float_workspace_buffer: Tensor, kv_layout: str = "NHD", *, backend: str = "auto"
    ) -> None:
        assert kv_layout == "NHD" and backend == "fa2"

    def plan(
        self,
        qo_indptr: Tensor,
        kv_indptr: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        *,
        causal: bool = False,
        sm_scale: float | None = None,
        q_data_type: Any = torch.float16,
        kv_data_type: Any = None,
        disable_split_kv: bool = False,
    ) -> None:
        self._planned(
            indptr=qo_indptr,
            kv_indptr=kv_indptr,
            num_qo_heads=num_qo_heads,
            num_kv_heads=num_kv_heads,
            q_data_type=q_data_type,
            kv_data_type=kv_data_type,
            sm_scale=sm_scale,
            causal=causal,
            exact=disable_split_kv,
        )

    def run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._check_dtypes(q, k)
        bounds, keys = pairwise(self.facts["indptr"].tolist()), pairwise(self.facts["kv_indptr"].tolist())
        parts = [
            attend(q[a:b], k[c:d], v[c:d], self.facts["sm_scale"], self.facts["causal"])
            for (a, b), (c, d) in zip(bounds, keys, strict=True)
        ]
        assert int(self.facts["indptr"][-1]) == len(q)
        return torch.cat(parts)


def append_paged_kv_cache(
    append_key: Tensor,
    append_value: Tensor,
    batch_indices: Tensor,
    positions: Tensor,
    paged_kv_cache: tuple[Tensor, Tensor],
    kv_indices: Tensor,
    kv_indptr: Tensor,
    kv_last_page_len: Tensor,
    kv_layout: str = "NHD",
) -> None:
    k_pool, v_pool = paged_kv_cache
    assert kv_layout == "NHD" and append_key.dtype == k_pool.dtype and append_value.dtype == v_pool.dtype
    size = k_pool.shape[1]
    for at, (row, position) in enumerate(zip(batch_indices.tolist(), positions.tolist(), strict=True)):
        first, stop = kv_indptr[row : row + 2].tolist()
        assert 0 <= position < (stop - first - 1) * size + int(kv_last_page_len[row]), (
            "not counted in the plan"
        )
        page = int(kv_indices[first + position // size])
        k_pool[page, position % size] = append_key[at]
        v_pool[page, position % size] = append_value[at]


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the package, for one test."""
    module = ModuleType("flashinfer")
    for part in (
        BatchDecodeWithPagedKVCacheWrapper,
        BatchPrefillWithRaggedKVCacheWrapper,
        append_paged_kv_cache,
    ):
        setattr(module, part.__name__, part)
    monkeypatch.setitem(sys.modules, "flashinfer", module)
    for wrapper in (BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithRaggedKVCacheWrapper):
        monkeypatch.setattr(wrapper, "plans", [])
        monkeypatch.setattr(wrapper, "captured", weakref.WeakSet())


@contextmanager
def in_capture() -> Iterator[None]:
    """Inside, a plan is refused, as it is inside a CUDA graph."""
    _Wrapper.in_capture = True
    try:
        yield
    finally:
        _Wrapper.in_capture = False


# Prebuilt objects, as tvm_ffi loads them.

_TENSOR = "DLTensor*"
PLAN = [_TENSOR] * 6 + ["int"] * 5 + ["bool"] + ["int", "int", "bool"] * 3
_RUN = [_TENSOR, _TENSOR, "Array<int>"] + [_TENSOR] * 3
_REST = [_TENSOR, "Optional<DLTensor*>", "int", "int", "int", "bool", "float"]


class Function:
    def __init__(self, name: str, types: list[str], body: Any) -> None:
        self.name, self.types, self.body = name, types, body

    def __call__(self, *args: Any) -> Any:
        if len(args) != len(self.types):
            shown = ", ".join(f"{at}: {kind}" for at, kind in enumerate(self.types))
            raise TypeError(
                f"Mismatched number of arguments when calling: `{self.name}({shown}) -> void`. "
                f"Expected {len(self.types)} but got {len(args)} arguments"
            )
        assert all(
            isinstance(arg, Tensor) for arg, kind in zip(args, self.types, strict=True) if kind == _TENSOR
        )
        return self.body(*args)


def _object_plan(
    floats: Tensor,
    ints: Tensor,
    pinned: Tensor,
    bounds: Tensor,
    key_bounds: Tensor,
    lengths: Tensor,
    *rest: Any,
) -> list[int]:
    total, rows, qo_heads, kv_heads, page_size, graph, dim, same, causal, window, fixed, exact, *uniform = (
        rest
    )
    assert not _Wrapper.in_capture, "plan cannot be used in a CUDA graph"
    assert all(x.dtype == torch.int32 and x.device.type == "cpu" for x in (bounds, key_bounds, lengths))
    assert (total, rows, len(lengths), dim) == (int(bounds[-1]), len(bounds) - 1, rows, same)
    assert (window, fixed) == (-1, -1) and uniform == [0, 0 if causal else 1, not causal]
    wrapper = BatchPrefillWithRaggedKVCacheWrapper if causal else BatchDecodeWithPagedKVCacheWrapper
    wrapper.plans.append({"indptr": bounds if causal else key_bounds, "causal": causal, "exact": exact})
    # The schedule lies in a workspace of the caller's; what is given back is where.
    ints[: 4 * rows].view(torch.int32).copy_(lengths)
    return [rows, qo_heads, kv_heads, page_size, int(graph), int(exact)]


def _object_paged_run(floats: Tensor, ints: Tensor, info: list[int], q: Tensor, *rest: Any) -> None:
    k_pool, v_pool, bounds, indptr, indices, last, out, lse, mask, layout, window, pdl, scale = rest
    rows, page_size = info[0], info[3]
    assert (mask, layout, window, pdl, lse) == (0, 0, -1, False, None) and k_pool.shape[1] == page_size
    assert bounds.tolist() == list(range(rows + 1)) and len(q) == rows == len(last)
    scheduled = ints[: 4 * rows].view(torch.int32).tolist()
    for row, (first, stop) in enumerate(pairwise(indptr.tolist())):
        kv_len = (stop - first - 1) * page_size + int(last[row])
        assert kv_len == scheduled[row], "the schedule does not cover the row: no plan since it grew"
        keys, values = (pool[indices[first:stop].long()].flatten(0, 1)[:kv_len] for pool in (k_pool, v_pool))
        out[row : row + 1] = attend(q[row : row + 1], keys, values, scale, causal=False)


def _object_ragged_run(floats: Tensor, ints: Tensor, info: list[int], q: Tensor, *rest: Any) -> None:
    k, v, bounds, key_bounds, out, lse, mask, layout, window, pdl, scale = rest
    assert (mask, layout, window, pdl, lse) == (1, 0, -1, False, None)
    assert ints[: 4 * info[0]].view(torch.int32).tolist() == key_bounds.diff().tolist()
    for (a, b), (c, d) in zip(pairwise(bounds.tolist()), pairwise(key_bounds.tolist()), strict=True):
        out[a:b] = attend(q[a:b], k[c:d], v[c:d], scale, causal=True)


def _object_append(*args: Any) -> None:
    k, v, batch_indices, positions, k_pool, v_pool, indices, indptr, last_page_len, layout = args
    assert layout == 0
    append_paged_kv_cache(k, v, batch_indices, positions, (k_pool, v_pool), indices, indptr, last_page_len)


def load_module(path: Path) -> SimpleNamespace:
    """As version 0.7.4 builds them."""
    if path.name == "page.so":
        name, types = "append_paged_kv_cache", [_TENSOR] * 9 + ["int"]
        return SimpleNamespace(append_paged_kv_cache=Function(name, types, _object_append))
    return SimpleNamespace(
        plan=Function("plan", PLAN, _object_plan),
        paged_run=Function("paged_run", _RUN + [_TENSOR] * 4 + _REST, _object_paged_run),
        ragged_run=Function("ragged_run", _RUN + [_TENSOR] * 2 + _REST, _object_ragged_run),
    )


def use_objects(
    monkeypatch: pytest.MonkeyPatch, folder: Path, dims: tuple[int, ...], dtype: str = "float32"
) -> Path:
    """tvm_ffi, and a folder of objects for it; their plans are counted as the package's are."""
    use(monkeypatch)
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    module = ModuleType("tvm_ffi")
    module.load_module = load_module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tvm_ffi", module)
    names = ["page.so", *(f"{attention_name(dtype, dim)}.so" for dim in dims)]
    for name in names:
        (folder / name).write_text(name)
    files = {name: sha256(folder / name) for name in names}
    write_manifest(folder, Manifest("0.7.4", "13.0", "9.0a", (dtype,), dims, files))
    return folder
