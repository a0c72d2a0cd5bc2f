"""What one side lets us see at one point of a run: frozen values, in the order in which they came about.

An `Event` is one observation point (a decode step's entry, a call that selects tokens, a boundary, the end).
It holds `Observed` values under a `Key`; sequences are named by their label (the request's custom_id), never
by a slot or a local index, so both sides name the same thing alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from shadow.plain import Plain


class Kind(StrEnum):
    """What sort of value this is. Of every kind that the workers have, something must have been compared."""

    INVARIANT = "invariant"  # what must hold on either side alone
    SCHEDULE = "schedule"  # which point comes next
    SEQUENCE = "sequence"  # fields of a sequence: status, lengths, page counts, ...
    PAGE_TABLE = "page_table"  # live prefix of the table row, kv_len, row order, page counts of the pools
    KV = "kv"  # content of the live pages
    BOUNDARY = "boundary"  # the decisions of rank 0 at a page boundary
    LOGITS = "logits"
    TOKENS = "tokens"
    RESULT = "result"  # what the caller of generate() gets
    OUTCOME = "outcome"  # how the run ended: an exception is an outcome


class Point(StrEnum):
    """Where in the run an event was taken; both sides must pass the same points in the same order."""

    PREFILL = "prefill"
    DECODE = "decode"
    DECISIONS = "boundary decisions"
    BOUNDARY = "boundary"
    END = "end"

    @property
    def selects_tokens(self) -> bool:
        """Whether the side waits here to be told which tokens to go on with."""
        return self in (Point.PREFILL, Point.DECODE)


@dataclass(frozen=True)
class Key:
    kind: Kind
    sequence: str | None
    field: str


@dataclass(frozen=True, eq=False)
class Row:
    """One row of logits, float32 [V]."""

    values: np.ndarray


@dataclass(frozen=True, eq=False)
class Digests:
    """KV content as int64 digests [layers, n] of n `unit`s ("page", "position"), `tokens` each, from `first`.

    Equal digests mean equal bytes in equal order (see shadow.digest).
    """

    values: np.ndarray
    unit: str
    tokens: int = 1
    first: int = 0


@dataclass(frozen=True)
class Pages:
    """Page ids of one pool, in order. On sides that may number pages differently, equal up to a renaming."""

    pool: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """Labels in row order. On sides that may order their batch differently, only the set counts."""

    labels: tuple[str, ...]


Observed = Plain | Row | Digests | Pages | Rows


@dataclass(frozen=True)
class Violation:
    """What must hold on either side alone, and does not. `invariant` is its name in the catalogue."""

    invariant: str
    message: str
    sequence: str | None = None
    layer: int | None = None


@dataclass(frozen=True, eq=False)
class Event:
    """`checked`: how often each invariant was looked at for this event; `batch`: which of the batches;
    `fired`: the step at which a planted fault struck first, once it has."""

    point: Point
    step: int  # decode steps begun before this event, the current one not counted
    values: Mapping[Key, Observed]
    violations: tuple[Violation, ...] = ()
    checked: Mapping[str, int] = field(default_factory=dict)
    batch: int = 0
    fired: int | None = None


Tokens = Mapping[str, int]
"""Selected tokens by sequence label: what the control chose, and what the candidate is made to choose."""


def tokens_of(event: Event) -> dict[str, int]:
    """The tokens that this event selected, by sequence label."""
    selected: dict[str, int] = {}
    for key, value in event.values.items():
        if key.kind is Kind.TOKENS and key.sequence is not None:
            token: Any = value
            selected[key.sequence] = int(token)
    return selected
