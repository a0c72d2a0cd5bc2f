"""Calls that change pools, host views, statuses and ranks, and the collectives, in the order they happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed

from shadow.observation import Call, Calls, Kind, Point
from shadow.observe.hooks import tree_class, tree_module
from shadow.observe.probe import Subject, Values, key

COLLECTIVES = (
    "all_gather",
    "all_gather_object",
    "all_reduce",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "new_group",
    "recv",
    "send",
)
# (class of batchgen.kv, the methods that change it). Those that call each other are recorded once.
MUTATORS = {
    "GPUPagedKVCacheManager": (
        *("initialize", "destroy", "allocate_pages_for_sequences", "grow_pages_for_sequences"),
        *("extend_pages_for_sequence", "undo_take", "free_pages_for_sequences"),
        *("rebuild_page_table", "clear_page_table", "restore_page_table"),
    ),
    "HostPagedKVWorkerView": (
        *("register_sequences", "unregister_sequences", "allocate_pages_for_sequences"),
        *("grow_pages_for_sequences", "release_sequence_pages", "shrink_pages_for_sequence"),
        *("async_offload_layer_kv_range_to_host", "async_append_decode_kv_to_host"),
        *("async_append_decode_kv_to_host_batched_kernel", "async_load_layer_paged_kv_to_device"),
        *("read_sequence_kv_to_cpu", "write_sequence_kv_from_cpu"),
    ),
    "StateSlotPool": ("allocate", "release"),
    "AsyncTask": ("wait",),
}
_LISTS = (list, tuple)  # not `list | tuple`, which makes an object each time that it is asked
_NUMBERED = (int, tuple)
_ALL = frozenset((Point.PREFILL, Point.DECODE, Point.DECISIONS, Point.BOUNDARY, Point.END))


class Effects:
    """What was done since the last event. Equal calls in a row become one with a count."""

    kind = Kind.EFFECTS
    points = _ALL
    structural = True

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._depth = 0

    def missing(self, subject: Subject) -> str | None:
        return None if tree_class("kv", "GPUPagedKVCacheManager") else "there are no pools to hook"

    def install(self, subject: Subject) -> None:
        self._calls, self._depth = [], 0
        for cls_name, methods in MUTATORS.items():
            cls = tree_class("kv", cls_name)
            for method in methods:
                if cls is not None and callable(getattr(cls, method, None)):
                    subject.hooks.wrap(cls, method, self._recorder(subject, method))
        batch = getattr(tree_module("sequence"), "SequenceBatch", None)
        if batch is not None:
            subject.hooks.wrap(batch, "update_status", self._change(subject, "status"))
            subject.hooks.wrap(batch, "assign_rank", self._change(subject, "rank"))
        for name in COLLECTIVES:
            if callable(getattr(torch.distributed, name, None)):
                subject.hooks.wrap(torch.distributed, name, self._collective(name))

    def values(self, subject: Subject, point: Point) -> Values:
        calls, self._calls = _counted(self._calls), []
        return {key(Kind.EFFECTS, None, "calls"): Calls(tuple(calls))}

    def _recorder(self, subject: Subject, method: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def hook(owner: Any, *args: Any, **kwargs: Any) -> Any:
                if not self._depth:
                    with subject.observing():
                        self._calls.append(_tolerant(subject, owner, method, args, kwargs))
                self._depth += 1
                try:
                    return original(owner, *args, **kwargs)
                finally:
                    self._depth -= 1

            return hook

        return make

    def _change(self, subject: Subject, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def hook(batch: Any, uuid: str, value: Any) -> Any:
                # Another batch is a picture of the worker's: a plan that is being made changes that alone.
                if batch is getattr(subject.worker, "global_batch", batch):
                    entry = batch.sequences.get(uuid)
                    label = uuid if entry is None else subject.names.label(entry)
                    self._calls.append(Call(what, ((label, None),), str(getattr(value, "name", value))))
                return original(batch, uuid, value)

            return hook

        return make

    def _collective(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def hook(*args: Any, **kwargs: Any) -> Any:
                detail = arguments((*args, *kwargs.values()))
                self._calls.append(Call(f"dist.{name}", (), detail))
                return original(*args, **kwargs)

            return hook

        return make


def _tolerant(subject: Subject, owner: Any, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
    """A worker that hands over nonsense is to be compared, not to end the run."""
    try:
        return _called(subject, owner, method, args, kwargs)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        return Call(f"{type(owner).__name__}.{method}", (), f"arguments cannot be read: {error}")


def _called(subject: Subject, owner: Any, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
    """Sequences with the number beside them: the first list of ids, and the first list as long as it."""
    config = getattr(owner, "config", None)
    prefix = "host." if hasattr(owner, "_open_segment") else ""
    where = {"StateSlotPool": "state_slots", "AsyncTask": "task"}.get(type(owner).__name__, "pool")
    name = f"{prefix}{config.name}.{method}" if config is not None else f"{where}.{method}"
    given = [*args, *kwargs.values()]
    layer = ""
    if method in ("async_offload_layer_kv_range_to_host", "async_append_decode_kv_to_host"):
        layer = f"layer {given.pop(0)}"
    if method == "async_append_decode_kv_to_host_batched_kernel":
        layer = f"{len(given.pop(0))} layers"
    lists = [ints for ints in map(_ints, given) if ints is not None]
    if not lists:
        return Call(name, (), layer)
    if lists[0] and isinstance(lists[0][0], tuple):
        labels = subject.names.of_indices(gid for gid, _ in lists[0])
        pairs = zip(labels, (int(number) for _, number in lists[0]), strict=True)
        return Call(name, tuple(pairs), layer)
    ids = subject.names.of_indices(lists[0])
    numbers = next((ints for ints in lists[1:] if len(ints) == len(ids)), [None] * len(ids))
    return Call(name, tuple(zip(ids, numbers, strict=True)), layer)


def _ints(value: Any) -> list[Any] | None:
    """The ids, counts or pairs that an argument holds; None where it is something else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return [value]
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return value.tolist() if value.dim() == 1 and not value.is_floating_point() else None
    if isinstance(value, _LISTS) and all(issubclass(sort, _NUMBERED) for sort in set(map(type, value))):
        return list(value)
    return None


def arguments(values: Sequence[Any]) -> str:
    """Shapes of tensors, and numbers; objects only by their sort."""
    return ", ".join(text for text in map(_argument, values) if text)


def _argument(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"{len(value)} x {_argument(value[0]) or type(value[0]).__name__}" if value else "nothing"
    if isinstance(value, bool | int | str):
        return str(value)
    name = getattr(value, "name", None)  # an operation of a reduction
    return name if isinstance(name, str) else "" if value is None else type(value).__name__


def _counted(calls: Sequence[Call]) -> list[Call]:
    counted: list[Call] = []
    times = 0
    for index, call in enumerate(calls):
        times += 1
        if index + 1 == len(calls) or calls[index + 1] != call:
            text = (
                call.detail if times == 1 else " ".join(part for part in (call.detail, f"x{times}") if part)
            )
            counted.append(Call(call.name, call.items, text))
            times = 0
    return counted
