"""What is run: any batch of requests on any pool that each of them fits alone, and some that have preempted."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from batchgen.scheduler.errors import EffectError, ForwardError, KvExhausted, ReadbackError, SpillError
from batchgen.scheduler.quirks import Quirks
from batchgen.scheduler.sequences import RowSampling
from tests.batchgen.scheduler.world import Request, Scenario

#: Bytes: no store, one that is soon full, one that never is.
STORES = (0, 150, 1 << 20)

FAILURES = (
    ("reserve", KvExhausted("injected")),
    ("forward", ForwardError("injected")),
    ("forward", KvExhausted("injected")),
    ("readback", ReadbackError("KV cache exhausted, it says")),
    ("wait", EffectError("KV cache exhausted, it says")),
    ("read_logits", ReadbackError("injected")),
    ("save", SpillError("injected")),
    ("restore", SpillError("injected")),
    ("alloc", ForwardError("injected")),
    ("prefill", KvExhausted("injected")),
)

samplings = st.one_of(
    st.just(RowSampling()),
    st.builds(
        RowSampling, temperature=st.just(0.8), seed=st.integers(0, 1 << 16), top_p=st.sampled_from([1.0, 0.9])
    ),
    st.builds(RowSampling, repetition_penalty=st.just(1.3), presence_penalty=st.just(0.2)),
)

requests = st.builds(
    Request,
    prompt=st.lists(st.integers(7, 31), min_size=1, max_size=10).map(tuple),
    max_tokens=st.integers(1, 20),
    sampling=samplings,
    thinking_budget=st.sampled_from([None, None, 4]),
    tools=st.booleans(),
    min_tokens=st.sampled_from([0, 8]),
)


@st.composite
def scenarios(draw: st.DrawFn, failures: bool = False, quirks: bool = False) -> Scenario:
    """`failures`: of the device and the store, anywhere. `quirks`: as the engine studied behaves, or not."""
    size = draw(st.integers(1, 4))
    batch = tuple(draw(st.lists(requests, min_size=1, max_size=6)))
    largest = max(request.blocks(size) for request in batch)
    failing = st.tuples(st.sampled_from(FAILURES), st.integers(0, 12)).map(lambda pair: (*pair[0], pair[1]))
    return Scenario(
        batch,
        # One block more than the largest needs, or some: most pools are too small for all.
        largest + 1 + draw(st.integers(0, 4)),
        block_size=size,
        ssm=draw(st.booleans()),
        fp32=draw(st.booleans()),
        spill_budget=draw(st.sampled_from(STORES)),
        immunity=draw(st.sampled_from([0, 3, 64])),
        max_batch=draw(st.sampled_from([2, 16])),
        adaptive=draw(st.booleans()),
        failures=tuple(draw(st.lists(failing, max_size=2))) if failures else (),
        quirks=draw(st.sampled_from([Quirks.corrected(), Quirks.faithful()]))
        if quirks
        else Quirks.corrected(),
    )


def tight(seed: int, *, spill_budget: int = 0, thinking: bool = False, **settings: object) -> Scenario:
    """Six requests of some length on a pool that one of them nearly fills. `thinking`: they think, and drop tokens."""
    rng = random.Random(seed)
    batch = tuple(
        Request(
            tuple(rng.randrange(7, 32) for _ in range(rng.randint(2, 9))),
            rng.randint(8, 20),
            RowSampling(temperature=rng.choice([0.0, 0.8]), seed=rng.randrange(100)),
            min_tokens=8,
            thinking_budget=3 if thinking else None,
        )
        for _ in range(6)
    )
    size = 2
    pool = max(request.blocks(size) for request in batch) + 1
    return Scenario(batch, pool, block_size=size, spill_budget=spill_budget, **settings)  # type: ignore[arg-type]
