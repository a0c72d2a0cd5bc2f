"""The outputs of a replayed bucket beside those of the eager run: which rows differ, told a step late."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from shadow.device import Late, RowStatistics, comparison
from shadow.diff import Mismatch, Nature
from shadow.numerics import VectorScore
from shadow.observation import Kind, Point

_PROBED = "hidden_states_layer_"
_STAGED = "kv_"


@dataclass(frozen=True)
class Batch:
    """One replayed step: its number, and the sequences of its live rows."""

    step: int
    labels: tuple[str, ...]


def kind_of(name: str) -> Kind:
    """What sort of value an output of a decode step is; its live rows are along axis 1 in a pool's staging."""
    if name.startswith(_STAGED):
        return Kind.KV
    return Kind.LAYER if name.startswith(_PROBED) else Kind.LOGITS


class Output:
    """One output of one bucket: the replay's static buffer against a buffer of the same size for the eager rows.

    All memory is taken here, once; a step launches a copy and a comparison and reads nothing back. Padding is compared
    too, and never told of: it is noise on both sides.
    """

    def __init__(self, name: str, static: torch.Tensor) -> None:
        self.name, self.kind = name, kind_of(name)
        self._rows_at = 1 if self.kind is Kind.KV else 0
        self._eager = torch.zeros_like(static)
        self._comparison = comparison(static)
        self._under_way: deque[Batch] = deque()

    @property
    def waited(self) -> int:
        """How often the host has waited for the device because of it."""
        return self._comparison.stalls

    def compare(
        self, replayed: torch.Tensor, eager: torch.Tensor, batch: Batch
    ) -> Iterator[tuple[Batch, RowStatistics]]:
        """What has arrived of steps before. ValueError: the eager rows are not those of the batch."""
        expected = list(replayed.shape)
        expected[self._rows_at] = len(batch.labels)
        if list(eager.shape) != expected or eager.dtype != replayed.dtype:
            raise ValueError(
                f"{self.name} is {eager.dtype} {list(eager.shape)} of the eager run, "
                f"{replayed.dtype} {expected} of the replay"
            )
        self._eager.narrow(self._rows_at, 0, len(batch.labels)).copy_(eager)
        self._comparison.compare(self._eager, replayed)
        self._under_way.append(batch)
        return self._arrived(self._comparison.turn())

    def drain(self) -> Iterator[tuple[Batch, RowStatistics]]:
        """All that is left; waits for it."""
        return self._arrived(self._comparison.drain())

    def _arrived(self, found: Iterable[Late]) -> Iterator[tuple[Batch, RowStatistics]]:
        for late in found:
            yield self._under_way.popleft(), late.rows

    def compared(self, rows: RowStatistics, batch: Batch) -> int:
        """How many values of live rows."""
        return rows.elements // rows.first.shape[self._rows_at] * len(batch.labels)

    def mismatches(self, rows: RowStatistics, batch: Batch) -> Iterator[Mismatch]:
        """Of each sequence the first layer that differs and the one that is furthest off: there, of all heads, the
        one that is furthest off."""
        differs = np.moveaxis(rows.differing > 0, self._rows_at, 0)
        scores = np.moveaxis(rows.scores().relative_l2, self._rows_at, 0)
        for row, label in enumerate(batch.labels):
            if not differs[row].any():
                continue
            of_row = np.where(differs[row], scores[row], -1.0)
            if not self._rows_at:
                yield self._mismatch(rows, batch.step, label, (row,), float(of_row))
                continue
            by_layer = of_row.reshape(len(of_row), -1)
            furthest = by_layer.max(axis=1)
            for layer in sorted({int((furthest >= 0).argmax()), int(furthest.argmax())}):
                head = (int(by_layer[layer].argmax()),)[: of_row.ndim - 1]
                yield self._mismatch(rows, batch.step, label, (layer, row, *head), float(furthest[layer]))

    def _mismatch(
        self, rows: RowStatistics, step: int, label: str, at: tuple[int, ...], score: float
    ) -> Mismatch:
        first, length = int(rows.first[at]), float(np.sqrt(rows.squared_norm[at]))
        found = VectorScore(int(rows.differing[at]), first, float(rows.max_abs[at]), score)
        layer = at[0] if self._rows_at else None
        if self.kind is Kind.LAYER:
            layer = int(self.name.removeprefix(_PROBED))
        head = f", head {at[2]}" if len(at) > 2 else ""
        return Mismatch(
            self.kind,
            Nature.NUMERIC,
            Point.DECODE,
            step,
            label,
            layer,
            self.name,
            f"of length {length:.6g}{head}",
            f"differs from element {first} on",
            found,
        )


def outputs_of(static: Mapping[str, torch.Tensor]) -> dict[str, Output]:
    """By name, one for each output of a bucket."""
    return {name: Output(name, tensor) for name, tensor in static.items()}
