"""What a decode phase and a batch leave behind: nothing owned, nothing pending, nothing bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shadow.observation import Point, Violation
from shadow.observe.pools import host_pages
from shadow.observe.probe import Subject

_STAYS_BOUND = frozenset(("phase", "attention_backend", "row_exact"))  # of the job, not of a phase


class PhaseCleanup:
    """After a decode phase: no class-level binding to what it owned, no copy under way, nothing collected.

    Looked at where the phase ends, before anything else can clean up behind it.
    """

    name = "decode-cleanup"
    points = frozenset((Point.PREFILL, Point.END))

    def __init__(self) -> None:
        self._looked_at = 0
        self._found: list[Violation] = []

    def missing(self, subject: Subject) -> str | None:
        if not hasattr(subject.wrapper, "MUTABLE_ATTRS"):
            return f"{subject.wrapper.__name__} does not say what is bound on it"
        has = callable(getattr(subject.worker, "decoding_continuous", None))
        return None if has else "it has no decode phase to look behind"

    def install(self, subject: Subject) -> None:
        self._looked_at, self._found = 0, []

        def ended(original: Callable[..., Any]) -> Callable[..., Any]:
            def hook(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                with subject.observing():
                    self._look(subject)
                return result

            return hook

        subject.hooks.wrap(subject.worker, "decoding_continuous", ended)

    def _look(self, subject: Subject) -> None:
        for name in subject.wrapper.MUTABLE_ATTRS:
            if name in _STAYS_BOUND:
                continue
            self._looked_at += 1
            value = getattr(subject.wrapper, name, None)
            if value is not None:
                text = f"{name} is still bound after the decode phase, to a {type(value).__name__}"
                self._found.append(Violation(self.name, text))
        for name in ("_pending_kv_append_tasks", "_deferred_kv_entries", "_deferred_kv_entries_aux"):
            self._looked_at += 1
            left = getattr(subject.worker, name, None)
            if left:
                self._found.append(
                    Violation(self.name, f"{len(left)} of {name} are left after the decode phase")
                )

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        seen = self._looked_at, self._found
        self._looked_at, self._found = 0, []
        return seen


class Leftovers:
    """After a batch, and of sequences that are over at any time: no page, slot, row or buffer is theirs."""

    name = "leftovers"
    points = frozenset((Point.BOUNDARY, Point.END))

    def missing(self, subject: Subject) -> str | None:
        return None if hasattr(subject.worker, "_uuid_to_local_map") else "it keeps nothing by sequence"

    def install(self, subject: Subject) -> None:
        return None

    def check(self, subject: Subject, point: Point) -> tuple[int, list[Violation]]:
        over = {e.global_idx: e for e in subject.entries if getattr(e.status, "name", "") == "COMPLETED"}
        gone = {e.global_idx: e for e in subject.entries if getattr(e.status, "name", "") == "EVICTED"}
        looked_at, found = 0, []
        for where, held in _held(subject):
            looked_at += 1
            for index, count in held.items():
                entry = over.get(index) or gone.get(index)
                if entry is not None or point is Point.END:
                    label = subject.names.of_index(index)
                    state = "nothing runs any more" if entry is None else f"it is {entry.status.name}"
                    text = f"{label} still has {count} of {where}, and {state}"
                    found.append(Violation(self.name, text, label))
        return looked_at, found + (self._batch(subject) if point is Point.END else [])

    def _batch(self, subject: Subject) -> list[Violation]:
        """What must be empty when a batch is over."""
        worker, found = subject.worker, []
        graphs = getattr(worker, "_cuda_graph_manager", None)
        pool = getattr(worker, "_buffer_pool", None)
        args = getattr(worker, "args", None)
        slots = getattr(args, "max_pool_size", 0) - len(getattr(worker, "_free_pool_slots", ()))
        counts = {
            "captured graphs": 0 if graphs is None else 1,
            "local indices": len(worker._uuid_to_local_map),
            "query book entries": len(getattr(worker, "query_book", ())),
            "token buffers": 0 if pool is None else pool.in_use,
            "request pool slots": slots if args is not None else 0,
            "sequences with GPU pages": len(getattr(worker, "_sequences_with_gpu_kv", ())),
            "pending host copies": len(getattr(worker, "_pending_kv_append_tasks", ())),
        }
        for what, count in counts.items():
            if count:
                found.append(Violation(self.name, f"{count} {what} are left when the batch is over"))
        return found


def _held(subject: Subject) -> Iterator[tuple[str, dict[int, int]]]:
    """(what, how much of it by global index)."""
    for name, pool in subject.pools():
        yield f"the pages of pool {name}", {i: len(pages) for i, pages in pool._sequences.items()}
    for name, view in subject.hosts():
        yield f"the pages of pool {name}", {i: len(pages) for i, pages in host_pages(view).items()}
    slots = getattr(getattr(subject.worker, "core_engine", None), "state_slot_pool", None)
    yield "the state slots", dict.fromkeys(getattr(slots, "_slots", {}), 1)
    yield "the kept states", dict.fromkeys(getattr(slots, "_kept", {}), 1)
