"""Whatever the requests and however scarce the pool: the streams are those of an ample one (P8), on real models."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from batchgen.models import LoadedModel, load_model
from batchgen.requests.types import GenerationResult, StepParams, TokenizedRequest
from batchgen.sampling import SamplingParams
from batchgen.scheduler.engine.admission import blocks_of
from batchgen.scheduler.engine.device import ModelDevice
from batchgen.scheduler.engine.loop import Knobs
from batchgen.scheduler.engine.worker import StepWorker
from batchgen.scheduler.file_spill import FileSpill
from tests.batchgen.scheduler.engine.conftest import assert_nothing_held, by_id

BLOCK, ROWS = 2, 4
TOOL = {"type": "function", "function": {"name": "f"}}


@dataclass(frozen=True)
class Case:
    """`slack`: blocks beyond what the largest request needs."""

    requests: tuple[TokenizedRequest, ...]
    slack: int
    adaptive: bool
    patience: int

    @property
    def blocks(self) -> int:
        needs = (len(r.prompt_token_ids) + r.sampling.max_tokens for r in self.requests)
        return max(blocks_of(need, BLOCK) for need in needs) + 1 + self.slack


@st.composite
def cases(draw: st.DrawFn) -> Case:
    requests = []
    for number in range(draw(st.integers(2, 5))):
        prompt = draw(st.lists(st.integers(32, 126), min_size=1, max_size=10))
        thinks = draw(st.booleans())
        requests.append(
            TokenizedRequest(
                f"r{number}",
                (*prompt, 258) if thinks else tuple(prompt),
                SamplingParams(
                    max_tokens=draw(st.integers(1, 12)),
                    temperature=draw(st.sampled_from((0.0, 0.7, 1.5))),
                    seed=draw(st.integers(0, 9)),
                    ignore_eos=draw(st.booleans()),
                    logprobs=draw(st.booleans()),
                ),
                StepParams(
                    enable_thinking=thinks or None,
                    thinking_budget=3 if thinks else None,
                    presence_penalty=draw(st.sampled_from((0.0, 1.0))),
                    tools=(TOOL,) if draw(st.booleans()) else (),
                ),
            )
        )
    return Case(tuple(requests), draw(st.integers(0, 3)), draw(st.booleans()), draw(st.integers(0, 2)))


def run(
    loaded: LoadedModel, case: Case, blocks: int, folder: Path | None
) -> tuple[dict[str, GenerationResult], int]:
    """The results by id, and how often a row was parked."""
    device = ModelDevice(loaded, num_blocks=blocks, block_size=BLOCK, max_batch=ROWS, cuda_graphs=False)
    spill = None if folder is None else FileSpill(folder, 1 << 24)
    knobs = Knobs(adaptive_sampling=case.adaptive, patience=case.patience)
    worker = StepWorker(loaded, device, max_batch=ROWS, knobs=knobs, spill=spill)
    try:
        results = by_id(worker.generate(case.requests))
        assert_nothing_held(worker, folder)
        stats = worker.stats()
        return results, int(stats["spilled"] + stats["requeued"])
    finally:
        worker.close()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("spilling", [False, True])
@pytest.mark.parametrize(("model", "examples"), [("tiny", 500), ("tiny-dual", 100), ("tiny-hybrid", 500)])
def test_p8_a_tiny_pool_gives_the_streams_of_an_ample_one(model: str, examples: int, spilling: bool) -> None:
    torch.set_num_threads(1)
    loaded = load_model(model, row_exact=True)
    parked: list[int] = []
    cut: list[str] = []

    @settings(
        max_examples=examples,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases())
    def check(case: Case) -> None:
        ample, never = run(loaded, case, 200, None)
        with tempfile.TemporaryDirectory() as folder:
            scarce, times = run(loaded, case, case.blocks, Path(folder) if spilling else None)
        assert never == 0
        for custom_id, result in scarce.items():
            if result.detail == "kv_pool":
                # Dropped tokens use no budget, but take room: such a row ends where the pool does.
                cut.append(custom_id)
                assert ample[custom_id].token_ids[: len(result.token_ids)] == result.token_ids
            else:
                assert result == ample[custom_id]
        parked.append(times)

    check()
    assert len(cut) < len(parked) // 10
    assert sum(times > 0 for times in parked) > len(parked) // 20
