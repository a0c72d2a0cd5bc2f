"""What a step did, as values: two paths are compared on this."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Order:
    """Rows after the sort: request ids, their keys, and whether the keys follow each other without a gap."""

    ids: tuple[str, ...]
    keys: tuple[int, ...]
    contiguous: bool


@dataclass(frozen=True, slots=True)
class Launch:
    """`result`: "ok", "kv_exhausted", "forward", "readback" or "effect"."""

    ids: tuple[str, ...]
    tokens: tuple[int, ...]
    readback: str
    result: str


@dataclass(frozen=True, slots=True)
class Victim:
    """`route`: "spill" or "requeue"; `spill_error`: why a spill became a requeue."""

    request_id: str
    route: str
    blocks: int
    spill_error: str | None = None


@dataclass(frozen=True, slots=True)
class RowDelta:
    """What a token did to its row: the events sent, and each field of the row that changed (path, before, after)."""

    request_id: str
    token: int
    events: tuple[str, ...]
    changed: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """One question to a pure planner: its dotted name, its frozen inputs, its plan. Any planner can be asked again."""

    planner: str
    inputs: tuple[object, ...]
    plan: object


@dataclass(slots=True)
class StepTrace:
    """One call of `step_decode_only`. `outcome`: "empty", "stepped" or "failed"; `buffer`: "returned" when the lent
    staging buffer is back in the scratch, else "dropped" or "untouched"."""

    step: int = 0
    order: Order | None = None
    launches: list[Launch] = field(default_factory=list)
    victims: list[Victim] = field(default_factory=list)
    outcome: str = "empty"
    tokens: tuple[int, ...] = ()
    rows: list[RowDelta] = field(default_factory=list)
    drained: tuple[str, ...] = ()
    buffer: str = "untouched"
