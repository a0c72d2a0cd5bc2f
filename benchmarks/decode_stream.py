"""The events of a decode that goes on and on, without an engine: real sequences, the real boundary planner.

Batch 32, page 16, a boundary every two pages; a sequence that completes makes room for one that waits.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchgen import sequence as sequences
from batchgen.continuous_batching import NodeHostStats
from batchgen.sequence import SequenceEntry, SequenceStatus
from shadow.observation import Event, Key, Kind, Pages, Point, Rows
from shadow.plain import plain
from shadow.record.snapshot import DECISIONS, Snapshot, input_values
from shadow.record.source_tree import TreePlanner
from shadow.record.tables import Header
from shadow.record.values import tree_bytes
from shadow.record.writer import RecordWriter

ROOT = Path(__file__).resolve().parent.parent
PAGE, BATCH, EVERY = 16, 32, 32
SETTINGS = {"page_size": PAGE, "max_batch_size": BATCH, "enable_host_kv_eviction": True}
SHOWN = ("status", "decoded_length", "current_context_length", "gpu_pages_allocated", "host_pages_allocated")
REPLICATED = (
    *SHOWN[1:],
    "had_initial_gpu_reservation",
    "host_token_capacity",
    "prompt_length",
    "reentry_decoded_baseline",
    "max_decode_length",
    "total_decoded_before_eviction",
    "eos_reached",
    "finish_reason",
    "_rep_detected",
)


@dataclass
class Decode:
    """`tokens`: how many each sequence decodes; the fewer, the more often the batch changes. `batch`: rows."""

    tokens: int
    seed: int = 0
    batch: int = BATCH
    pages: int = 1 << 14
    free: list[int] = field(default_factory=list)
    owned: dict[str, list[int]] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        sequences.configure_page_buffers(page_size=PAGE, initial=32, extension=4, decision_frequency=2)
        self.random = random.Random(self.seed)
        self.free = list(range(self.pages))
        self.planner = TreePlanner(ROOT, SETTINGS, world_size=1, gpus_per_node=8)
        self.waiting = [self._arrival() for _ in range(4)]
        self.running = [self._arrival(first=i * self.tokens // self.batch) for i in range(self.batch)]
        for entry in self.running:
            self._load(entry)

    def _arrival(self, first: int = 0) -> SequenceEntry:
        entry = SequenceEntry(f"r{self.count}", self.count, 64, self.tokens + 64)
        entry.assigned_rank = 0
        entry.max_decode_length = max(EVERY, self.tokens - first)
        entry.host_pages_allocated = sequences.pages_for_tokens(64 + self.tokens + 64)
        entry.host_token_capacity = entry.host_pages_allocated * PAGE
        entry.status = SequenceStatus.PREFILLED
        self.count += 1
        return entry

    def _load(self, entry: SequenceEntry) -> None:
        count = entry.get_gpu_pages_for_two_page_buffer()
        self.owned[entry.uuid] = [self.free.pop() for _ in range(count)]
        entry.gpu_pages_allocated, entry.status = count, SequenceStatus.IN_DECODE
        entry.mark_initial_gpu_reservation()

    def events(self, steps: int) -> Iterator[Event]:
        for step in range(steps):
            if step and step % EVERY == 0:
                yield self._boundary(step)
            yield self._step(step)

    def _step(self, step: int) -> Event:
        rows = Rows(tuple(entry.uuid for entry in self.running))
        values: dict[Key, Any] = {Key(Kind.PAGE_TABLE, None, "rows"): rows}
        for entry in self.running:
            name, owned, length = entry.uuid, self.owned[entry.uuid], entry.current_context_length
            values[Key(Kind.PAGE_TABLE, name, "kv_len")] = length
            values[Key(Kind.PAGE_TABLE, name, "primary.owned_pages")] = Pages("primary", tuple(owned))
            live = tuple(owned[: -(-length // PAGE)])
            values[Key(Kind.PAGE_TABLE, name, "primary.live_pages")] = Pages("primary", live)
            for shown in SHOWN:
                values[Key(Kind.SEQUENCE, name, shown)] = plain(getattr(entry, shown))
        values[Key(Kind.PAGE_TABLE, None, "primary.free_pages")] = len(self.free)
        for entry in self.running:
            values[Key(Kind.TOKENS, entry.uuid, "token")] = self.random.randrange(50_000)
            entry.decoded_length += 1
            entry.current_context_length += 1
        return Event(Point.DECODE, step, values)

    def _boundary(self, step: int) -> Event:
        entries = [*self.running, *self.waiting]
        state = {
            entry.uuid: {
                **{name: getattr(entry, name) for name in REPLICATED},
                "completed": entry.decoded_length >= entry.max_decode_length,
                "assigned_rank": 0,
                "additional_pages_needed": entry.get_additional_gpu_pages_needed(),
                "host_growth_pages": 0,
            }
            for entry in self.running
        }
        candidates = {
            entry.uuid: {
                "pages_needed": entry.get_gpu_pages_for_two_page_buffer(),
                "assigned_rank": 0,
                "status": int(entry.status),
                "decoded_length": entry.decoded_length,
                "host_pages_allocated": entry.host_pages_allocated,
            }
            for entry in self.waiting
        }
        arguments = {
            "decode_uuids": list(state),
            "global_seq_state": state,
            "global_candidate_info": candidates,
            "per_rank_free": {0: len(self.free)},
            "node_stats": [NodeHostStats(0, 1 << 14, 1 << 15)],
        }
        values = input_values(arguments, entries, {})
        by_uuid: dict[str, Any] = {entry.uuid: entry for entry in entries}
        decisions = self.planner(Snapshot(arguments, by_uuid, len(entries)))
        values[DECISIONS] = plain(decisions)
        for uuid in decisions.completed_uuids:
            self.free += self.owned.pop(uuid)
        for uuid in decisions.seqs_needing_extension:
            extra = by_uuid[uuid].get_additional_gpu_pages_needed()
            self.owned[uuid] += [self.free.pop() for _ in range(extra)]
            by_uuid[uuid].gpu_pages_allocated += extra
        for uuid in decisions.new_load_uuids:
            self._load(by_uuid[uuid])
        self.running = [by_uuid[u] for u in (*decisions.decode_uuids_final, *decisions.new_load_uuids)]
        self.waiting = [e for e in self.waiting if e.uuid not in decisions.new_load_uuids]
        self.waiting += [self._arrival() for _ in decisions.new_load_uuids]
        return Event(Point.DECISIONS, step, values)


def record(path: Path, events: Iterator[Event], chunk: int = 64) -> Path:
    """A record of the events, without their arrays."""
    header = Header(chunk, (), 8, 1, tree_bytes(SETTINGS), ())
    writer = RecordWriter(path, header)
    for event in events:
        writer.add(event)
    writer.finish("done")
    return path
