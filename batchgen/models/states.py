"""Where the recurrent state of each row is, and how a decode step goes through the states of its rows.

Every path does the same multiplications and additions, element by element and rounded one by one, so a state's
bits depend neither on the path nor on the other rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import torch
import torch.nn.functional as F
from torch import Tensor

from batchgen.attention import AttnWrapperBase
from batchgen.config import ModelConfig
from batchgen.kv import StateSlotPool
from batchgen.models.packed import Packed

__all__ = ["LayerStates", "RecurrenceCounts", "RecurrentStates", "Route", "route_of"]

Advance = Callable[..., Tensor]
"""(states [n, 1 + history, width], inputs [n, width] ...) -> [n, width]; changes the states in place."""


class Route(StrEnum):
    """How a decode step goes through its states: `BATCHED` on one strided view, `SINGLE` row, else one sequence after
    the other, because the rows only have to be sorted by slot (`UNSORTED`), slots between theirs belong to others
    (`GAP`), or the batched form is switched `OFF`."""

    BATCHED = "batched"
    SINGLE = "single"
    UNSORTED = "unsorted"
    GAP = "gap"
    OFF = "off"


def route_of(slots: Sequence[int]) -> Route:
    """The route for the rows' slots, in row order: batched where row i is at the first row's slot + i."""
    if len(slots) < 2:
        return Route.SINGLE
    first = min(slots)
    consecutive = list(range(first, first + len(slots)))
    if list(slots) == consecutive:
        return Route.BATCHED
    return Route.UNSORTED if sorted(slots) == consecutive else Route.GAP


@dataclass(frozen=True)
class RecurrenceCounts:
    """Decode steps with at least one row, by route. What a captured CUDA graph replays is not counted."""

    steps: Mapping[Route, int] = field(default_factory=dict)

    @property
    def batched(self) -> int:
        return self.steps.get(Route.BATCHED, 0)

    @property
    def fallback(self) -> Mapping[Route, int]:
        """Steps of several rows that went through them one by one, by the reason."""
        return {route: n for route, n in self.steps.items() if route not in (Route.BATCHED, Route.SINGLE)}

    @property
    def batched_share(self) -> float | None:
        """Of the steps with several rows; None where there was none."""
        several = self.batched + sum(self.fallback.values())
        return self.batched / several if several else None


class RecurrentStates:
    """The states that all recurrent layers of one model share, and where those of the forward in hand are.

    The state of a sequence is float32 [recurrent layers, 1 + history, width]: the recurrence, then the last inputs of
    the convolution, oldest first. `batched` False: decode always goes sequence by sequence.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.shape = (len(config.recurrent_layers), config.recurrent_conv, config.recurrent_width)
        self.batched = True
        self._storage: Tensor | None = None
        self._steps: Counter[Route] = Counter()
        self._slots: list[int] | None = []
        self._slot_tensor: Tensor | None = None
        self._route = Route.SINGLE
        self._packed: Packed | None = None

    def bind(self, pool: StateSlotPool) -> None:
        """ValueError for a pool of another shape or dtype."""
        states = pool.states
        if tuple(states.shape[1:]) != self.shape or states.dtype != torch.float32:
            raise ValueError(
                f"a state pool of {tuple(states.shape[1:])} {states.dtype} cannot hold the model's states of "
                f"{self.shape} {torch.float32}; make it with the model's state_shape()"
            )
        self._storage = pool.storage

    @property
    def storage_identity(self) -> tuple[int, ...] | None:
        """Address and shape of the bound pool's storage, None while none is bound."""
        return None if self._storage is None else (self._storage.data_ptr(), *self._storage.shape)

    @property
    def counts(self) -> RecurrenceCounts:
        return RecurrenceCounts(dict(self._steps))

    def begin_forward(self, rows: int) -> None:
        """Find the states of the rows, once for all layers, from the bound `state_slots` (and `cu_seqlens`).

        RuntimeError where they are not bound, or a padded row is before a live one.
        """
        base = AttnWrapperBase
        self._slots, self._packed, self._slot_tensor = [], None, base.state_slots
        if rows == 0:
            return
        if base.state_slots is None or self._storage is None:
            raise RuntimeError(
                "forward of a recurrent model without its states: call bind_states() with a pool and bind "
                "AttnWrapperBase.state_slots first"
            )
        if base.phase == "prefill":
            if base.cu_seqlens is None:
                raise RuntimeError("prefill forward without AttnWrapperBase.cu_seqlens bound")
            self._packed = Packed.of(base.cu_seqlens, self.shape[1], base.state_slots.device)
            return
        if _is_capturing(base.state_slots):
            self._slots = None  # a capture may not read them back
            return
        slots = base.state_slots.tolist()
        self._slots = [slot for slot in slots if slot >= 0]
        if slots[: len(self._slots)] != self._slots:
            raise RuntimeError(f"state slots {slots}: a padded row is before a live one")
        if self._slots:
            self._route = route_of(self._slots)
            if self._route is Route.BATCHED and not self.batched:
                self._route = Route.OFF
            self._steps[self._route] += 1

    def layer(self, index: int) -> LayerStates:
        """States of the `index`-th recurrent layer."""
        return LayerStates(self, index)

    def copy_of(self, slots: Tensor) -> Tensor:
        """The states of these rows, [n, *shape]; of a padded row whatever the scratch slot holds."""
        assert self._storage is not None
        return self._storage.index_select(0, self._with_scratch(slots))

    @contextmanager
    def set_back(self, slots: Tensor, before: Tensor) -> Iterator[None]:
        """Inside, the states of these rows are `before`, and no step is counted; afterwards all is as it was."""
        assert self._storage is not None
        at = self._with_scratch(slots)
        now, steps = self._storage.index_select(0, at), self._steps
        self._storage.index_copy_(0, at, before)
        self._steps = Counter()
        try:
            yield
        finally:
            self._steps = steps
            self._storage.index_copy_(0, at, now)

    def _with_scratch(self, slots: Tensor) -> Tensor:
        assert self._storage is not None
        return torch.where(slots < 0, self._storage.shape[0] - 1, slots).to(torch.int64)

    def decode(self, layer: int, advance: Advance, inputs: tuple[Tensor, ...]) -> Tensor:
        """`advance` on the states of the live rows; padded rows touch no sequence's state and come out as zeros."""
        rows, width = inputs[0].shape[0], self.shape[2]
        if self._slots is None:
            return self._gathered(layer, advance, inputs)
        live = len(self._slots)
        if live == 0:
            return inputs[0].new_zeros(rows, width)
        assert self._storage is not None
        states, first = self._storage[:, layer], self._slots[0]
        if self._route in (Route.BATCHED, Route.SINGLE):
            done = advance(states[first : first + live], *(x[:live] for x in inputs))
        else:
            done = torch.cat(
                [
                    advance(states[slot : slot + 1], *(x[row : row + 1] for x in inputs))
                    for row, slot in enumerate(self._slots)
                ]
            )
        return F.pad(done, (0, 0, 0, rows - live)) if live < rows else done

    def _gathered(self, layer: int, advance: Advance, inputs: tuple[Tensor, ...]) -> Tensor:
        """By index, on the device alone; padded rows work on the scratch slot."""
        assert self._storage is not None and self._slot_tensor is not None
        at = self._with_scratch(self._slot_tensor)
        states = self._storage[:, layer]
        held = states.index_select(0, at)
        done = advance(held, *inputs)
        states.index_copy_(0, at, held)
        return done

    @property
    def packed(self) -> Packed | None:
        """How prompts are packed into the rows of this prefill; None in decode."""
        return self._packed

    def leave(self, layer: int, part: slice | int, values: Tensor) -> None:
        """Prefill: `values`, one for each sequence, become part `part` of its state."""
        assert self._storage is not None and self._slot_tensor is not None
        self._storage[self._slot_tensor, layer, part] = values


