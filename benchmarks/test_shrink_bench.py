"""`shadow shrink`: a trace of 400 events to at most 8, for three faults, by the clock."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from benchmarks.ratios import Ratio, tell
from shadow.messages import Setup
from shadow.shrink import Replay, Scenario, shrink

ROOT = Path(__file__).parents[1]
FAULTS = str(Path(__file__).with_name("shrink_faults.py"))
EVENTS_BEFORE, EVENTS_AFTER, SECONDS = 400, 8, 90
OPTIONS = {
    "model": "tiny",
    "page_size": 4,
    "gpu_kv_pages": 36,
    "host_kv_pages": 50,
    "max_batch_size": 6,
    "max_pool_size": 8,
    "initial_gpu_page_buffer": 1,
    "extension_gpu_page_buffer": 1,
    "decision_frequency_pages": 1,
    "host_kv_watermark": 40,
    "host_kv_chunk_size": 4,
    "adaptive_host_kv_chunk": False,
}


def scenario() -> Scenario:
    """Some hundred requests of mixed lengths under pressure, the victim among the last."""
    chance = random.Random(5)
    requests = []
    for number in range(132):
        name = "victim" if number == 124 else f"r{number:03}"
        tokens = 14 if name == "victim" else chance.randint(3, 24)
        body = {"prompt": "x" * chance.randint(4, 20), "max_tokens": tokens, "ignore_eos": True}
        requests.append({"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body})
    return Scenario((tuple(requests),), OPTIONS)


@pytest.mark.parametrize(
    "fault", ["freed-twice-beside-others", "loaded-short-beside-others", "baseline-lost-when-evicted"]
)
def test_a_long_trace_is_shrunk_to_a_few_events(fault: str) -> None:
    control = Setup(str(ROOT), (), 1)
    replay = Replay(control, Setup(str(ROOT), (), 1, mutant=(FAULTS, fault)), timeout=120)
    started = time.monotonic()
    shrunk = shrink(scenario(), replay, seconds=SECONDS)
    seconds = time.monotonic() - started
    assert shrunk is not None, "the fault was not found"
    ratio = Ratio(
        f"shrink of {fault}",
        shrunk.found.events,
        f"{shrunk.before.events} events",
        EVENTS_AFTER,
        at_least=False,
        unit="events",
        figures={"s": seconds, "runs": shrunk.runs, "requests of 132": shrunk.scenario.size},
    )
    assert shrunk.before.events >= EVENTS_BEFORE
    assert tell(ratio).holds
    within = Ratio(f"shrink of {fault}, time", seconds / SECONDS, f"{SECONDS} s", 1, at_least=False)
    assert tell(within).holds
