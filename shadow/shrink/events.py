"""How much happens in a run: the changes of state that its sequences go through."""

from __future__ import annotations

from shadow.observation import Event, Key, Kind, Observed


class EventCount:
    """Watches a lockstep run. `total`: sequences that came or changed their status on the legacy side."""

    def __init__(self) -> None:
        self.total = 0
        self._status: dict[tuple[int, str], Observed] = {}

    def __call__(self, control: Event, candidate: Event) -> None:
        for key, value in control.values.items():
            if key.kind is Kind.SEQUENCE and key.field == "status" and key.sequence is not None:
                self._see(control.batch, key, value)

    def _see(self, batch: int, key: Key, value: Observed) -> None:
        assert key.sequence is not None
        sequence = (batch, key.sequence)
        if self._status.get(sequence) != value:
            self._status[sequence] = value
            self.total += 1