@dataclass(frozen=True)
class LayerStates:
    """The states of one recurrent layer."""

    states: RecurrentStates
    index: int

    @property
    def history(self) -> int:
        """Earlier inputs that the convolution looks at."""
        return self.states.shape[1] - 1

    def windows(self, values: Tensor, convolve: Callable[[Tensor], Tensor]) -> Tensor:
        """`convolve` on the inputs [n, history + 1, width] that end at each row, zeros before a sequence begins."""
        packed = self.states.packed
        if packed is not None:
            windows = packed.windows(values)
            self.states.leave(self.index, slice(1, None), windows[packed.last][:, 1:])
            return convolve(windows)

        def advance(states: Tensor, value: Tensor) -> Tensor:
            window = torch.cat((states[:, 1:], value[:, None]), 1)
            states[:, 1:] = window[:, 1:]
            return convolve(window)

        return self.states.decode(self.index, advance, (values,))

    def scan(self, decay: Tensor, entering: Tensor) -> Tensor:
        """``h = decay * h + entering`` along each sequence; h of each row."""
        packed = self.states.packed
        if packed is not None:
            states = packed.scan(decay, entering)
            self.states.leave(self.index, 0, states[packed.last])
            return states

        def advance(states: Tensor, decay: Tensor, entering: Tensor) -> Tensor:
            return states[:, 0].mul_(decay).add_(entering).clone()

        return self.states.decode(self.index, advance, (decay, entering))


def _is_capturing(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
