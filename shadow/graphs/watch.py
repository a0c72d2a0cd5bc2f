"""Hooks on a live worker's graphs: each replay is run again eagerly before the worker goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from shadow.device import RowStatistics
from shadow.diff import Comparison, Mismatch
from shadow.graphs.outputs import Batch, Output, outputs_of
from shadow.messages import HarnessError
from shadow.observation import Kind
from shadow.observe.forward import Forward, ForwardWatch, adapters
from shadow.observe.hooks import Hooks, tree_class
from shadow.observe.names import Names
from shadow.observer import EnoughSteps


class ReplayWatch:
    """`found` hears of each replayed step (number, comparison), one step late as a rule; `drain` tells of the rest.

    Of each `every`-th decode step the replay is run again. Where `max_steps` have begun the next raises EnoughSteps.
    `forwards` counts how decode forwards began: "replay", or why eagerly; their order numbers the steps. `waited`: how
    often the host has waited for the device to compare, known after `drain`.

    Raises:
        HarnessError: a tree without graphs of this kind.
    """

    def __init__(
        self,
        worker: Any,
        wrapper: Any,
        found: Callable[[int, Comparison], None],
        *,
        every: int = 1,
        max_steps: int | None = None,
    ) -> None:
        manager, adapter = (
            tree_class("cuda_graph", name) for name in ("StaticGraphManager", "CudaGraphAdapter")
        )
        if manager is None or adapter is None:
            raise HarnessError(
                "this tree has no batchgen.cuda_graph with StaticGraphManager and CudaGraphAdapter"
            )
        self._names, self._found = Names(worker), found
        self._every, self._max_steps = every, max_steps
        self._outputs: dict[int, Mapping[str, Output]] = {}
        self._asked: tuple[Any, Any] | None = None
        self._gathered: dict[int, list[Comparison]] = {}
        self.forwards: Counter[str] = Counter()
        self.waited = 0
        hooks = Hooks()
        self._forward = ForwardWatch(wrapper, hooks)
        if self._forward.missing is not None:
            raise HarnessError(self._forward.missing)
        self._forward.install()
        self._forward.began.append(self._began)
        hooks.wrap(adapter, "__init__", _keeping_states)
        for cls in adapters():
            if "prepare_replay_inputs" in vars(cls):
                hooks.wrap(cls, "prepare_replay_inputs", self._prepared)
        hooks.wrap(manager, "replay", self._replay)
        hooks.wrap(manager, "capture", self._capture)

    @torch.inference_mode()
    def drain(self) -> None:
        """Waits for what is under way and tells of it."""
        for bucket in tuple(self._outputs):
            self._leave(bucket)

    def _leave(self, bucket: int) -> None:
        outputs = self._outputs.pop(bucket, {})
        for output in outputs.values():
            self._arrived(output, output.drain(), len(outputs))
            self.waited += output.waited

    def _began(self, forward: Forward) -> None:
        if self._max_steps is not None and self.forwards.total() >= self._max_steps:
            raise EnoughSteps
        self.forwards[forward.reason if forward.mode == "eager" else forward.mode] += 1

    def _prepared(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def hook(adapter: Any, batch_state: Any, bucket: int) -> Any:
            self._asked = adapter, batch_state
            return original(adapter, batch_state, bucket)

        return hook

    def _capture(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The buffers of a bucket that is captured again are others."""

        def hook(manager: Any, adapter: Any, bucket: int, pools: Any) -> Any:
            with torch.inference_mode():
                self._leave(bucket)
            return original(manager, adapter, bucket, pools)

        return hook

    def _replay(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def hook(manager: Any, bucket: int, inputs: Any) -> Any:
            outputs = original(manager, bucket, inputs)
            asked, self._asked = self._asked, None
            if asked is None:
                raise HarnessError(f"bucket {bucket} was replayed without prepare_replay_inputs")
            adapter, state = asked
            step = self.forwards.total() - 1
            if state.local_bsz > 0 and step % self._every == 0:
                batch = Batch(step, tuple(self._names.of_indices(state.cur_batch_sequence_ids)))
                self._compare(bucket, outputs, adapter.run_eager_reference(state, inputs), batch)
            return outputs

        return hook

    @torch.inference_mode()
    def _compare(
        self, bucket: int, replayed: Mapping[str, Any], eager: Mapping[str, Any], batch: Batch
    ) -> None:
        if replayed.keys() != eager.keys():
            names = sorted(replayed.keys() ^ eager.keys())
            raise HarnessError(f"only one of replay and eager run has {', '.join(names)}")
        if bucket not in self._outputs:
            self._outputs[bucket] = outputs_of(replayed)
        for name, output in self._outputs[bucket].items():
            self._arrived(output, output.compare(replayed[name], eager[name], batch), len(replayed))

    def _arrived(self, output: Output, found: Iterable[tuple[Batch, RowStatistics]], outputs: int) -> None:
        for batch, rows in found:
            gathered = self._gathered.setdefault(batch.step, [])
            compared = Counter({output.kind: output.compared(rows, batch)})
            gathered.append(Comparison(compared, tuple(output.mismatches(rows, batch)), frozenset()))
            if len(gathered) == outputs:
                del self._gathered[batch.step]
                self._found(batch.step, _together(gathered))


def _together(parts: Iterable[Comparison]) -> Comparison:
    """Of all outputs of a step: what is written first, then what is computed from it."""
    compared: Counter[Kind] = Counter()
    order = list(Kind)
    mismatches: list[Mismatch] = []
    for part in parts:
        compared.update(part.compared)
        mismatches += part.mismatches
    mismatches.sort(key=lambda one: (one.layer is None, one.layer or 0, order.index(one.kind)))
    return Comparison(compared, tuple(mismatches), frozenset())


def _keeping_states(original: Callable[..., Any]) -> Callable[..., Any]:
    """An adapter keeps what a replay advances, so that an eager run can begin where it began."""

    def hook(adapter: Any, buckets: Any, flags: Any = None) -> None:
        chosen = tree_class("cuda_graph", "DecodeGraphFlags")
        given = chosen.from_env() if flags is None else flags  # type: ignore[union-attr]
        original(adapter, buckets, replace(given, compare=True))

    return hook
