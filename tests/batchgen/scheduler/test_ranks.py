"""Ranks that decode the same rows: all launch the same, or all say that they do not."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.multirank

RANK = """
import sys
import torch.distributed as dist
from batchgen.scheduler.errors import KvExhausted, RanksDisagree
from batchgen.scheduler.ranks import GroupRanks
from tests.batchgen.scheduler.rows import admit, context
from tests.batchgen.scheduler.stepping import Batch
from tests.batchgen.scheduler.stub_device import StubDevice

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[2]}", rank=rank, world_size=2)
for fault in ("none", "order", "exhaustion"):
    device = StubDevice(total=9, block_size=2)
    batch = Batch(context(device, ranks=GroupRanks()), [admit(device, f"r{i}", [7 + i] * 3) for i in range(4)])
    if rank and fault == "order":
        one, other = batch.active[0].seq, batch.active[1].seq
        one.ssm_slot, other.ssm_slot = other.ssm_slot, one.ssm_slot
    if rank and fault == "exhaustion":
        device.fail("reserve", KvExhausted("on this rank only"))
    said = []
    try:
        for _ in range(3):
            said += [(launch.ids, launch.tokens, launch.result) for launch in batch.step().launches]
    except RanksDisagree as error:
        said.append(f"disagree: {error}")
    print(said)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def said() -> list[tuple[str, ...]]:
    """What each rank printed: with no fault, with another order on rank 1, with blocks that run out there only."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", RANK, str(rank), port],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    lines = []
    for process in ranks:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        lines.append(tuple(out.splitlines()))
    return lines


def test_all_ranks_launch_the_same_rows_in_the_same_order(said: list[tuple[str, ...]]) -> None:
    first, second = (lines[0] for lines in said)
    assert first == second and "kv_exhausted" in first and "disagree" not in first


@pytest.mark.parametrize("case", [1, 2], ids=["order", "exhaustion"])
def test_ranks_that_part_are_stopped_before_the_next_launch(case: int, said: list[tuple[str, ...]]) -> None:
    for lines in said:
        assert "disagree: ranks disagree on the rows of a launch: rank 0 has (" in lines[case]
        assert "rank 1 has (" in lines[case]
