"""What passes between the comparing process and the two that run a worker each, pickled over a pipe.

Events pass as what has changed since the last of their point (shadow.deltas).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shadow.observation import Event, Kind, Tokens
from shadow.ranks.place import Place


class HarnessError(RuntimeError):
    """The harness cannot do its work on this tree; says nothing about the worker's correctness."""


@dataclass(frozen=True)
class Graft:
    """The candidate gets the legacy's `input` (a value of shadow.graft.Input) before the forward of `step`."""

    step: int
    input: str


@dataclass(frozen=True)
class Setup:
    """What a side is to run.

    `batches`: request files, run back to back on the same live worker. `options`: the fields of
    batchgen.engine.EngineOptions that were given. `environment`: set before batchgen is imported.
    `order`: seed of a shuffle of each batch, None for the order of the file. `mutant`: (module or file, name)
    of a fault to plant. `structural`: integers only, no content of KV and no logits.
    `content_every`: content of KV and logits of each so many-th decode step only, integers of all.
    `max_steps`: the run ends cleanly after so many decode steps. `only`: what to look at, None for everything;
    what a run of any kind shows (schedule, tokens, decisions, results) is seen all the same.
    `numeric`: content of KV as numbers that can be scored, not as digests: for sides of which the bits differ by
    intent. `layers`: those of which the outputs are compared. `place`: which of several ranks it is, None for the one.
    """

    tree: str
    batches: tuple[str, ...]
    threads: int
    options: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    order: int | None = None
    mutant: tuple[str, str] | None = None
    structural: bool = False
    content_every: int = 1
    max_steps: int | None = None
    only: frozenset[Kind] | None = None
    graft: Graft | None = None
    numeric: bool = False
    layers: tuple[int, ...] = ()
    place: Place | None = None


@dataclass(frozen=True)
class Hello:
    """The worker is built and observed. `worker_file` is where its module was really loaded from."""

    worker_file: str
    worker_sha256: str
    torch_version: str
    requests: int
    refused_lines: int
    kinds: frozenset[Kind]  # what can be observed of this worker
    unobservable: Mapping[str, str] = field(default_factory=dict)  # kind -> why not


@dataclass(frozen=True)
class Failed:
    """The side raised. `harness`: not the subject's doing (no hook to observe, a foreign module, ...).

    `fired`: the step at which a planted fault struck first, if it had: no event may have told of it.
    """

    type_name: str
    message: str
    traceback: str
    harness: bool
    fired: int | None = None
    step: int | None = None  # decode steps begun and ended before it raised


@dataclass(frozen=True)
class Done:
    """The run went through. Seconds: in the decode forward itself, in observing, in waiting for the other."""

    decode_steps: int
    forward_seconds: float
    observe_seconds: float
    wait_seconds: float
    fired: int | None = None
    modules: Mapping[str, str] = field(default_factory=dict)  # of batchgen, by name: the file in the tree
    gates: str = ""  # what the worker's gates found in compare mode, in one line


@dataclass(frozen=True)
class Joining:
    """A rank is about to join a collective, and waits there for the others. `at`: the line that calls it.

    `detail`: shapes, numbers and kinds of what it hands over. `step`: decode steps begun before.
    """

    name: str
    detail: str
    at: str
    step: int

    def __str__(self) -> str:
        return f"{self.name}({self.detail}) at {self.at}"


@dataclass(frozen=True)
class Reply:
    """Go on with these tokens instead of yours (by sequence); empty: with yours."""

    tokens: Tokens


@dataclass(frozen=True, eq=False)
class Offer:
    """An input of the coming forward, and (in the answer) what to take instead; None: keep your own."""

    material: Mapping[str, Any] | None


FromSide = Hello | Event | Failed | Done | Offer | Joining
