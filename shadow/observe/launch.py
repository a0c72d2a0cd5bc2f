"""How the forward of the step was started, and what was bound on the attention wrapper as it began."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch

from shadow.observation import Key, Kind, Observed, Point, Rows
from shadow.observe.forward import Forward
from shadow.observe.probe import Subject, Values, key, keys

_DECODE = frozenset((Point.DECODE,))
_REBUILT = (
    "decode_plan",
    "decode_plan_aux",
)  # made anew by the forward: what is there before is the last one
_SCALARS = (bool, int, str)
_SLOTS = {"state_slots", "primary_slot_indices", "aux_slot_indices"}


class Launch:
    """Eager, or the bucket that was replayed, and the reason for it."""

    kind = Kind.LAUNCH
    points = _DECODE
    structural = True

    def missing(self, subject: Subject) -> str | None:
        return subject.forward.missing

    def install(self, subject: Subject) -> None:
        subject.forward.install()

    def values(self, subject: Subject, point: Point) -> Values:
        last = subject.forward.last
        if last is None:
            return {key(Kind.LAUNCH, None, "mode"): "none"}
        return {
            key(Kind.LAUNCH, None, "mode"): last.mode,
            key(Kind.LAUNCH, None, "bucket"): last.bucket,
            key(Kind.LAUNCH, None, "reason"): last.reason,
            key(Kind.LAUNCH, None, "rows"): len(subject.entries),
        }


class Bindings:
    """The class attributes that are hidden inputs of a forward, in plain form: tensors by row, objects by role."""

    kind = Kind.BINDING
    points = _DECODE
    structural = True

    def __init__(self) -> None:
        self._bound: Values = {}
        self._trouble: Exception | None = None

    def missing(self, subject: Subject) -> str | None:
        if not hasattr(subject.wrapper, "MUTABLE_ATTRS"):
            return f"{subject.wrapper.__name__} does not say what is bound on it"
        return subject.forward.missing

    def install(self, subject: Subject) -> None:
        self._bound, self._trouble = {}, None

        def began(forward: Forward) -> None:
            with subject.observing():
                try:
                    self._bound = _bound(subject)
                except Exception as error:  # the worker's doing: a finding of this event
                    self._trouble = error

        subject.forward.install()
        subject.forward.began.append(began)

    def values(self, subject: Subject, point: Point) -> Values:
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        bound, self._bound = self._bound, {}
        return bound


def _bound(subject: Subject) -> Values:
    roles = _roles(subject.worker)
    rows = tuple(subject.names.of_indices(subject.wrapper.cur_batch or ()))
    values: Values = {}
    for name in subject.wrapper.MUTABLE_ATTRS:
        value = getattr(subject.wrapper, name, None)
        if name in _REBUILT:
            continue
        place = key(Kind.BINDING, None, name)
        if name == "cur_batch":
            values[place] = Rows(rows)
        elif isinstance(value, torch.Tensor):
            values[place] = _described(value.dtype, value.shape)
            values.update(_by_row(subject, name, value, rows))
        elif value is None or isinstance(value, _SCALARS):
            values[place] = value
        else:
            role = "callable" if callable(value) else type(value).__name__
            values[place] = roles.get(id(value), role)
    return values


@lru_cache(maxsize=1 << 10)
def _described(dtype: torch.dtype, shape: tuple[int, ...]) -> str:
    return f"{dtype}{list(shape)}"


def _by_row(
    subject: Subject, name: str, value: torch.Tensor, rows: tuple[str, ...]
) -> Iterable[tuple[Key, Observed]]:
    if value.dim() != 1 or value.is_floating_point():
        return ()
    bound = zip(keys(Kind.BINDING, rows, (name,)), value.tolist(), strict=False)
    if name in _SLOTS:
        return [(place, subject.pages(place, name, (number,))) for place, number in bound]
    return bound


def _roles(worker: Any) -> dict[int, str]:
    """What an object is to the worker, by its identity: where roles coincide, the more special one."""
    manager, engine = (
        getattr(worker, "gpu_paged_kv_cache_manager", None),
        getattr(worker, "core_engine", None),
    )
    view = getattr(engine, "host_paged_kv_worker_view", None)
    named = (
        (view, "host view"),
        (getattr(engine, "host_paged_kv_worker_view_aux", None), "auxiliary host view"),
        (manager, "GPU manager"),
        (getattr(manager, "primary", None), "primary pool"),
        (getattr(manager, "auxiliary", None), "auxiliary pool"),
    )
    return {id(value): role for value, role in named if value is not None}
