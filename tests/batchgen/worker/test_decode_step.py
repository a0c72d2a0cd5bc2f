"""`DecodeScheduler.step`: eligibility -> prepare_replay_inputs -> replay as the request says, or nothing at all."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from batchgen.cuda_graph import BatchState, Glm5CudaGraphAdapter, StaticGraphManager
from batchgen.parallel import DataParallelManager
from batchgen.sequence import SequenceEntry
from batchgen.worker import decode, decode_protocols
from batchgen.worker.decode import DecodeScheduler
from batchgen.worker.decode_types import (
    GRAPHS_DISABLED,
    DecodeBatch,
    DecodeOutputs,
    DecodeStepRequest,
    DecodeStepResult,
    GraphDecision,
)
from migration.slices import load_recipe

from .conftest import MakeWorker, random_requests

RECIPE = load_recipe("decode")
REPLAY = GraphDecision(True, 2, "ok")


class Fakes:
    """An executor with everything that it is made of; `did` is what was called, in order."""

    def __init__(self, decision: GraphDecision | None = REPLAY, rows: int = 2) -> None:
        self.did: list[tuple[Any, ...]] = []
        self.decision, self.rows = decision, rows
        self.sequences = tuple(SequenceEntry(f"s{i}", i, 4, 4) for i in range(rows))
        lengths = torch.arange(5, 5 + rows, dtype=torch.int32)
        self.state = BatchState(
            rows, rows, (rows,), lengths, lengths.to(torch.int64) - 1, 9, list(range(rows)), None, 0, None
        )
        self.batch: DecodeBatch | None = DecodeBatch(
            self.state, self.sequences, torch.full((rows,), -1), lambda *a: None, None
        )
        self.logits = torch.arange(8 * 5, dtype=torch.float32).reshape(8, 5)
        self.replays = SimpleNamespace(replay=self.replay)

    @property
    def adapter(self) -> Any:
        return None if self.decision is None else self

    def eligibility(self, state: BatchState) -> GraphDecision:
        self.did.append(("eligibility", state))
        assert self.decision is not None
        return self.decision

    def prepare_replay_inputs(self, state: BatchState, bucket: int) -> dict[str, torch.Tensor]:
        self.did.append(("prepare", state, bucket))
        return {"input_ids": torch.zeros(0)}

    def replay(self, bucket: int, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self.did.append(("replay", bucket, inputs))
        return {"logits": self.logits}

    def stage_post_graph_kv(self, state: BatchState, outputs: Any, append: Any, append_aux: Any) -> None:
        assert self.batch is not None
        assert append is self.batch.append_kv and append_aux is self.batch.append_index_keys
        self.did.append(("stage", state, outputs))

    def compare_replay(self, state: BatchState, inputs: Any, outputs: Any) -> None:
        self.did.append(("compare", state, inputs, outputs))

    def forward_decode(self, batch: DecodeBatch) -> DecodeOutputs:
        self.did.append(("forward", batch))
        return DecodeOutputs(self.logits[: self.rows].unsqueeze(1))

    def request(self, **changes: Any) -> DecodeStepRequest:
        decision = GRAPHS_DISABLED if self.decision is None else self.decision
        state = self.state
        assert state.cache_seqlens is not None and state.position_ids is not None
        uuids = tuple(sequence.uuid for sequence in self.sequences)
        whole = DecodeStepRequest(uuids, state.cache_seqlens, state.position_ids, decision)
        return dataclasses.replace(whole, **changes)

    def scheduler(self, *, compare: bool = False) -> Any:
        def select(logits: torch.Tensor, sequences: list[SequenceEntry]) -> torch.Tensor:
            self.did.append(("select", logits.shape, [sequence.uuid for sequence in sequences]))
            return logits.argmax(dim=1)

        self.counters: Counter[str] = Counter()
        worker = SimpleNamespace(
            _select_tokens=select,
            _graph_flags=SimpleNamespace(compare=compare),
            counters=self.counters,
        )
        return DecodeScheduler(executor=self, sync=None).on(worker)

    def names(self) -> list[str]:
        return [call[0] for call in self.did]


def test_a_replay_is_decided_prepared_run_and_its_kv_staged_in_this_order() -> None:
    fakes = Fakes()
    result = fakes.scheduler().step(fakes.request())
    assert fakes.names() == ["eligibility", "prepare", "replay", "stage", "select"]
    assert [call[1] for call in fakes.did[:2]] == [fakes.state, fakes.state] and fakes.did[1][2] == 2
    assert fakes.did[-1] == ("select", (2, 5), ["s0", "s1"])  # rows of this rank, not of the bucket
    assert isinstance(result, DecodeStepResult) and result.decision is REPLAY
    assert result.next_tokens.tolist() == result.readback.tolist() == [4, 4]
    assert fakes.batch is not None and result.readback is fakes.batch.readback
    assert fakes.counters == {"graph_steps": 1}


def test_a_replay_is_compared_with_an_eager_run_where_the_flags_ask_for_it() -> None:
    fakes = Fakes()
    fakes.scheduler(compare=True).step(fakes.request())
    assert fakes.names() == ["eligibility", "prepare", "replay", "stage", "compare", "select"]
    replayed, staged, compared = fakes.did[2], fakes.did[3], fakes.did[4]
    assert compared[2] is replayed[2] and compared[3] is staged[2]


@pytest.mark.parametrize("decision", [None, GraphDecision(False, None, "bucket_not_captured")])
def test_a_step_that_cannot_replay_is_one_forward_of_the_executor(decision: GraphDecision | None) -> None:
    fakes = Fakes(decision)
    result = fakes.scheduler().step(fakes.request())
    asked = [] if decision is None else ["eligibility"]
    assert fakes.names() == [*asked, "forward", "select"] and result.decision == (decision or GRAPHS_DISABLED)


def test_an_empty_rank_steps_with_the_others() -> None:
    fakes = Fakes(rows=0)
    assert fakes.scheduler().step(fakes.request()).next_tokens.tolist() == []
    assert fakes.names() == ["eligibility", "prepare", "replay", "stage", "select"]


@pytest.mark.parametrize(
    "wanted",
    [
        GraphDecision(True, 4, "ok"),
        GraphDecision(False, None, "ok"),
        GraphDecision(True, 2, "bucket_not_captured"),
        GRAPHS_DISABLED,
    ],
)
def test_a_decision_that_differs_from_the_requests_is_an_error_before_anything_runs(
    wanted: GraphDecision,
) -> None:
    fakes = Fakes()
    with pytest.raises(RuntimeError, match=r"was to run by .*reason='.*'\), now it is .*bucket=2"):
        fakes.scheduler().step(fakes.request(cuda_graph_decision=wanted))
    assert fakes.names() == ["eligibility"] and not fakes.counters
    assert fakes.batch is not None and fakes.batch.readback.tolist() == [-1, -1]


@pytest.mark.parametrize("part", ["active_uuids", "cache_seqlens", "position_ids", "nothing staged"])
def test_another_batch_than_the_requests_is_refused(part: str) -> None:
    fakes = Fakes()
    changes: dict[str, Any] = {
        "active_uuids": {"active_uuids": ("s1", "s0")},
        "cache_seqlens": {"cache_seqlens": fakes.state.cache_seqlens.clone()},  # type: ignore[union-attr]
        "position_ids": {"position_ids": fakes.state.position_ids.clone()},  # type: ignore[union-attr]
        "nothing staged": {},
    }[part]
    req = fakes.request(**changes)
    if part == "nothing staged":
        fakes.batch = None
    with pytest.raises(RuntimeError, match="staged batch is not that of sequences"):
        fakes.scheduler().step(req)
    assert fakes.did == []


def test_the_adapter_is_asked_when_a_step_is_requested_and_again_when_it_is_launched(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[BatchState, GraphDecision]] = []
    original = Glm5CudaGraphAdapter.eligibility

    def watched(adapter: Glm5CudaGraphAdapter, state: BatchState) -> GraphDecision:
        asked.append((state, original(adapter, state)))
        return asked[-1][1]

    monkeypatch.setattr(Glm5CudaGraphAdapter, "eligibility", watched)
    worker = make_worker(gpu_kv_pages=40)
    worker.generate(random_requests(6, seed=4, new=(4, 12)))
    assert len(asked) == 2 * worker.counters["decode_steps"] > 0
    for (first, planned), (second, launched) in zip(asked[::2], asked[1::2], strict=True):
        assert first is second and planned == launched
    # Counted once: it is the request's.
    assert worker.graph_reasons == Counter(decision.reason for _, decision in asked[::2])


def test_a_worker_refuses_a_step_whose_adapter_has_changed_its_mind(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, asked = Glm5CudaGraphAdapter.eligibility, 0

    def changing(adapter: Glm5CudaGraphAdapter, state: BatchState) -> GraphDecision:
        nonlocal asked
        asked += 1
        return original(adapter, state) if asked < 8 else GraphDecision(False, None, "adapter_not_built")

    monkeypatch.setattr(Glm5CudaGraphAdapter, "eligibility", changing)
    worker = make_worker(gpu_kv_pages=40)
    with pytest.raises(RuntimeError, match=r"now it is .*adapter_not_built"):
        worker.generate(random_requests(3, seed=4, new=(8, 12)))
    assert worker.counters["decode_steps"] == 3


def test_the_handler_is_the_seeds_and_comes_from_the_codemod() -> None:
    (handler,) = (
        node
        for node in ast.parse(inspect.getsource(decode)).body
        if isinstance(node, ast.ClassDef) and node.name == RECIPE.handler_class
    )
    methods = {node.name: node for node in handler.body if isinstance(node, ast.FunctionDef)}
    made = ast.unparse(methods["__init__"].args)
    assert made == "self, *, executor: ModelExecutorBackend, sync: SyncCoordinator"
    step = methods["step"]
    assert step.returns is not None
    assert f"({ast.unparse(step.args)}) -> {ast.unparse(step.returns)}" == (
        "(self, req: DecodeStepRequest) -> DecodeStepResult"
    )
    assert [field.name for field in dataclasses.fields(DecodeStepRequest)] == [
        *("active_uuids", "cache_seqlens", "position_ids", "cuda_graph_decision")
    ]
    assert DecodeStepRequest.__dataclass_params__.frozen and DecodeStepResult.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert set(RECIPE.methods) < set(methods)


def test_step_alone_launches_a_forward() -> None:
    launching = {"forward_decode", "replay"}
    (handler,) = (
        node
        for node in ast.parse(inspect.getsource(decode)).body
        if isinstance(node, ast.ClassDef) and node.name == "DecodeScheduler"
    )
    found = {
        method.name
        for method in handler.body
        if isinstance(method, ast.FunctionDef)
        for node in ast.walk(method)
        if isinstance(node, ast.Call)
        and (
            getattr(node.func, "attr", "") in launching
            or ast.unparse(node.func).endswith(("_executor.model", ".model"))
        )
    }
    assert found == {"step"}


@pytest.mark.parametrize(
    ("protocol", "real"),
    [
        (decode_protocols.GraphAdapter, Glm5CudaGraphAdapter),
        (decode_protocols.GraphReplays, StaticGraphManager),
        (decode_protocols.ParallelRows, DataParallelManager),
    ],
    ids=lambda one: one.__name__,
)
def test_what_the_executor_shows_has_the_methods_of_its_protocol(protocol: type, real: type) -> None:
    members = [name for name in vars(protocol) if not name.startswith("_")]
    assert members
    for name in members:
        wanted, there = (inspect.signature(getattr(cls, name)).parameters for cls in (protocol, real))
        assert len(wanted) == len(there), name
        assert [p.kind for p in wanted.values()] == [p.kind for p in there.values()], name
