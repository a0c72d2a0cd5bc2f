"""What is run when nobody says what: a few short requests of every sort, for any model."""

from __future__ import annotations

from shadow.workloads.requests import Batch, Request
from shadow.workloads.workload import Workload

_TEXT = (
    "The harbour lies still in the early morning. A gull walks along the wall and looks into every boat, "
    "one after the other, and finds nothing. Then the first engine starts, and all of them are gone. "
)
_ROWS = (
    # name, words of the text, max_tokens, ignore_eos
    ("one-token", 5, 1, True),
    ("brief", 9, 6, True),
    ("one-page", 12, 16, True),
    ("until-eos", 20, 90, False),
    ("middling", 31, 40, True),
    ("long-prompt", 150, 30, True),
    ("long-answer", 17, 120, True),
    ("long-both", 110, 120, True),
)


def mixed() -> Workload:
    words = (_TEXT * 5).split(" ")
    requests = tuple(
        Request(name, " ".join(words[:count]), cap, ignore_eos) for name, count, cap, ignore_eos in _ROWS
    )
    return Workload("mixed", (Batch("mixed", requests),))
