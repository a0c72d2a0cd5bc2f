"""`shadow shrink`: a trace of 400 events to at most 8, for three faults, by the clock."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

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
    print(
        f"\n{fault}: events {shrunk.before.events} -> {shrunk.found.events}, requests 132 -> "
        f"{shrunk.scenario.size}, {shrunk.runs} runs, {seconds:.0f} s (bar {SECONDS} s), "
        f"{'minimal' if shrunk.complete else 'time ran out'}; {shrunk.found.where}"
    )
    assert shrunk.before.events >= EVENTS_BEFORE
    assert shrunk.found.events <= EVENTS_AFTER
