"""The FlashInfer backend over a double of the package: what it plans, when, and that it computes what torch does."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from batchgen.attention import AttentionBackend, IndexInputs, TorchPagedAttention
from batchgen.attention.flashinfer.objects import ObjectKernels
from batchgen.attention.flashinfer.package import PackageKernels, import_flashinfer
from batchgen.attention.flashinfer_paged import FlashInferPagedAttention
from tests.batchgen.attention import flashinfer_double as double
from tests.batchgen.attention.test_torch_paged import HEADS, KV_HEADS, SCALE, Paged, last_of, make_paged
from tests.batchgen.cuda_graph.harness import NUM_PAGES, PROMPTS, Decoder, tiny

Make = Callable[..., FlashInferPagedAttention]
CPU = torch.device("cpu")


@pytest.fixture(params=["package", "objects"])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Make:
    if request.param == "objects":
        folder = double.use_objects(monkeypatch, tmp_path, (8, 16))
        return lambda **options: FlashInferPagedAttention(ObjectKernels(folder, CPU), **options)
    return make_package(monkeypatch)


def make_package(monkeypatch: pytest.MonkeyPatch) -> Make:
    double.use(monkeypatch)
    return lambda **options: FlashInferPagedAttention(PackageKernels(CPU), **options)


def queries(rows: int) -> Tensor:
    return torch.randn(rows, HEADS, 8, generator=torch.Generator().manual_seed(rows))


def step(backend: AttentionBackend, paged: Paged, layers: int = 1) -> list[Tensor]:
    """Append and decode, in each of so many layers that share the pools."""
    plan = paged.plan(backend)
    outs = []
    for layer in range(layers):
        backend.append(last_of(paged.keys), last_of(paged.values), paged.k_pool, paged.v_pool, plan)
        q = queries(len(paged.lengths)) + layer
        outs.append(backend.decode(q, paged.k_pool, paged.v_pool, plan, scale=SCALE, row_exact=False))
    return outs


@pytest.mark.parametrize("lengths", [[1], [8, 4, 5], [0, 3, 0, 17], [0]])
def test_decode_is_the_reference_s_and_one_plan_serves_all_layers(make: Make, lengths: list[int]) -> None:
    ours, theirs = make_paged(lengths, 4, 1, new_token=True), make_paged(lengths, 4, 1, new_token=True)
    for out, expected in zip(step(make(), ours, 3), step(TorchPagedAttention(), theirs, 3), strict=True):
        assert torch.allclose(out, expected, atol=1e-5)
    assert torch.equal(ours.k_pool.nan_to_num(9), theirs.k_pool.nan_to_num(9))
    (plan,) = double.BatchDecodeWithPagedKVCacheWrapper.plans
    assert not plan["exact"]


def test_two_forwards_in_hand_at_once_do_not_read_each_other_s_plan(make: Make) -> None:
    backend = make()
    first, second = make_paged([5, 9], 4, 1), make_paged([3], 4, 2)
    plans = [paged.plan(backend) for paged in (first, second)]
    for _ in range(2):
        for paged, plan in zip((first, second), plans, strict=True):
            q = queries(len(paged.lengths))
            out, expected = (
                b.decode(q, paged.k_pool, paged.v_pool, p, scale=SCALE, row_exact=False)
                for b, p in ((backend, plan), (TorchPagedAttention(), paged.plan(TorchPagedAttention())))
            )
            assert torch.allclose(out, expected, atol=1e-5)


def test_a_plan_shows_by_position_what_was_bound_when_it_was_made(make: Make) -> None:
    paged = make_paged([6, 0, 4], 4, 3)
    lengths = torch.tensor(paged.lengths, dtype=torch.int32)
    plan = make().plan_decode(paged.table, lengths, 4, paged.scratch, 99)
    expected = paged.plan(TorchPagedAttention())
    paged.table.fill_(-1)
    lengths.fill_(0)
    assert plan.max_seqlen == expected.max_seqlen
    for name in ("token_indices", "kv_len", "mask", "write_indices"):
        assert torch.equal(getattr(plan, name), getattr(expected, name)), name
    with pytest.raises(AttributeError, match="has no attribute 'pages'"):
        plan.pages  # noqa: B018


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("before", [0, 3])
def test_prefill_is_the_reference_s_also_behind_a_prefix(make: Make, exact: bool, before: int) -> None:
    lengths = [4, 1, 6, 6]
    bounds = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    keys = [0, *(torch.tensor(lengths) + before).cumsum(0).tolist()]
    k, v = (torch.randn(keys[-1], KV_HEADS, 8) for _ in range(2))
    q = queries(bounds[-1])
    backend = make(exact=exact)
    expected = TorchPagedAttention().prefill(q, k, v, bounds, scale=SCALE, row_exact=False, cu_keys=keys)
    for _ in range(2):  # two layers
        out = backend.prefill(
            q, k, v, torch.tensor(bounds), scale=SCALE, row_exact=False, cu_keys=keys if before else None
        )
        assert torch.allclose(out, expected, atol=1e-5)
    plans = double.BatchPrefillWithRaggedKVCacheWrapper.plans
    assert all(plan["exact"] is exact and plan["causal"] for plan in plans)
    # Exact: each sequence by itself, so that none of it depends on the others; two alike in a row share a plan.
    assert [len(plan["indptr"]) - 1 for plan in plans] == ([1] * 6 if exact else [4])


def test_exact_decode_is_not_split(make: Make) -> None:
    step(make(exact=True), make_paged([5, 9], 4, 1, new_token=True))
    assert [plan["exact"] for plan in double.BatchDecodeWithPagedKVCacheWrapper.plans] == [True]


def test_what_flashinfer_has_no_kernel_for_is_the_reference_s(make: Make) -> None:
    backend, reference = make(), TorchPagedAttention()
    paged = make_paged([7, 2], 4, 5)
    q = queries(2)
    index = IndexInputs(torch.randn(2, 2, 8), torch.randn(2, 1, 8), torch.randn(2, 2), 3)
    pool = torch.randn(paged.k_pool.shape[0], 4, 1, 8)
    chosen = backend.select_decode(index, pool, paged.plan(backend), row_exact=False)
    assert torch.equal(chosen, reference.select_decode(index, pool, paged.plan(reference), row_exact=False))
    for extra in ({"row_exact": False, "topk": chosen}, {"row_exact": True}):
        out, expected = (
            b.decode(q, paged.k_pool, paged.v_pool, paged.plan(b), scale=SCALE, **extra)
            for b in (backend, reference)
        )
        assert torch.equal(out, expected)
    backend.append(index.k, None, pool, None, paged.plan(backend))
    assert torch.equal(pool.view(-1, 1, 8)[paged.plan(reference).write_indices], index.k)
    k, v = torch.randn(9, KV_HEADS, 8), torch.randn(9, KV_HEADS, 8)
    allowed = torch.zeros(9, 1, dtype=torch.int64)
    for extra in ({"row_exact": False, "allowed": allowed}, {"row_exact": True}):
        out, expected = (
            b.prefill(queries(9), k, v, [0, 7, 9], scale=SCALE, **extra) for b in (backend, reference)
        )
        assert torch.equal(out, expected)
    assert not double.BatchDecodeWithPagedKVCacheWrapper.plans
    assert not double.BatchPrefillWithRaggedKVCacheWrapper.plans


def captured(backend: AttentionBackend, model: str = "tiny") -> Decoder:
    decoder = Decoder(tiny(model))
    decoder.backend = backend  # type: ignore[assignment]
    decoder.admit(PROMPTS)
    for bucket in (1, 4, 8):
        decoder.capture(bucket)
    return decoder


def steps(decoder: Decoder) -> list[Tensor]:
    """Rows that come and go, so that buckets are padded and rows cross page bounds."""
    logits = []
    for rows in ((7, 3, 5), (7, 3, 5, 2, 11), (2,), (7, 3, 5), (11, 2, 5, 3), (7, 5, 11)):
        logits += [decoder.replay(rows) for _ in range(3)]
    return logits


@pytest.mark.parametrize("model", ["tiny", "tiny-dual"])
def test_a_captured_step_is_planned_before_each_replay_and_never_inside_it(make: Make, model: str) -> None:
    expected = steps(captured(TorchPagedAttention(), model))
    decoder = captured(make(), model)
    for bucket in (1, 4, 8):
        run = decoder.manager._captured[bucket].run

        def inside(run: Callable[[], None] = run) -> None:
            with double.in_capture():
                run()

        decoder.manager._captured[bucket].run = inside
    for out, want in zip(steps(decoder), expected, strict=True):
        assert torch.allclose(out, want, atol=1e-4)


def test_addresses_that_a_captured_step_reads_stay_and_hold_no_page_of_an_earlier_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = captured(make_package(monkeypatch)())
    (wrapper,) = (w for w in double.BatchDecodeWithPagedKVCacheWrapper.captured if len(w.buffers[2]) == 4)
    indptr, indices, last_page_len = wrapper.buffers
    places = [buffer.data_ptr() for buffer in wrapper.buffers]
    decoder.replay((11, 5, 7))
    used = int(indptr[-1])
    decoder.replay((3, 2, 7))
    assert [buffer.data_ptr() for buffer in wrapper.buffers] == places
    now = int(indptr[-1])
    assert now < used and set(indices[now:].tolist()) == {NUM_PAGES}
    # The padded row has the scratch page, and of it the first slot.
    assert indices[now - 1] == NUM_PAGES and last_page_len[3] == 1


def test_a_released_capture_takes_its_buffers_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = captured(make_package(monkeypatch)())
    wrappers = double.BatchDecodeWithPagedKVCacheWrapper.captured
    assert len(wrappers) == 3
    decoder.manager.release()
    gc.collect()
    assert len(wrappers) == 0


def test_a_plan_that_is_laid_out_otherwise_than_at_the_capture_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = captured(make_package(monkeypatch)())
    plan = double.BatchDecodeWithPagedKVCacheWrapper.plan

    def other(self, *args, **kwargs):
        plan(self, *args, **kwargs)
        self._plan_info = [*self._plan_info, 1]

    monkeypatch.setattr(double.BatchDecodeWithPagedKVCacheWrapper, "plan", other)
    with pytest.raises(RuntimeError, match=r"FlashInfer planned \[.*run without CUDA graphs"):
        decoder.replay((7, 3, 5))


def test_a_missing_package_is_one_line_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(
        ImportError, match=r"cannot be imported .*pip install flashinfer-python, or give"
    ) as found:
        import_flashinfer()
    assert "\n" not in str(found.value)
