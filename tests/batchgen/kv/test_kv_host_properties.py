"""Any order of calls by two ranks of a node: every sequence reads back exactly what was written to it."""

from __future__ import annotations

import itertools
import secrets

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from batchgen.kv import HostPagedKVWorkerView, KVExhausted, KVPoolConfig, PagePointers, open_host_pool

LAYERS, PAGES, PAGE = 2, 10, 4
CONFIG = KVPoolConfig("primary", LAYERS, PAGES, PAGE, num_kv_heads=1, head_dim=2)
RANKS, IDS = st.sampled_from([0, 1]), st.integers(0, 4)
Key = tuple[int, int]  # (rank, gid)


class NodeMachine(RuleBasedStateMachine):
    """The model: pages and written tokens (numbered values, none used twice) of each rank's sequences."""

    @initialize()
    def start(self) -> None:
        session = f"pytest-{secrets.token_hex(4)}"
        self.views = [
            open_host_pool(CONFIG, node_id=0, local_rank=rank, local_world=2, session=session)
            for rank in (0, 1)
        ]
        self.pages: dict[Key, int] = {}
        self.tokens: dict[Key, list[float]] = {}
        self.values = itertools.count(1)

    def view(self, key: Key) -> HostPagedKVWorkerView:
        return self.views[key[0]]

    def free(self) -> int:
        return PAGES - sum(self.pages.values())

    def tensor(self, tokens: list[float]) -> torch.Tensor:
        """[layers, tokens, 1, 2]: layers and elements differ, so that no mix-up goes unseen."""
        base = torch.tensor(tokens).reshape(1, -1, 1, 1)
        return (
            base
            + torch.tensor([0.0, 0.25]).reshape(1, 1, 1, 2)
            + torch.arange(LAYERS).reshape(-1, 1, 1, 1) / 2
        )

    @rule(rank=RANKS, gid=IDS, tokens=st.integers(0, 4 * PAGE))
    def admit(self, rank: int, gid: int, tokens: int) -> None:
        key, count = (rank, gid), -(-tokens // PAGE)
        if key in self.pages:
            return
        self.view(key).register_sequences([gid])
        if count > self.free():
            with pytest.raises(KVExhausted):
                self.view(key).allocate_pages_for_sequences([(gid, tokens)])
            self.view(key).unregister_sequences([gid])
        else:
            self.view(key).allocate_pages_for_sequences([(gid, tokens)])
            self.pages[key], self.tokens[key] = count, []

    @rule(rank=RANKS, gids=st.lists(IDS, unique=True), count=st.integers(0, 2))
    def grow(self, rank: int, gids: list[int], count: int) -> None:
        items = [(gid, count) for gid in gids if (rank, gid) in self.pages]
        if count * len(items) > self.free():
            with pytest.raises(KVExhausted):
                self.views[rank].grow_pages_for_sequences(items)
        else:
            self.views[rank].grow_pages_for_sequences(items)
            for gid, _ in items:
                self.pages[rank, gid] += count

    @rule(rank=RANKS, gids=st.lists(IDS, unique=True), lengths=st.lists(st.integers(0, 6), min_size=5))
    def prefill(self, rank: int, gids: list[int], lengths: list[int]) -> None:
        wanted = dict(zip(gids, lengths, strict=False))
        rows = [(gid, n) for gid, n in wanted.items() if self.has_room((rank, gid), n)]
        starts = [len(self.tokens[rank, gid]) for gid, _ in rows]
        fresh = [[float(next(self.values)) for _ in range(n)] for _, n in rows]
        packed = self.tensor([value for chunk in fresh for value in chunk])
        bounds = [0, *itertools.accumulate(n for _, n in rows)]
        for layer in range(LAYERS):
            self.views[rank].async_offload_layer_kv_range_to_host(
                layer, [gid for gid, _ in rows], packed[layer], -packed[layer], bounds, starts
            )
        for (gid, _), chunk in zip(rows, fresh, strict=True):
            self.tokens[rank, gid] += chunk

    def has_room(self, key: Key, count: int) -> bool:
        return key in self.pages and len(self.tokens[key]) + count <= self.pages[key] * PAGE

    @rule(rank=RANKS, gids=st.lists(IDS, unique=True))
    def decode(self, rank: int, gids: list[int]) -> None:
        ids = [gid for gid in gids if self.has_room((rank, gid), 1)]
        full = [gid for gid in gids if (rank, gid) in self.pages and gid not in ids]
        for gid in full:
            with pytest.raises(RuntimeError, match="grow it first"):
                self.append(rank, [gid])
        self.append(rank, ids)

    def append(self, rank: int, ids: list[int]) -> None:
        positions = [len(self.tokens[rank, gid]) for gid in ids]
        fresh = [float(next(self.values)) for _ in ids]
        k = self.tensor(fresh)
        entries = [(layer, k[layer], -k[layer]) for layer in range(LAYERS)]
        self.views[rank].async_append_decode_kv_to_host_batched_kernel(entries, ids, positions)
        for gid, value in zip(ids, fresh, strict=True):
            self.tokens[rank, gid].append(value)

    @rule(rank=RANKS, gids=st.lists(IDS, unique=True))
    def release(self, rank: int, gids: list[int]) -> None:
        if all((rank, gid) in self.pages for gid in gids):
            self.views[rank].release_sequence_pages(gids)
            for gid in gids:
                del self.pages[rank, gid], self.tokens[rank, gid]
        else:
            with pytest.raises(KeyError):
                self.views[rank].release_sequence_pages(gids)

    @rule(rank=RANKS, data=st.data())
    def load(self, rank: int, data: st.DataObject) -> None:
        ids = [gid for owner, gid in self.pages if owner == rank and self.pages[owner, gid] > 0]
        counts = [data.draw(st.integers(1, self.pages[rank, gid])) for gid in ids]
        order = data.draw(st.permutations(range(PAGES)))
        targets = [[order.pop() for _ in range(count)] for count in counts]
        width = max(counts, default=0)
        table = torch.tensor([row + [-1] * (width - len(row)) for row in targets], dtype=torch.int32)
        k, v = (torch.zeros(LAYERS, PAGES, PAGE, 1, 2) for _ in range(2))
        pointers = [PagePointers(storage, table.reshape(len(ids), width)) for storage in (k, v)]
        self.views[rank].async_load_layer_paged_kv_to_device(ids, counts, *pointers).wait()
        for gid, row in zip(ids, targets, strict=True):
            truth = self.tensor(self.tokens[rank, gid][: len(row) * PAGE])
            length = truth.shape[1]
            assert torch.equal(k[:, row].flatten(1, 2)[:, :length], truth)
            assert torch.equal(v[:, row].flatten(1, 2)[:, :length], -truth)
        assert k[:, order].eq(0).all() and v[:, order].eq(0).all()

    @invariant()
    def everyone_reads_what_was_written(self) -> None:
        if not hasattr(self, "views"):
            return
        for view in self.views:
            view.check_invariants()
            assert view.get_stats().num_free_pages == self.free()
        for key, tokens in self.tokens.items():
            k, v = self.view(key).read_sequence_kv_to_cpu(key[1], len(tokens))
            assert torch.equal(k, self.tensor(tokens)) and torch.equal(v, -self.tensor(tokens))

    def teardown(self) -> None:
        for view in getattr(self, "views", []):
            view.close()


TestNode = NodeMachine.TestCase
TestNode.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
