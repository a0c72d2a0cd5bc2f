"""Which of many ends of a run is its cause, without a process; and how findings of several ranks are put together."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from shadow.diff import Mismatch, Nature
from shadow.messages import Failed
from shadow.observation import Kind, Point, Severity
from shadow.ranks.blame import blame
from shadow.ranks.merging import merged, unseen
from shadow.ranks.side import End
from shadow.ranks.stack import place
from shadow.tally import KEPT, Tally

BROKEN = Failed("RuntimeError", "[pair.cc:538] Connection closed by peer [127.0.0.1]:1", "tb", harness=False)
OWN = Failed("ValueError", "no such page", "tb of the cause", harness=False, step=7)


def ends(**special: dict[str, Any]) -> tuple[End, ...]:
    """Both sides of two ranks, stopped while they waited in a collective; `legacy0=` and so on say what is special."""
    plain: dict[str, Any] = {
        "code": None,
        "failed": None,
        "silent": "",
        "wanted": False,
        "doing": "had begun x",
        "waits": "in dist.barrier at a.py:3 (f)",
        "step": 5,
        "said": "",
    }
    return tuple(
        End(
            rank=rank,
            control=side == "legacy",
            name=f"{side} side of rank {rank}",
            **{**plain, **special.get(f"{side}{rank}", {})},
        )
        for rank in (0, 1)
        for side in ("legacy", "candidate")
    )


def test_a_process_that_was_killed_explains_the_broken_connections_of_the_others() -> None:
    found = blame(
        ends(
            legacy0={"code": 1, "failed": BROKEN},
            candidate0={"code": 1, "failed": BROKEN},
            candidate1={"code": -signal.SIGKILL},
        ),
        parted=False,
    )
    assert found.trouble is not None and not found.found
    assert found.trouble.message == "the candidate side of rank 1 was killed by SIGKILL; it had begun x"


def test_a_candidate_that_crashes_is_a_divergence_of_its_rank() -> None:
    found = blame(
        ends(candidate1={"code": -signal.SIGSEGV}, candidate0={"code": 1, "failed": BROKEN}), parted=False
    )
    assert found.trouble is None
    ((rank, mismatch),) = found.found
    assert rank == 1 and mismatch.candidate.startswith("was killed by SIGSEGV")


def test_what_a_rank_raised_itself_comes_before_broken_connections() -> None:
    found = blame(
        ends(candidate0={"code": 1, "failed": BROKEN}, candidate1={"code": 1, "failed": OWN}), parted=False
    )
    ((rank, mismatch),) = found.found
    assert (rank, mismatch.step, mismatch.candidate) == (1, 7, "raised ValueError: no such page")
    assert found.traceback == "tb of the cause"


def test_a_legacy_rank_that_fails_leaves_no_verdict() -> None:
    found = blame(ends(legacy1={"code": 1, "failed": OWN}), parted=False)
    assert found.trouble is not None
    assert found.trouble.message == "the legacy side of rank 1 raised ValueError: no such page"


@pytest.mark.parametrize("control", [True, False])
def test_broken_connections_count_where_nothing_else_explains_them(control: bool) -> None:
    end = {"code": 1, "failed": BROKEN}
    found = blame(ends(legacy0=end) if control else ends(candidate0=end), parted=False)
    assert (found.trouble is not None, len(found.found)) == (control, not control)
    assert blame(ends(candidate0=end), parted=True).found == (), "that the sides parted explains them"


def test_a_candidate_that_hangs_is_guilty_of_the_controls_that_wait_for_it() -> None:
    silent = "gave no sign of life for 5 s"
    found = blame(
        ends(
            legacy0={"silent": silent, "wanted": True},
            candidate1={"silent": silent, "wanted": True, "waits": "at b.py:9 (g)"},
        ),
        parted=False,
    )
    assert found.trouble is None
    ((rank, mismatch),) = found.found
    assert rank == 1 and mismatch.candidate.endswith("; it had begun x; it waits at b.py:9 (g)")


def test_of_controls_that_hang_the_one_outside_of_a_collective_is_named() -> None:
    silent = "gave no sign of life for 5 s"
    found = blame(
        ends(
            legacy0={"silent": silent, "wanted": True},
            legacy1={"silent": silent, "wanted": True, "waits": "at b.py:9 (g)"},
        ),
        parted=False,
    )
    assert found.trouble is not None and not found.found
    assert found.trouble.message.startswith("the legacy side of rank 1 gave no sign of life for 5 s;")


def finding(kind: Kind, step: int, severity: Severity = Severity.LIVE) -> Mismatch:
    return Mismatch(kind, Nature.VALUE, Point.DECODE, step, None, None, "f", "1", "2", severity=severity)


def tally(rank: int, *found: Mismatch) -> Tally:
    one = Tally(rank=rank, required=frozenset({Kind.KV, Kind.BOUNDARY}))
    one.compared[Kind.KV] = 5
    for mismatch in found:
        one.find(mismatch)
    return one


def test_the_first_divergence_of_all_ranks_is_the_earliest_and_carries_its_rank() -> None:
    late = [finding(Kind.KV, 9)] * KEPT
    hygiene = finding(Kind.HYGIENE, 1, Severity.HYGIENE)
    whole = merged(
        [tally(0, hygiene, *late), tally(1, finding(Kind.KV, 4)), tally(2, finding(Kind.OUTCOME, 4))]
    )
    assert whole.first is not None and (whole.first.rank, whole.first.step) == (1, 4)
    assert whole.first_of_kind[Kind.KV].rank == 1
    assert (whole.compared[Kind.KV], whole.differing[Kind.KV], whole.total) == (15, KEPT + 1, KEPT + 2)
    assert len(whole.kept) == KEPT
    unread = merged([tally(0, *[hygiene] * KEPT), tally(1, finding(Kind.KV, 4))])
    assert unread.first is not None and unread.first.rank == 1, "what nobody reads makes room"


def test_decisions_are_owed_by_rank_0_alone() -> None:
    assert unseen(tally(0)) == (Kind.BOUNDARY,)
    assert unseen(tally(1)) == ()


STACK = """  File "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 4, in all_gather
  File "/usr/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 3, in wrapper
  File "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 5, in all_gather_object
  File "/tree/batchgen/worker.py", line 12 in boundary
  File "/tree/batchgen/worker.py", line 80 in generate
""".replace(", in ", " in ")


def test_a_stack_is_read_as_the_call_in_the_tree_and_the_collective_that_it_made() -> None:
    assert place(STACK, Path("/tree")) == "in dist.all_gather_object at batchgen/worker.py:12 (boundary)"
    assert place("no stack at all", Path("/tree")) == ""
