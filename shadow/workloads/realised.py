"""What became of a workload: how many tokens it gave, how many rows reached their cap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shadow.observation import Event, Kind, Point
from shadow.workloads.coverage import by_field, numbers, record
from shadow.workloads.requests import Batch

AT_LEAST = 0.9
"""The share of rows that must reach the cap for a level to count."""


@dataclass(frozen=True)
class Yield:
    """One batch. `rows`: those that have a cap which nothing but itself should end; `full`: that reached it."""

    batch: str
    rows: int
    full: int
    tokens: int
    cap: int

    @property
    def share(self) -> float:
        return self.full / self.rows if self.rows else 1.0


class Realised:
    """`see` the events of one side in order."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        self._tokens: dict[int, dict[str, int]] = {}

    def see(self, event: Event) -> None:
        if event.point is not Point.END:
            return
        results = by_field(event, Kind.RESULT).get("result", {})
        ids = {str(label): record(value).get("token_ids") for label, value in results.items()}
        lengths = {label: len(tokens) for label, tokens in ids.items() if isinstance(tokens, tuple)}
        # A run that is broken off has no results, but sequences.
        decoded = numbers(by_field(event, Kind.SEQUENCE).get("decoded_length", {}))
        self._tokens[event.batch] = lengths or decoded

    def yields(self) -> tuple[Yield, ...]:
        """One for each batch, also for one that was never submitted."""
        return tuple(self._yield(number, batch) for number, batch in enumerate(self._batches))

    def _yield(self, number: int, batch: Batch) -> Yield:
        tokens = self._tokens.get(number, {})
        held = [request for request in batch.requests if request.held]
        full = sum(tokens.get(request.name) == request.max_tokens for request in held)
        return Yield(batch.name, len(held), full, sum(tokens.values()), batch.cap)
