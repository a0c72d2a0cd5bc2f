"""What a probe is, and what it may look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from shadow.observation import Key, Kind, Observed, Pages, Point
from shadow.observe.forward import ForwardWatch
from shadow.observe.hooks import Hooks
from shadow.observe.names import Names

Values = dict[Key, Observed]


@dataclass
class Subject:
    """The live worker, the class that attention state is bound on, and the labels of the sequences.

    `entries`: the sequences of the event in hand, those of the batch at a decode or prefill, else all.
    `logits`: [rows, V] of the event in hand, where it has some. `observing`: what a hook does inside of it
    counts as observing, not as the worker's time. `numeric`: content is
    to be scored, not only told apart. `memo`: what several want to know of one event, see `once`.
    `same`: the last pages of each key, see `pages`. `kept`: what was made of an event and holds for the next,
    where what it was made of is the same, value by value.
    `shows_content`: whether probes that are not structural are asked at the decode step in hand.
    """

    worker: Any
    wrapper: Any
    names: Names
    entries: list[Any]
    logits: Any = None
    hooks: Hooks = field(default_factory=Hooks)
    observing: Callable[[], AbstractContextManager[None]] = nullcontext
    layers: tuple[int, ...] = ()
    numeric: bool = False
    memo: dict[str, Any] = field(default_factory=dict)
    shows_content: Callable[[], bool] = lambda: True
    same: dict[Key, Pages] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    forward: ForwardWatch = field(init=False)

    def __post_init__(self) -> None:
        self.forward = ForwardWatch(self.wrapper, self.hooks)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` gives, computed once for each event."""
        if name not in self.memo:
            self.memo[name] = make()
        return self.memo[name]

    def pools(self) -> Iterator[tuple[str, Any]]:
        """(name, single GPU pool) of the worker's live manager: looked up anew, for the worker replaces it."""
        manager = getattr(self.worker, "gpu_paged_kv_cache_manager", None)
        if manager is None or not manager.is_initialized:
            return
        for pool in (getattr(manager, "primary", manager), getattr(manager, "auxiliary", None)):
            if pool is not None:
                yield pool.config.name, pool

    def hosts(self) -> Iterator[tuple[str, Any]]:
        """(name, single host pool) as this rank sees it."""
        view = getattr(getattr(self.worker, "core_engine", None), "host_paged_kv_worker_view", None)
        if view is None:
            return
        for pool in (getattr(view, "primary", view), getattr(view, "auxiliary", None)):
            if pool is not None and hasattr(pool, "_pages"):
                yield f"host.{pool.config.name}", pool

    def again(self, name: str, made_of: Any, make: Callable[[], Any]) -> Any:
        """What `make` gives; that of the event before where all that it is made of is the same, value by value."""
        last = self.kept.get(name)
        if last is None or last[0] != made_of:
            last = self.kept[name] = made_of, make()
        return last[1]

    def attended(self) -> dict[str, int]:
        """kv_len by label of the rows that attention is bound to, in row order."""
        return dict(self.once("attended", self._attended))

    def _attended(self) -> dict[str, int]:
        indices = [int(index) for index in self.wrapper.cur_batch or ()]
        lengths = [] if self.wrapper.cache_seqlens is None else self.wrapper.cache_seqlens.tolist()
        return dict(zip(self.names.of_indices(indices), map(int, lengths), strict=False))

    def labels(self) -> tuple[str, ...]:
        """Those of `entries`."""
        labels: tuple[str, ...] = self.once("labels", lambda: tuple(map(self.names.label, self.entries)))
        return labels

    def order(self, pool: Any) -> list[str]:
        """Labels of the rows of a pool's table."""
        labels: list[str] = self.once(
            f"order {pool.config.name}", lambda: self.names.of_indices(pool.slot_to_seq_id)
        )
        return labels

    def pages(self, place: Key, pool: str, ids: tuple[int, ...], *, owned: bool = True) -> Pages:
        """These pages: the very object of the event before where they are the same."""
        last = self.same.get(place)
        if last is None or last.ids != ids or last.pool != pool:
            last = self.same[place] = Pages(pool, ids, owned)
        return last

    def table(self, pool: Any) -> np.ndarray:
        """A pool's page table, int32 [rows, columns], on the CPU."""
        table: np.ndarray = self.once(f"table {pool.config.name}", lambda: pool.gpu_table.cpu().numpy())
        return table

    def table_bytes(self, pool: Any) -> tuple[tuple[int, ...], bytes]:
        """The shape and the content of a pool's page table."""
        table = self.table(pool)
        content: tuple[tuple[int, ...], bytes] = self.once(
            f"bytes {pool.config.name}", lambda: (table.shape, table.tobytes())
        )
        return content


@lru_cache(maxsize=1 << 12)
def keys(kind: Kind, sequences: tuple[str, ...], names: tuple[str, ...]) -> tuple[Key, ...]:
    """All keys of the first sequence, then those of the next."""
    return tuple(key(kind, label, name) for label in sequences for name in names)


@lru_cache(maxsize=1 << 16)
def key(kind: Kind, sequence: str | None, name: str) -> Key:
    """A key of which there is one for every event."""
    return Key(kind, sequence, name)


class Probe(Protocol):
    """Looks at one sort of value. `points`: where in a run; `structural`: integers only, no content."""

    @property
    def kind(self) -> Kind: ...

    @property
    def points(self) -> frozenset[Point]: ...

    @property
    def structural(self) -> bool: ...

    def missing(self, subject: Subject) -> str | None:
        """Why this worker has no such thing; None where it has."""

    def install(self, subject: Subject) -> None:
        """Hooks that have to be there before the run begins."""

    def values(self, subject: Subject, point: Point) -> Values:
        """What there is to see now; empty where nothing of the sort exists at the moment."""


class PlainProbe:
    """A probe without hooks that every worker can be looked at by."""

    def missing(self, subject: Subject) -> str | None:
        return None

    def install(self, subject: Subject) -> None:
        return None
