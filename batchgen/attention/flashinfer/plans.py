"""Plans of decode forwards: of one forward, and of a captured step that many forwards replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Protocol

import torch
from torch import Tensor

from batchgen.attention.flashinfer.arrays import PagedArrays
from batchgen.attention.flashinfer.kernels import DecodeSlot, Geometry, Kernels
from batchgen.attention.protocol import DecodePlan

__all__ = ["PagedPlan", "Planned", "StaticSource", "capturing"]


def capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


class Planned:
    """A slot and what it is planned for.

    A plan is copied out of pinned memory that the next one overwrites, so the next waits for that copy.
    """

    def __init__(self, slot: Any, device: torch.device) -> None:
        self.slot, self.owner = slot, None
        self._copied = torch.cuda.Event() if device.type == "cuda" else None

    def plan(self, owner: Any, *arrays: Any) -> None:
        if self._copied is not None:
            self._copied.synchronize()
        self.owner = None  # of nobody, where planning fails
        self.slot.plan(*arrays)
        if self._copied is not None:
            self._copied.record()
        self.owner = owner


class Source(Protocol):
    """Where the layers of a forward find their arrays and the planned slot."""

    @property
    def device(self) -> PagedArrays: ...

    def slot(self, geometry: Geometry) -> DecodeSlot: ...


class PagedPlan(DecodePlan):
    """A `DecodePlan` of which what is by position is worked out when somebody reads it: index selection, the
    reference, a shadow probe. FlashInfer reads ``source`` alone."""

    source: Source

    def __init__(self, source: Source, reading: Callable[[], DecodePlan]) -> None:
        vars(self).update(source=source, _reading=reading)

    def __getattr__(self, name: str) -> Any:
        if name not in _BY_POSITION:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        vars(self).update(vars(vars(self)["_reading"]()))
        return vars(self)[name]


_BY_POSITION = frozenset(field.name for field in fields(DecodePlan))


class StaticSource:
    """Arrays at fixed addresses, for the rows of one bucket, and the slots that read them.

    ``refresh`` is called before the capture and before each replay; between them the addresses stay.
    """

    def __init__(self, kernels: Kernels, page_table: Tensor, page_size: int, *, exact: bool) -> None:
        self.page_table, self._page_size = page_table, page_size
        self._kernels, self._exact = kernels, exact
        rows, columns = page_table.shape
        # Tensors made in inference mode could not be updated in place outside of it.
        with torch.inference_mode(False):

            def zeros(count: int) -> Tensor:
                return torch.zeros(count, dtype=torch.int32, device=page_table.device)

            self.device = PagedArrays(
                zeros(rows + 1), zeros(rows * max(columns, 1)), zeros(rows), zeros(rows), zeros(rows)
            )
        self._host: PagedArrays | None = None
        self._slots: dict[Geometry, Planned] = {}
        self._layouts: dict[Geometry, list[int]] = {}

    def refresh(self, host: PagedArrays, scratch_page_id: int) -> None:
        """RuntimeError when FlashInfer would lay the plan out otherwise than at the capture."""
        for field in fields(host):
            new, kept = getattr(host, field.name), getattr(self.device, field.name)
            kept[: len(new)].copy_(new)
        # What a longer batch left there is read by nobody, and names pages of other sequences.
        self.device.indices[len(host.indices) :].fill_(scratch_page_id)
        self._host = host
        for geometry, planned in self._slots.items():
            planned.plan(host, host, self.device)
            layout = planned.slot.plan_info
            if layout != self._layouts[geometry]:
                raise RuntimeError(
                    f"FlashInfer planned {layout} for a step captured with {self._layouts[geometry]}; "
                    "run without CUDA graphs (--no-cuda-graphs)"
                )

    def slot(self, geometry: Geometry) -> DecodeSlot:
        """RuntimeError in a capture that no run of the same step came before."""
        if geometry not in self._slots:
            if capturing(self.page_table.device) or self._host is None:
                raise RuntimeError("FlashInfer cannot plan inside a capture: run the step once before it")
            slot = self._kernels.decode_slot(geometry, self._page_size, exact=self._exact, fixed=self.device)
            planned = Planned(slot, self._kernels.device)
            planned.plan(self._host, self._host, self.device)
            self._slots[geometry], self._layouts[geometry] = planned, slot.plan_info
        found: DecodeSlot = self._slots[geometry].slot
        return found
