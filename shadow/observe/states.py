"""Content of the recurrent states of the rows, as the forward has left them."""

from __future__ import annotations

import torch

from shadow.observation import Kind, Point
from shadow.observe.content import positions_of
from shadow.observe.probe import PlainProbe, Subject, Values, key


class States(PlainProbe):
    """By sequence, recurrent layer after recurrent layer; the position is that of the newest token in it."""

    kind = Kind.STATE
    points = frozenset((Point.PREFILL, Point.DECODE))
    structural = False

    def missing(self, subject: Subject) -> str | None:
        shape = getattr(getattr(subject.worker, "model", None), "state_shape", None)
        return None if shape is not None and shape() is not None else "the model keeps no recurrent state"

    def values(self, subject: Subject, point: Point) -> Values:
        pool = subject.worker.core_engine.state_slot_pool
        entries = [entry for entry in subject.entries if entry.global_idx in pool._slots]
        states = by_layer(pool.states, [pool._slots[entry.global_idx] for entry in entries])
        lengths = [entry.current_context_length for entry in entries]
        contents = positions_of(
            states,
            [(row, 0) for row in range(len(entries))],
            [length - 1 for length in lengths],
            numeric=subject.numeric,
        )
        labels = map(subject.names.label, entries)
        return {
            key(Kind.STATE, label, "state"): content for label, content in zip(labels, contents, strict=True)
        }


def by_layer(states: torch.Tensor, slots: list[int]) -> torch.Tensor:
    """The states in these slots as a cache of one position a page: [layers, slots, 1, rows of a state, width]."""
    return states[slots].transpose(0, 1).unsqueeze(2)
