"""Any order of calls on a pool: pages are conserved, never shared, and tables say what the lists say."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batchgen.kv import DualKVCacheCoordinator, GPUPagedKVCacheManager, KVExhausted, KVPoolConfig

CPU = torch.device("cpu")
PAGE = 4
IDS = st.integers(0, 9)


class PoolMachine(RuleBasedStateMachine):
    """The model is only this: which pages belong to which id, and which ids the rows name."""

    manager: GPUPagedKVCacheManager | DualKVCacheCoordinator

    @initialize(num_pages=st.integers(1, 12), slots=st.integers(1, 6), dual=st.booleans())
    def start(self, num_pages: int, slots: int, dual: bool) -> None:
        config = KVPoolConfig("primary", 1, num_pages, PAGE, 1, 1, max_slots=slots, graph_max_slots=3)
        config = dataclasses.replace(config, graph_max_pages=4)
        manager = GPUPagedKVCacheManager(config, CPU)
        if dual:
            auxiliary = dataclasses.replace(config, name="auxiliary", has_value=False)
            self.manager = DualKVCacheCoordinator(manager, GPUPagedKVCacheManager(auxiliary, CPU))
        else:
            self.manager = manager
        self.manager.initialize()
        self.num_pages, self.slots = num_pages, slots
        self.owned: dict[int, set[int]] = {}
        self.rows: list[int] = []
        self.graph_pointer = self.manager.ensure_cuda_graph_page_table().data_ptr()

    def free_count(self) -> int:
        return self.num_pages - sum(map(len, self.owned.values()))

    def got(self, taken: dict[int, list[int]], counts: dict[int, int]) -> None:
        assert {sid: len(pages) for sid, pages in taken.items()} == counts
        fresh = [page for pages in taken.values() for page in pages]
        assert len(set(fresh)) == len(fresh)
        assert not set(fresh) & set().union(*self.owned.values())
        for sid, pages in taken.items():
            self.owned.setdefault(sid, set()).update(pages)

    @rule(wishes=st.dictionaries(IDS, st.integers(0, 5 * PAGE), max_size=4))
    def allocate(self, wishes: dict[int, int]) -> None:
        counts = {sid: -(-tokens // PAGE) for sid, tokens in wishes.items()}
        if wishes.keys() & self.owned.keys():
            with pytest.raises(ValueError, match="already holds"):
                self.manager.allocate_pages_for_sequences(list(wishes), list(wishes.values()))
        elif sum(counts.values()) > self.free_count():
            with pytest.raises(KVExhausted):
                self.manager.allocate_pages_for_sequences(list(wishes), list(wishes.values()))
        else:
            self.got(self.manager.allocate_pages_for_sequences(list(wishes), list(wishes.values())), counts)

    @rule(wishes=st.dictionaries(IDS, st.integers(0, 3), max_size=3))
    def grow(self, wishes: dict[int, int]) -> None:
        if not wishes.keys() <= self.owned.keys():
            with pytest.raises(KeyError):
                self.manager.grow_pages_for_sequences(list(wishes), list(wishes.values()))
        elif sum(wishes.values()) > self.free_count():
            with pytest.raises(KVExhausted):
                self.manager.grow_pages_for_sequences(list(wishes), list(wishes.values()))
        else:
            self.got(self.manager.grow_pages_for_sequences(list(wishes), list(wishes.values())), wishes)

    @rule(sid=IDS, tokens=st.integers(0, 8 * PAGE))
    def extend(self, sid: int, tokens: int) -> None:
        if sid not in self.owned:
            with pytest.raises(KeyError):
                self.manager.extend_pages_for_sequence(sid, tokens)
            return
        missing = max(0, -(-tokens // PAGE) - len(self.owned[sid]))
        if missing > self.free_count():
            with pytest.raises(KVExhausted):
                self.manager.extend_pages_for_sequence(sid, tokens)
        else:
            self.got({sid: self.manager.extend_pages_for_sequence(sid, tokens)}, {sid: missing})

    @rule(ids=st.lists(IDS, max_size=3))
    def free(self, ids: list[int]) -> None:
        if set(ids) <= self.owned.keys() and len(set(ids)) == len(ids):
            self.manager.free_pages_for_sequences(ids)
            for sid in ids:
                del self.owned[sid]
        else:
            with pytest.raises(KeyError):
                self.manager.free_pages_for_sequences(ids)

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def free_some(self, data: st.DataObject) -> None:
        self.free(data.draw(st.lists(st.sampled_from(sorted(self.owned)), unique=True)))

    @rule(data=st.data())
    def rebuild(self, data: st.DataObject) -> None:
        ids = data.draw(st.permutations(sorted(self.owned)))[: data.draw(st.integers(0, 8))]
        if 0 < len(ids) <= self.slots:
            self.manager.rebuild_page_table(ids)
            self.rows = ids
            table = self.manager.page_table_for_rows(len(ids)).tolist()
            assert [set(row) - {-1} for row in table] == [self.owned[sid] for sid in ids]
        else:
            with pytest.raises(ValueError):
                self.manager.rebuild_page_table(ids)

    @rule()
    def clear(self) -> None:
        self.manager.clear_page_table()
        self.rows = []

    @rule()
    def fill_graph_table(self) -> None:
        live = self.manager.export_active_sequence_page_counts()
        if self.manager.page_table_for_rows(1).shape[1] <= 4 and len(live) <= 3:
            self.manager.get_cuda_graph_page_table()
            assert self.manager.get_cuda_graph_page_table_state()[4]

    @rule()
    def destroy_and_start_again(self) -> None:
        self.manager.destroy()
        self.manager.initialize()
        self.owned, self.rows = {}, []
        self.graph_pointer = self.manager.ensure_cuda_graph_page_table().data_ptr()

    @invariant()
    def pool_is_sound(self) -> None:
        if not hasattr(self, "owned"):
            return
        self.manager.check_invariants()
        assert {sid: set(pages) for sid, pages in self.manager._sequences.items()} == self.owned
        assert self.manager.get_stats().num_free_pages == self.free_count()
        assert self.manager.slot_to_seq_id == self.rows
        assert self.manager.ensure_cuda_graph_page_table().data_ptr() == self.graph_pointer
        live = set().union(*self.owned.values())
        assert set(self.manager.gpu_table.flatten().tolist()) - {-1} <= live


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
