"""The tensors at fixed addresses that a captured step reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["GraphPointerError", "StaticBuffers", "TensorIdentity"]


class GraphPointerError(RuntimeError):
    """A buffer is no longer the tensor that was captured: a replay would read or write another address."""


@dataclass(frozen=True)
class TensorIdentity:
    """Where a tensor lies and how it is laid out."""

    data_ptr: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str

    @classmethod
    def of(cls, tensor: Tensor) -> TensorIdentity:
        return cls(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, str(tensor.device))


class StaticBuffers:
    """Named persistent tensors of one bucket.

    `inputs` have `rows` rows, of which a step fills the first n; `padding` names the value of the others.
    `in_place` are inputs that their producer writes itself, through the captured address (the page table, and
    whatever a pool owns). `outputs` are written by the step and stay valid until the next one.
    """

    def __init__(
        self,
        rows: int,
        inputs: dict[str, Tensor],
        padding: Mapping[str, int],
        in_place: dict[str, Tensor],
        outputs: dict[str, Tensor],
    ) -> None:
        self.rows = rows
        self.inputs = inputs
        self.padding = padding
        self.in_place = in_place
        self.outputs = outputs
        self._captured = self._identities()

    def _identities(self) -> dict[str, TensorIdentity]:
        groups = (self.inputs, self.in_place, self.outputs)
        return {name: TensorIdentity.of(tensor) for group in groups for name, tensor in group.items()}

    def fill(self, step: Mapping[str, Tensor], live_rows: int) -> None:
        """Copy this step's live rows in and clean every other row.

        GraphPointerError for an `in_place` input at another address than the captured one; ValueError for a
        missing or unknown input or one of another length; nothing has been written then.
        """
        expected = self.inputs.keys() | self.in_place.keys()
        if step.keys() != expected:
            raise ValueError(
                f"replay of bucket {self.rows} needs inputs {sorted(expected)}, got {sorted(step)}"
            )
        if not 0 <= live_rows <= self.rows:
            raise ValueError(f"{live_rows} live rows do not fit bucket {self.rows}")
        for name in self.in_place:
            self._check(name, TensorIdentity.of(step[name]), "was produced")
        for name, buffer in self.inputs.items():
            rows = live_rows if name in self.padding else buffer.shape[0]
            if step[name].shape != (rows, *buffer.shape[1:]):
                raise ValueError(
                    f"replay of bucket {self.rows}: input {name} has shape {tuple(step[name].shape)}, "
                    f"expected {(rows, *buffer.shape[1:])}"
                )
        for name, buffer in self.inputs.items():
            buffer[: step[name].shape[0]].copy_(step[name])
        self.clean_padding(live_rows)

    def clean_padding(self, live_rows: int) -> None:
        """Rows from `live_rows` on: no token, no length, no page. What a larger batch left there would have
        this step write KV into pages of other sequences."""
        for name, value in self.padding.items():
            buffer = self.inputs[name] if name in self.inputs else self.in_place[name]
            buffer[live_rows:].fill_(value)

    @contextmanager
    def all_padding(self) -> Iterator[None]:
        """Every row is padding inside; what the producers of `in_place` inputs had written is back
        afterwards."""
        written = {name: tensor.clone() for name, tensor in self.in_place.items()}
        try:
            self.clean_padding(0)
            yield
        finally:
            for name, content in written.items():
                self.in_place[name].copy_(content)

    def audit(self) -> None:
        """GraphPointerError naming a buffer that was replaced, moved or reshaped since the capture."""
        for name, identity in self._identities().items():
            self._check(name, identity, "is bound")

    def _check(self, name: str, identity: TensorIdentity, how: str) -> None:
        captured = self._captured[name]
        if identity != captured:
            raise GraphPointerError(
                f"static buffer {name} of bucket {self.rows} {how} as {identity}, captured as {captured}; "
                "write into the captured tensor instead of making a new one, or capture the bucket again"
            )
