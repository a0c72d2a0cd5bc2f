"""What one side lets us see at one point of a run: frozen values, in the order in which they came about.

An `Event` is one observation point (a decode step's entry, a call that selects tokens, a boundary, the end).
It holds `Observed` values under a `Key`; sequences are named by their label (the request's custom_id), never
by a slot or a local index, so both sides name the same thing alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from shadow.plain import Plain


class Kind(StrEnum):
    """What sort of value this is. Of every kind that the workers have, something must have been compared."""

    INVARIANT = "invariant"  # what must hold on either side alone
    SCHEDULE = "schedule"  # which point comes next
    EFFECTS = "effects"  # calls of pools, host views and collectives since the last event, in order
    LAUNCH = "launch"  # how a decode forward was started: eagerly, or which bucket, and why
    BINDING = "binding"  # what was bound on the attention wrapper when a forward began
    SEQUENCE = "sequence"  # fields of a sequence: status, lengths, page counts, ...
    PAGE_TABLE = "page_table"  # live prefix of the table row, kv_len, row order, page counts of the pools
    FREE_LIST = "free_list"  # free pages, in the order in which they will be given
    HYGIENE = "hygiene"  # what nobody reads: tails of table rows, rows beyond the batch
    PLAN = "plan"  # integers of the attention plan: what each row reads and where it writes
    HOST_KV = "host_kv"  # content of the host pages that positions [0, context - 1) lie in
    STATE = "state"  # recurrent states of the rows, after the forward
    KV = "kv"  # content of the live pages
    WRITE_SET = "write_set"  # which places of the pools a forward has changed
    PENDING = "pending"  # what was collected for the host, and copies under way
    LAYER = "layer"  # output of a layer, on demand
    BOUNDARY = "boundary"  # what rank 0 decides from, and its decisions, at a page boundary
    POLICY = "policy"  # what a step of the step policy did, what its planners were asked and what they said
    LOGITS = "logits"
    TOKENS = "tokens"
    RESULT = "result"  # what the caller of generate() gets
    OUTCOME = "outcome"  # how the run ended: an exception is an outcome

    __hash__ = str.__hash__  # that of Enum is a function in Python


class Point(StrEnum):
    """Where in the run an event was taken; both sides must pass the same points in the same order."""

    PREFILL = "prefill"
    DECODE = "decode"
    DECISIONS = "boundary decisions"
    PLANNED = "step plan"
    BOUNDARY = "boundary"
    END = "end"

    @property
    def selects_tokens(self) -> bool:
        """Whether the side waits here to be told which tokens to go on with."""
        return self in (Point.PREFILL, Point.DECODE)


class Severity(StrEnum):
    """How bad a difference is now. Hygiene alone makes no divergence, unless asked for."""

    LIVE = "live"  # the step computes with it
    LATENT = "latent"  # wrong, and not read yet
    HYGIENE = "hygiene"  # nobody reads it


LATENT = frozenset((Kind.FREE_LIST, Kind.HOST_KV, Kind.WRITE_SET, Kind.PENDING))
"""Kinds of which a difference is seen before it can be read."""


def severity(kind: Kind) -> Severity:
    if kind is Kind.HYGIENE:
        return Severity.HYGIENE
    return Severity.LATENT if kind in LATENT else Severity.LIVE


class Key(NamedTuple):
    """Where a value belongs. A tuple: there are a thousand of them in an event, hashed and sent at each step."""

    kind: Kind
    sequence: str | None
    field: str
    layer: int | None = None


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


@dataclass(frozen=True, eq=False)
class Vectors:
    """KV content to be scored: float32 [layers, n, heads, numbers] of n `unit`s, as `Digests` counts them.

    Of a position the vectors themselves, of a page a sketch of them (see shadow.observe.sketch).
    """

    values: np.ndarray
    unit: str
    tokens: int = 1
    first: int = 0


@dataclass(frozen=True)
class Pages:
    """Page ids of one pool, in order. On sides that may number pages differently, equal up to a renaming.

    `owned` False: pages that are nobody's. On such sides only their number counts.
    """

    pool: str
    ids: tuple[int, ...]
    owned: bool = True


@dataclass(frozen=True)
class Rows:
    """Labels in row order. On sides that may order their batch differently, only the set counts."""

    labels: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """One effect: `items` are the sequences it names, each with its number (tokens, pages, a position)."""

    name: str
    items: tuple[tuple[str, int | None], ...] = ()
    detail: str = ""

    def __str__(self) -> str:
        named = [label if number is None else f"{label}: {number}" for label, number in self.items]
        return f"{self.name}({', '.join([*named, self.detail] if self.detail else named)})"


@dataclass(frozen=True)
class Calls:
    """Effects in the order in which they happened. Of two that differ, the first difference is the finding."""

    calls: tuple[Call, ...]


Observed = Plain | Row | Digests | Vectors | Pages | Rows | Calls


@dataclass(frozen=True)
class Violation:
    """What must hold on either side alone, and does not. `invariant` is its name in the catalogue.

    `late`: what the forward did with what it found; the values that it found are named first.
    """

    invariant: str
    message: str
    sequence: str | None = None
    layer: int | None = None
    severity: Severity = Severity.LIVE
    late: bool = False


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
