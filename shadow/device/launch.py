"""Fixed buffers on the device and the launch that fills them: nothing is allocated, read or waited for by a launch."""

from __future__ import annotations

import contextlib
import math
from contextlib import AbstractContextManager

import torch

from shadow.device.availability import Unavailable, unavailable
from shadow.device.bits import DTYPES, bits, check_pair, headed
from shadow.device.statistics import RowStatistics, Word, decoded

# Elements of one side that a program holds in registers, its warps, and the registers of each thread: four programs
# fit on a multiprocessor then, which keeps enough loads under way. Read off the code for sm_90, not measured.
TILE, WARPS, REGISTERS = 2048, 4, 128


# A place in a row has 31 bits.
LONGEST = 2**31 - TILE


class Launch:
    """Compares tensors of the shape, dtype and device of `like` into one of `slots` slots, the next one each time.

    Raises:
        Unavailable: where the kernel cannot run.
        ValueError: what has no rows, or not of floats (see `check_pair`), or rows longer than LONGEST.
    """

    def __init__(self, like: torch.Tensor, slots: int = 1) -> None:
        check_pair(like, like)
        reason = unavailable(like.device)
        if reason is not None:
            raise Unavailable(reason)
        from shadow.device import kernel

        self._kernel = kernel
        self.slots = slots
        self._header, self._device, self._kind = headed(like), like.device, DTYPES[like.dtype]
        *lead, self._length = like.shape
        if self._length > LONGEST:
            raise ValueError(f"{self._header}: a row of more than {LONGEST} elements")
        self._lead, self._rows = tuple(lead), math.prod(lead)
        self._columns = min(TILE, _power_of_two(self._length))
        self._rows_at_once = TILE // self._columns
        self._tiles = -(-self._length // self._columns)
        #: The words of each slot, and which step it was written at (-1: none yet).
        shape = (slots, self._tiles, len(Word), self._rows)
        self.words = torch.zeros(shape, dtype=torch.int32, device=like.device)
        self.steps = torch.full((slots,), -1, dtype=torch.int64, device=like.device)
        self._counter = torch.zeros(1, dtype=torch.int64, device=like.device)

    def __call__(self, control: torch.Tensor, candidate: torch.Tensor) -> None:
        """On the current stream; may be captured. ValueError: unlike `like`, or not contiguous."""
        self._check(control, "control")
        self._check(candidate, "candidate")
        programs = -(-self._rows // self._rows_at_once) * self._tiles
        with _on(self._device):
            if programs:
                self._kernel.compare_tile[(programs,)](
                    bits(control),
                    bits(candidate),
                    self.words,
                    self._counter,
                    self._rows,
                    self._length,
                    self.slots,
                    self._tiles,
                    KIND=self._kind,
                    ROWS=self._rows_at_once,
                    COLUMNS=self._columns,
                    num_warps=WARPS,
                    maxnreg=REGISTERS,
                )
            self._kernel.next_step[(1,)](self._counter, self.steps, self.slots, num_warps=1)

    def restart(self) -> None:
        """The next launch is step 0 again."""
        self._counter.zero_()
        self.steps.fill_(-1)

    def decoded(self, words: torch.Tensor) -> RowStatistics:
        """Of the words of one slot, on the CPU."""
        return decoded(words.numpy(), self._lead, self._length)

    def _check(self, tensor: torch.Tensor, side: str) -> None:
        if headed(tensor) != self._header:
            raise ValueError(f"the {side} is {headed(tensor)}; this was made for {self._header}")
        if not tensor.is_contiguous():
            raise ValueError(f"the {side} is not contiguous: hand over a contiguous copy")


def _power_of_two(length: int) -> int:
    return 1 << max(0, length - 1).bit_length()


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the current device, whatever the tensors'."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
