"""The validation ladder: how many prompts, how long an answer."""

from __future__ import annotations

import random
from dataclasses import dataclass

from shadow.workloads.requests import Batch, Request, random_prompt
from shadow.workloads.workload import FULL, Scale, Workload


@dataclass(frozen=True)
class Level:
    prompts: int
    cap: int


LADDER = {
    "L1": Level(32, 512),
    "L2-2048": Level(128, 2048),
    "L2-4096": Level(128, 4096),
    "L3": Level(2048, 10240),
}
PROMPT_PAGES = 6
_OFFSETS = (0, 1, -1)


def ladder(name: str, scale: Scale = FULL, page_size: int = 64, seed: int = 0) -> Workload:
    """One level. Prompts are whole pages long, and one token more, and one less; then any length.

    Nothing but the cap ends a row: EOS is ignored, the search for repetition is off. KeyError: no such level.
    """
    level = LADDER[name]
    cap = scale.cap(level.cap)
    rng = random.Random(f"{name}:{seed}")
    requests = []
    for number in range(scale.count(level.prompts)):
        pages, offset = 1 + number // 4 % PROMPT_PAGES, number % 4
        length = (
            pages * page_size + _OFFSETS[offset] if offset < 3 else rng.randint(1, PROMPT_PAGES * page_size)
        )
        length = max(1, length)
        said = f"{pages}pages{('', '+1', '-1')[offset]}" if offset < 3 else f"{length}tokens"
        requests.append(Request(f"{name}-{number:04}-{said}", random_prompt(rng, length), cap))
    return Workload(
        name,
        (Batch(name, tuple(requests)),),
        environment={"BATCHGEN_REP_DETECTION": "0"},
        to_the_cap=True,
        scale=scale,
    )
