"""Static buffers of a replayed bucket: padded rows hold nothing, and the captured addresses stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shadow.observation import Point, Violation
from shadow.observe.forward import Forward
from shadow.observe.hooks import tree_class
from shadow.observe.probe import Subject

_DECODE = frozenset((Point.DECODE,))


def _tensors(buffers: Any) -> Iterator[tuple[str, Any]]:
    for group in ("inputs", "in_place", "outputs"):
        yield from getattr(buffers, group, {}).items()


class _OfReplays:
    points = _DECODE

    def missing(self, subject: Subject) -> str | None:
        if tree_class("cuda_graph", "StaticGraphManager") is None:
            return "nothing is replayed"
        return subject.forward.missing

    def install(self, subject: Subject) -> None:
        subject.forward.install()


class PadRows(_OfReplays):
    """Rows beyond the batch have no length, no page and no slot, so that they touch the scratch page alone.

    What a larger batch left there would write into pages of other sequences.
    """

    name = "pad-rows"
    # what a kernel makes of the row: no token counted, no page named, no state written
    empty = {"cache_seqlens": 0, "page_table": -1, "state_slots": -1}  # noqa: RUF012

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        last = subject.forward.last
        if last is None or last.buffers is None:
            return 0, []
        looked_at, found = 0, []
        rows = len(subject.entries)
        tensors = dict(_tensors(last.buffers))
        for name, value in self.empty.items():
            if name not in tensors or len(tensors[name]) <= rows:
                continue
            padded = tensors[name][rows:].cpu().numpy()
            looked_at += len(padded)
            dirty = np.any(padded.reshape(len(padded), -1) != value, axis=1)
            if dirty.any():
                row = rows + int(dirty.argmax())
                text = f"row {row} of bucket {last.bucket} is padding; its {name} is {padded[row - rows].tolist()}"
                found.append(Violation(self.name, text))
        return looked_at, found


class CapturedPointers(_OfReplays):
    """Address, shape and stride of every buffer of a bucket are, at each replay, those of its capture."""

    name = "captured-pointers"

    def __init__(self) -> None:
        self._captured: dict[int, dict[str, tuple[Any, ...]]] = {}
        self._read: dict[str, tuple[Any, ...]] = {}

    def install(self, subject: Subject) -> None:
        super().install(subject)
        self._captured, self._read = {}, {}
        manager = tree_class("cuda_graph", "StaticGraphManager")

        def capture(original: Any) -> Any:
            def hook(owner: Any, adapter: Any, bucket: int, pools: Any) -> Any:
                done = original(owner, adapter, bucket, pools)
                captured = getattr(owner, "_captured", {}).get(bucket)
                if captured is not None:
                    self._captured[bucket] = _identities(captured)
                return done

            return hook

        def began(forward: Forward) -> None:
            self._read = {} if forward.buffers is None else _identities(forward)

        subject.hooks.wrap(manager, "capture", capture)
        subject.forward.began.append(began)

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        last = subject.forward.last
        if last is None or last.bucket is None:
            return 0, []
        captured = self._captured.get(last.bucket)
        if captured is None:
            text = f"bucket {last.bucket} was replayed and never captured"
            return 1, [Violation(self.name, text)]
        found = []
        for name in [*captured, *(name for name in self._read if name not in captured)]:
            if self._read.get(name) != captured.get(name):
                text = (
                    f"{name} of bucket {last.bucket} lay at {_said(captured.get(name))} when it was captured, "
                    f"now it lies at {_said(self._read.get(name))}"
                )
                found.append(Violation(self.name, text))
        return len(captured), found


def _identities(captured: Any) -> dict[str, tuple[Any, ...]]:
    """By name: the static buffers, the caches and graph tables of the pools."""
    manager = getattr(captured, "gpu_kv_manager", None) or getattr(captured, "manager", None)
    tensors = dict(_tensors(captured.buffers))
    for pool in (getattr(manager, "primary", manager), getattr(manager, "auxiliary", None)):
        if pool is None or not pool.is_initialized:
            continue
        tensors[f"{pool.config.name}.k_cache"] = pool.k_cache
        if pool.v_cache is not None:
            tensors[f"{pool.config.name}.v_cache"] = pool.v_cache
    return {
        name: (tensor.data_ptr(), tuple(tensor.shape), tensor.stride()) for name, tensor in tensors.items()
    }


def _said(identity: tuple[Any, ...] | None) -> str:
    return "no address" if identity is None else f"{identity[0]:#x} {list(identity[1])}"
