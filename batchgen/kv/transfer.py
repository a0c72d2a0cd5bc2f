"""Copies between a device and host memory, on a stream of their own when the device is a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


class DeviceTransfers:
    """Starts copies in the calling thread and lets the task thread finish them.

    On CUDA both directions go through pinned staging memory, on one side stream per device that first waits
    for the work already queued on the caller's stream. On the CPU there is nothing to overlap: the task
    thread copies.
    """

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def _side_stream(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        stream = self._streams[device]
        stream.wait_stream(torch.cuda.current_stream(device))
        return stream

    def to_host(self, tensors: Sequence[torch.Tensor], width: int) -> Callable[[], torch.Tensor]:
        """Start bringing the tensors, each [rows, ...] with `width` elements a row, to the CPU.

        The returned function waits for the copy and gives [len(tensors) * rows, width].
        """
        device = tensors[0].device
        if device.type != "cuda":
            return lambda: _joined(tensors, width)
        stream = self._side_stream(device)
        with torch.cuda.stream(stream):
            joined = _joined(tensors, width)
            staged = torch.empty(joined.shape, dtype=joined.dtype, pin_memory=True)
            staged.copy_(joined, non_blocking=True)
            arrived = stream.record_event()
        for tensor in tensors:
            tensor.record_stream(stream)

        def finish() -> torch.Tensor:
            arrived.synchronize()
            return staged

        return finish

    def pages_to_device(
        self,
        source: torch.Tensor,
        source_pages: torch.Tensor,
        target: torch.Tensor,
        target_pages: torch.Tensor,
    ) -> Callable[[], None]:
        """Prepare `target[:, target_pages[i]] = source[:, source_pages[i]]`, both [layers, pages, ...].

        The returned function does it and returns when the data is in place. On CUDA one layer's pages are
        staged at a time. The page ids are int64 on the CPU.
        """
        if target.device.type != "cuda":

            def copy() -> None:
                for to, page in zip(target_pages.tolist(), source_pages.tolist(), strict=True):
                    target[:, to].copy_(source[:, page])

            return copy
        stream = self._side_stream(target.device)

        def copy_through_staging() -> None:
            with torch.cuda.stream(stream):
                pages = target_pages.to(target.device)
                for layer in range(source.shape[0]):
                    staged = torch.empty(
                        (len(source_pages), *source.shape[2:]), dtype=source.dtype, pin_memory=True
                    )
                    torch.index_select(source[layer], 0, source_pages, out=staged)
                    target[layer].index_copy_(0, pages, staged.to(target.device, non_blocking=True))
                stream.record_event().synchronize()

        return copy_through_staging


def _joined(tensors: Sequence[torch.Tensor], width: int) -> torch.Tensor:
    rows = [tensor.reshape(-1, width) for tensor in tensors]
    return rows[0] if len(rows) == 1 else torch.cat(rows)
