"""Pure helpers of continuous batching: who yields pages, who is loaded, how much host KV a sequence gets.

Nothing here touches a pool or a rank; given the same arguments every rank computes the same answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from batchgen import sequence as seq_module

__all__ = [
    "AdaptiveChunkSizer",
    "BoundaryDecisions",
    "HostKVGrowthEvictionPlan",
    "LoadCandidate",
    "NodeHostStats",
    "PageClaim",
    "check_repeating_pattern",
    "plan_host_kv_growth_evictions",
    "select_sequences_for_eviction",
    "select_sequences_for_loading",
    "select_sequences_for_onhold",
    "validate_boundary_payload_alignment",
]


@dataclass(frozen=True)
class NodeHostStats:
    """Host pool of one node, in pages."""

    node_id: int
    free: int
    total: int


@dataclass(frozen=True)
class PageClaim:
    """A sequence at a boundary, against one pool: `held` pages it gives back if it has to go, `wanted` pages
    it asks for if it stays. `evictable` is False for a claim that must be met or refused as it is."""

    uuid: str
    global_idx: int
    priority: int
    decoded_length: int
    held: int
    wanted: int
    evictable: bool = True


@dataclass(frozen=True)
class LoadCandidate:
    """A PREFILLED or ON_HOLD sequence; `group` is the capacity group (the rank) whose GPU pool would take
    it."""

    uuid: str
    global_idx: int
    group: int
    pages_needed: int
    decoded_length: int


@dataclass(frozen=True)
class HostKVGrowthEvictionPlan:
    """One node: who is evicted, who grows by how many pages (aligned), and whether that fits the pool."""

    evicted_uuids: tuple[str, ...]
    growth_uuids: tuple[str, ...]
    growth_pages: tuple[int, ...]
    feasible: bool


@dataclass(frozen=True)
class BoundaryDecisions:
    """What rank 0 decides at a page boundary and broadcasts. `host_growth_pages` is aligned with
    `host_growth_uuids`. `growth_feasible` is False when no growth was asked for. `scheduler_error` is raised
    on every rank after the broadcast."""

    completed_uuids: tuple[str, ...] = ()
    active_uuids: tuple[str, ...] = ()
    host_growth_uuids: tuple[str, ...] = ()
    host_growth_pages: tuple[int, ...] = ()
    growth_feasible: bool = False
    host_evicted_uuids: tuple[str, ...] = ()
    onhold_uuids: tuple[str, ...] = ()
    seqs_needing_extension: tuple[str, ...] = ()
    new_load_uuids: tuple[str, ...] = ()
    decode_uuids_final: tuple[str, ...] = ()
    scheduler_error: str | None = None


def _least_loss_first(claim: PageClaim) -> tuple[int, int, int]:
    """Lowest priority, then shortest decoded, then first admitted."""
    return (claim.priority, claim.decoded_length, claim.global_idx)


def select_sequences_for_eviction(
    claims: Iterable[PageClaim], free_pages: int, *, margin: int = 0
) -> tuple[str, ...]:
    """SHORTEST_FIRST: who has to go so that the wants of the rest fit `free_pages` and the pages given back.

    `margin` pages are kept free as long as somebody else can make room; the last claim that wants pages is
    not evicted for the margin's sake (it could only come back to the same pool). Claims that give nothing
    back and want nothing are left alone. Returned in order of eviction; the rest need not fit when nobody is
    left.
    """
    ordered = sorted(claims, key=_least_loss_first)
    wanted = sum(claim.wanted for claim in ordered)
    wanting = sum(1 for claim in ordered if claim.wanted > 0)
    free = free_pages
    chosen: list[str] = []
    for claim in ordered:
        last_want = wanting == 1 and claim.wanted > 0
        if wanted <= free - (0 if last_want else margin) or wanted == 0:
            break
        if not claim.evictable or claim.held + claim.wanted == 0:
            continue
        chosen.append(claim.uuid)
        free += claim.held
        wanted -= claim.wanted
        wanting -= claim.wanted > 0
    return tuple(chosen)


def select_sequences_for_onhold(claims: Iterable[PageClaim], free_pages: int) -> tuple[str, ...]:
    """Who of one capacity group goes on hold, by (priority, decoded_length, global_idx), until the extensions
    of the rest fit `free_pages` and the pages given back."""
    return select_sequences_for_eviction(claims, free_pages)


def plan_host_kv_growth_evictions(
    claims: Sequence[PageClaim], stats: NodeHostStats, *, enable_eviction: bool = True
) -> HostKVGrowthEvictionPlan:
    """Host growth of one node: 5 % of the pool is kept free by evicting where possible; growth that still
    does not fit is infeasible. Growth is listed in the order of `claims`, without the evicted."""
    safety_margin = int(stats.total * 0.05)
    evicted: tuple[str, ...] = ()
    if enable_eviction:
        evicted = select_sequences_for_eviction(claims, stats.free, margin=safety_margin)
    gone = set(evicted)
    growth = [claim for claim in claims if claim.wanted > 0 and claim.uuid not in gone]
    free = stats.free + sum(claim.held for claim in claims if claim.uuid in gone)
    return HostKVGrowthEvictionPlan(
        evicted_uuids=evicted,
        growth_uuids=tuple(claim.uuid for claim in growth),
        growth_pages=tuple(claim.wanted for claim in growth),
        feasible=sum(claim.wanted for claim in growth) <= free,
    )


def select_sequences_for_loading(
    candidates: Iterable[LoadCandidate],
    per_rank_free_pages: Mapping[int, int],
    exclude_uuids: Collection[str] = (),
    per_group_seq_slots: Mapping[int, int] | None = None,
) -> tuple[tuple[str, ...], dict[int, int]]:
    """LONGEST_FIRST: the sequences to load and the free pages that remain per group.

    A candidate is taken when its group has a sequence slot left (None: no cap; a group that the mapping does
    not name has no slot) and its pages fit; what does not fit is passed over and takes neither slot nor
    pages.
    """
    free = dict(per_rank_free_pages)
    slots = None if per_group_seq_slots is None else dict(per_group_seq_slots)
    excluded = set(exclude_uuids)
    loads: list[str] = []
    for candidate in sorted(candidates, key=lambda c: (-c.decoded_length, c.global_idx)):
        if candidate.uuid in excluded or (slots is not None and slots.get(candidate.group, 0) < 1):
            continue
        if candidate.pages_needed > free.get(candidate.group, 0):
            continue
        free[candidate.group] -= candidate.pages_needed
        if slots is not None:
            slots[candidate.group] -= 1
        loads.append(candidate.uuid)
    return tuple(loads), free


def validate_boundary_payload_alignment(
    payloads: Sequence[Mapping[str, object]], expected: Mapping[str, int]
) -> None:
    """`payloads[rank]` maps the uuids that this rank reported to their state; `expected` maps every uuid to
    its assigned rank. Raises RuntimeError "[SCHED_INVARIANT] ..." unless each expected uuid is reported
    exactly once, by its rank, and nothing else is."""
    reporters: dict[str, list[int]] = {}
    for rank, payload in enumerate(payloads):
        for uuid in payload:
            reporters.setdefault(uuid, []).append(rank)
    problems = [
        f"{uuid} is assigned to rank {rank} but reported by {_ranks(reporters.get(uuid, []))}"
        for uuid, rank in expected.items()
        if reporters.get(uuid, []) != [rank]
    ]
    problems += [
        f"{uuid} is not being decoded but reported by {_ranks(ranks)}"
        for uuid, ranks in reporters.items()
        if uuid not in expected
    ]
    if problems:
        shown = "; ".join(problems[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise RuntimeError(f"[SCHED_INVARIANT] boundary payloads do not match the decode batch: {shown}")


def _ranks(ranks: Sequence[int]) -> str:
    return "ranks " + ", ".join(map(str, ranks)) if ranks else "no rank"


def check_repeating_pattern(tokens: Sequence[int], *, max_period: int = 100, repeats: int = 32) -> bool:
    """Whether `tokens` end in one pattern of at most `max_period` tokens `repeats` times over; period 1 is
    one token in a row."""
    for period in range(1, min(max_period, len(tokens) // repeats) + 1):
        if tokens[-1] != tokens[-1 - period]:
            continue
        tail = tokens[-period * repeats :]
        if tail[period:] == tail[:-period]:
            return True
    return False


class AdaptiveChunkSizer:
    """Host KV chunk, in tokens, learnt from how long completed sequences were.

    `default_chunk` until `warmup` completions have been seen, then `multiplier` times the exponential moving
    average of the decoded lengths, within [min_chunk, max_chunk]; rounded up to whole pages in either case.
    Feed each completion exactly once, in the same order on every rank.
    """

    def __init__(
        self,
        default_chunk: int = 8192,
        *,
        min_chunk: int = 1024,
        max_chunk: int = 65536,
        ema_alpha: float = 0.1,
        multiplier: float = 1.5,
        warmup: int = 10,
    ) -> None:
        if (
            not 0 < min_chunk <= max_chunk
            or not 0.0 < ema_alpha <= 1.0
            or min(multiplier, default_chunk) <= 0
        ):
            raise ValueError(
                f"chunk sizer needs 0 < min_chunk <= max_chunk, 0 < ema_alpha <= 1, multiplier > 0 and "
                f"default_chunk > 0, got {min_chunk}, {max_chunk}, {ema_alpha}, {multiplier}, {default_chunk}"
            )
        self.default_chunk = default_chunk
        self.min_chunk = min_chunk
        self.max_chunk = max_chunk
        self.ema_alpha = ema_alpha
        self.multiplier = multiplier
        self.warmup = warmup
        self.completions = 0
        self.ema: float | None = None

    @property
    def active(self) -> bool:
        return self.completions >= self.warmup

    def record_completion(self, decoded_length: int) -> None:
        self.completions += 1
        if self.ema is None:
            self.ema = float(decoded_length)
        else:
            self.ema += self.ema_alpha * (decoded_length - self.ema)

    def chunk_size(self) -> int:
        tokens = self.default_chunk
        if self.active and self.ema is not None:
            tokens = min(max(int(self.ema * self.multiplier), self.min_chunk), self.max_chunk)
        return seq_module.pages_for_tokens(tokens) * seq_module.PAGE_SIZE
