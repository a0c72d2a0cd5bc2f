"""FlashInfer's real kernels, of the package and of prebuilt objects, against the torch reference, on a GPU."""

from __future__ import annotations

import os
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from batchgen.attention import TorchPagedAttention
from batchgen.attention.flashinfer.kernels import Kernels
from batchgen.attention.flashinfer.manifest import MANIFEST
from batchgen.attention.flashinfer.objects import ObjectKernels
from batchgen.attention.flashinfer.package import PackageKernels
from batchgen.attention.flashinfer_paged import FlashInferPagedAttention
from batchgen.models import load_model
from tests.batchgen.attention.teacher import teacher_forced

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
GPU = torch.device("cuda")
OBJECTS = Path(os.environ.get("BATCHGEN_FLASHINFER_OBJECTS", "out/flashinfer-objects"))
LENGTHS = [1, 16, 17, 0, 64, 65, 333, 0, 1000]
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
HEADS = pytest.mark.parametrize("heads", [(9, 3), (8, 8), (32, 8), (16, 1)])
DIMS = pytest.mark.parametrize("dim", [64, 128])


HERE = {
    "package": find_spec("flashinfer") is not None,
    "objects": find_spec("tvm_ffi") is not None and (OBJECTS / MANIFEST).exists(),
}


@pytest.fixture(scope="module", params=[name for name, here in HERE.items() if here] or ["none"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """Those that this machine has; without any, nothing is tested and `make gpu` says so."""
    if request.param == "none":
        pytest.skip(f"neither FlashInfer nor tvm_ffi with objects in {OBJECTS} (BATCHGEN_FLASHINFER_OBJECTS)")
    return PackageKernels(GPU) if request.param == "package" else ObjectKernels(OBJECTS, GPU)


def served(kernels: Kernels, dim: int, dtype: torch.dtype) -> Kernels:
    lack = kernels.lacks(dim, dtype)
    if lack is not None:
        pytest.skip(lack)
    return kernels


def relative(found: Tensor, expected: Tensor) -> float:
    """The worst relative L2 of a row and head."""
    found, expected = found.double(), expected.double()
    return float(((found - expected).norm(dim=-1) / expected.norm(dim=-1)).max())


def bound(dtype: torch.dtype) -> float:
    """Four roundings of the result."""
    return 4 * torch.finfo(dtype).eps


class Batch:
    """Rows of random KV in pages in random order; slots without a token are NaN, but for the scratch page's first."""

    def __init__(
        self, lengths: list[int], heads: tuple[int, int], dim: int, page: int, dtype: torch.dtype
    ) -> None:
        generator = torch.Generator().manual_seed(len(lengths) * page)
        counts = [-(-length // page) for length in lengths]
        total = sum(counts)
        order = torch.randperm(total, generator=generator).tolist()
        self.page, self.scratch = page, total
        self.pools = [torch.full((total + 1, page, heads[1], dim), float("nan")) for _ in range(2)]
        self.table = torch.full((len(lengths), max(counts)), -1, dtype=torch.int32)
        for row, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            pages = [order.pop() for _ in range(count)]
            self.table[row, :count] = torch.tensor(pages, dtype=torch.int32)
            for pool in self.pools:
                flat = torch.randn(count * page, heads[1], dim, generator=generator)
                flat[length - 1 if length else 0 :] = float("nan")  # the last one is still to be appended
                pool[pages] = flat.view(count, page, heads[1], dim)
        self.table = self.table.to(GPU)
        self.pools = [pool.to(GPU, dtype) for pool in self.pools]
        self.lengths = torch.tensor(lengths, dtype=torch.int32, device=GPU)
        self.longest = max(lengths)
        new = torch.randn(3, len(lengths), max(heads), dim, generator=generator).to(GPU, dtype)
        self.q, self.k, self.v = new[0, :, : heads[0]], new[1, :, : heads[1]], new[2, :, : heads[1]]
        self.scale = dim**-0.5

    def step(self, backend: FlashInferPagedAttention | TorchPagedAttention) -> Tensor:
        plan = backend.plan_decode(self.table, self.lengths, self.page, self.scratch, self.longest)
        backend.append(self.k, self.v, *self.pools, plan)
        return backend.decode(self.q, *self.pools, plan, scale=self.scale, row_exact=False)

    def reference(self) -> Tensor:
        """In float32, from the values as they were rounded."""
        pools, rows = [pool.float() for pool in self.pools], [x.float() for x in (self.q, self.k, self.v)]
        backend = TorchPagedAttention()
        plan = backend.plan_decode(self.table, self.lengths, self.page, self.scratch, self.longest)
        backend.append(rows[1], rows[2], *pools, plan)
        for ours, theirs in zip(self.pools, pools, strict=True):
            assert torch.equal(
                ours[: self.scratch].nan_to_num(9), theirs[: self.scratch].to(ours.dtype).nan_to_num(9)
            )
        return backend.decode(rows[0], *pools, plan, scale=self.scale, row_exact=False)


@DTYPES
@HEADS
@DIMS
@pytest.mark.parametrize("page", [1, 16, 64])
@pytest.mark.parametrize("exact", [False, True])
def test_decode_and_append_are_the_reference_s(
    kernels: Kernels, exact: bool, page: int, dim: int, heads: tuple[int, int], dtype: torch.dtype
) -> None:
    batch = Batch(LENGTHS, heads, dim, page, dtype)
    out = batch.step(FlashInferPagedAttention(served(kernels, dim, dtype), exact=exact))
    live = batch.lengths > 0
    assert relative(out[live], batch.reference()[live]) < bound(dtype)
    assert torch.isfinite(out).all()  # padded rows see the scratch page's one slot


@DTYPES
@HEADS
@DIMS
@pytest.mark.parametrize("before", [0, 48])
@pytest.mark.parametrize("exact", [False, True])
def test_prefill_is_the_reference_s(
    kernels: Kernels, exact: bool, before: int, dim: int, heads: tuple[int, int], dtype: torch.dtype
) -> None:
    lengths = torch.tensor([1, 16, 130, 16, 700])
    bounds, keys = ([0, *part.cumsum(0).tolist()] for part in (lengths, lengths + before))
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(bounds[-1], heads[0], dim, generator=generator).to(GPU, dtype)
    k, v = (torch.randn(keys[-1], heads[1], dim, generator=generator).to(GPU, dtype) for _ in range(2))
    backend = FlashInferPagedAttention(served(kernels, dim, dtype), exact=exact)
    out = backend.prefill(q, k, v, bounds, scale=dim**-0.5, row_exact=False, cu_keys=keys)
    expected = TorchPagedAttention().prefill(
        q.float(), k.float(), v.float(), bounds, scale=dim**-0.5, row_exact=False, cu_keys=keys
    )
    assert relative(out, expected) < bound(dtype)


def test_exact_rows_are_bit_for_bit_what_they_are_alone(kernels: Kernels) -> None:
    served(kernels, 64, torch.bfloat16)
    backend = FlashInferPagedAttention(kernels, exact=True)
    batch = Batch(LENGTHS, (9, 3), 64, 16, torch.bfloat16)
    together = batch.step(backend)
    for row, length in enumerate(LENGTHS):
        part = slice(row, row + 1)
        plan = backend.plan_decode(batch.table[part], batch.lengths[part], 16, batch.scratch, length)
        alone = backend.decode(batch.q[part], *batch.pools, plan, scale=batch.scale, row_exact=False)
        assert torch.equal(together[part], alone), length
    bounds = [0, 5, 300, 310]
    q, k, v = (torch.randn(310, heads, 64, device=GPU, dtype=torch.bfloat16) for heads in (9, 3, 3))
    packed = backend.prefill(q, k, v, bounds, scale=0.125, row_exact=False)
    for start, stop in pairwise(bounds):
        part = slice(start, stop)
        alone = backend.prefill(q[part], k[part], v[part], [0, stop - start], scale=0.125, row_exact=False)
        assert torch.equal(packed[part], alone)


@pytest.mark.parametrize("exact", [False, True])
def test_a_graph_follows_lengths_that_it_was_not_captured_with(kernels: Kernels, exact: bool) -> None:
    served(kernels, 64, torch.bfloat16)
    backend = FlashInferPagedAttention(kernels, exact=exact)
    batch = Batch(LENGTHS, (9, 3), 64, 16, torch.bfloat16)
    wanted, batch.lengths = batch.lengths.clone(), torch.zeros_like(batch.lengths)

    def ahead() -> None:
        backend.plan_ahead(batch.table, batch.lengths, batch.page, batch.scratch)

    ahead()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        batch.step(backend)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = batch.step(backend)
    for lengths in (wanted, torch.flip(wanted, (0,)).minimum(wanted), wanted):
        batch.lengths.copy_(lengths)
        ahead()
        graph.replay()
        live = lengths > 0
        assert relative(out[live], batch.reference()[live]) < bound(torch.bfloat16)


def test_a_capture_that_nobody_planned_ahead_for_is_refused(kernels: Kernels) -> None:
    served(kernels, 64, torch.bfloat16)
    batch = Batch([5, 9], (9, 3), 64, 16, torch.bfloat16)
    with (
        pytest.raises(RuntimeError, match="nobody planned ahead"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        batch.step(FlashInferPagedAttention(kernels))


@pytest.mark.parametrize("exact", [False, True])
def test_a_run_of_given_tokens_is_as_near_to_float32_as_the_reference_is(
    kernels: Kernels, exact: bool
) -> None:
    """The real model, every row and step, by captured graphs."""
    served(kernels, 64, torch.bfloat16)
    full = teacher_forced(load_model("smollm2", dtype=torch.float32, device=GPU), TorchPagedAttention())
    half = load_model("smollm2", dtype=torch.bfloat16, device=GPU)
    ours, theirs = (
        (teacher_forced(half, backend) - full).norm(dim=-1) / full.norm(dim=-1)
        for backend in (FlashInferPagedAttention(kernels, exact=exact), TorchPagedAttention())
    )
    print(f"relative L2 to float32: FlashInfer {ours.max():.2e}, reference {theirs.max():.2e}")
    assert ours.max() < 2 * theirs.max() and ours.mean() < 1.5 * theirs.mean()
