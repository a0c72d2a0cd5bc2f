"""Outputs of single layers, on demand: the hidden states of each row after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shadow.observation import Key, Kind, Point, Row
from shadow.observe.forward import Forward
from shadow.observe.probe import Subject, Values


class Layers:
    """Forward hooks on the layers that were asked for. A graph replayed on a GPU runs no hook: nothing is seen then."""

    kind = Kind.LAYER
    points = frozenset((Point.PREFILL, Point.DECODE))
    structural = False

    def __init__(self) -> None:
        self._model: Any = None
        self._seen: dict[int, torch.Tensor] = {}

    def missing(self, subject: Subject) -> str | None:
        if not subject.layers:
            return "not asked for: --layers"
        layers = getattr(getattr(subject.worker, "model", None), "layers", None)
        if layers is None:
            return "the model has no list of layers"
        beyond = [layer for layer in subject.layers if layer >= len(layers)]
        return f"the model has {len(layers)} layers, asked for were {beyond}" if beyond else None

    def install(self, subject: Subject) -> None:
        self._model, self._seen = None, {}
        self._attach(subject)

        def began(forward: Forward) -> None:
            self._attach(subject)

        subject.forward.install()
        subject.forward.began.append(began)

    def _attach(self, subject: Subject) -> None:
        model = getattr(subject.worker, "model", None)
        if model is None or model is self._model:
            return
        self._model = model
        for layer in subject.layers:
            handle = model.layers[layer].register_forward_hook(self._hook(subject, layer))
            subject.hooks.later(handle.remove)

    def _hook(self, subject: Subject, layer: int) -> Callable[[Any, Any, Any], None]:
        def hook(_module: Any, _args: Any, hidden: Any) -> None:
            if subject.forward.aside or (hidden.is_cuda and torch.cuda.is_current_stream_capturing()):
                return
            with subject.observing():
                self._seen[layer] = hidden.detach().clone()  # what follows may add to it in place

        return hook

    def values(self, subject: Subject, point: Point) -> Values:
        self._attach(subject)
        seen, self._seen = self._seen, {}
        labels = [subject.names.label(entry) for entry in subject.entries]
        values: Values = {}
        for layer, hidden in sorted(seen.items()):
            rows = hidden[: len(labels)]
            ends = subject.wrapper.cu_seqlens
            if point is Point.PREFILL and ends is not None:
                rows = hidden[(ends[1:] - 1).to(device=hidden.device, dtype=torch.int64)]
            for label, row in zip(labels, rows.float().cpu().numpy(), strict=False):
                values[Key(Kind.LAYER, label, "hidden", layer)] = Row(row)
        return values
