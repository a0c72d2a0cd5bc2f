import os
import random
import time
import uuid
from dataclasses import dataclass
from enum import IntEnum
from types import SimpleNamespace

import torch

from batchgen.attention import AttnWrapperBase
from batchgen.worker.kv_manager import KVCacheManager

LAYERS, DIM, VOCAB = 2, 4, 13


class Status(IntEnum):
    PREFILLED = 0
    IN_DECODE = 1
    COMPLETED = 2


@dataclass(frozen=True)
class BoundaryDecisions:
    completed_uuids: tuple[str, ...]
    active_uuids: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    custom_id: str
    token_ids: tuple[int, ...]


class SequenceEntry:
    __slots__ = (
        "current_context_length",
        "custom_id",
        "decoded_length",
        "decoded_tokens",
        "global_idx",
        "max_decode_length",
        "prompt",
        "prompt_length",
        "sampling",
        "status",
        "uuid",
    )

    def __init__(self, request, global_idx):
        self.uuid = str(uuid.UUID(int=random.getrandbits(128)))
        self.custom_id, self.global_idx = request.custom_id, global_idx
        self.prompt, self.prompt_length = list(request.prompt), len(request.prompt)
        self.max_decode_length, self.decoded_length = request.max_tokens, 0
        self.current_context_length = self.prompt_length
        self.decoded_tokens = torch.empty(1, request.max_tokens, dtype=torch.int64)
        self.status, self.sampling = Status.PREFILLED, object()


class Pool:
    is_initialized = True

    def __init__(self, pages, page_size):
        self.config = SimpleNamespace(name="primary", num_pages=pages, page_size=page_size)
        self.k_cache = torch.zeros(LAYERS, pages + 1, page_size, 1, DIM)
        self.v_cache = torch.zeros_like(self.k_cache)
        self.gpu_table = torch.full((16, pages), -1, dtype=torch.int32)
        self.slot_to_seq_id, self._sequences = [], {}
        self.free = list(range(pages))

    def allocate(self, index, count):
        self._sequences[index] = [self.free.pop() for _ in range(count)]

    def release(self, index):
        self.free += self._sequences.pop(index)

    def rebuild(self, indices):
        self.slot_to_seq_id = list(indices)
        self.gpu_table.fill_(-1)
        for row, index in enumerate(indices):
            pages = self._sequences[index]
            self.gpu_table[row, : len(pages)] = torch.tensor(pages, dtype=torch.int32)

    def get_stats(self):
        return SimpleNamespace(num_free_pages=len(self.free))


class Host:
    def __init__(self):
        self.kv = {}

    def async_load_layer_paged_kv_to_device(self, sequences, active_page_counts, pool):
        size = pool.config.page_size
        for seq, count in zip(sequences, active_page_counts.tolist(), strict=True):
            for position, token in enumerate(self.kv[seq.global_idx][: count * size]):
                write(pool, seq.global_idx, position, token)


def embed(token, position, layer):
    return torch.sin(torch.arange(DIM) * (1.0 + token) + position * 0.37 + layer)


def write(pool, index, position, token):
    page = pool._sequences[index][position // pool.config.page_size]
    for layer in range(LAYERS):
        value = embed(token, position, layer)
        pool.k_cache[layer, page, position % pool.config.page_size, 0] = value
        pool.v_cache[layer, page, position % pool.config.page_size, 0] = value * 0.5


class BatchGenWorker:
    def __init__(self, options):
        self.model_config = SimpleNamespace(max_position_embeddings=64)
        self.tokenizer = None
        self.interval = 2 * options.page_size
        self.gpu_paged_kv_cache_manager = Pool(options.gpu_kv_pages, options.page_size)
        self.host, self.kv_manager = Host(), KVCacheManager(self)
        self.global_batch, self.steps = [], 0
        generator = torch.Generator().manual_seed(0)
        self.head = torch.randn(2 * LAYERS * DIM, VOCAB, generator=generator)

    def generate(self, requests):
        self.global_batch = [SequenceEntry(r, i) for i, r in enumerate(requests)]
        for seq in self.global_batch:
            self._prefill(seq)
        running = [seq for seq in self.global_batch if seq.decoded_length < seq.max_decode_length]
        pool = self.gpu_paged_kv_cache_manager
        for seq in running:
            pool.allocate(seq.global_idx, self.kv_manager.pages_needed(seq, pool.config.page_size))
            seq.status = Status.IN_DECODE
        pool.rebuild([seq.global_idx for seq in running])
        self.kv_manager.load_host_kv_to_gpu(pool, running)
        since = 0
        while running:
            if since >= self.interval:
                running, since = self._page_boundary_fast(running), 0
                continue
            self._decode_forward_step(running)
            self.steps, since = self.steps + 1, since + 1
        return [Result(s.custom_id, tuple(s.decoded_tokens[0].tolist())) for s in self.global_batch]

    def _prefill(self, seq):
        self.host.kv[seq.global_idx] = list(seq.prompt)
        logits = torch.stack([self.head[token % (2 * LAYERS * DIM)] for token in seq.prompt]).sum(0)[None]
        self._keep([seq], self._select_tokens(logits, [seq]))

    def _keep(self, sequences, tokens):
        for seq, token in zip(sequences, tokens.tolist(), strict=True):
            if seq.decoded_length < seq.max_decode_length:
                seq.decoded_tokens[0, seq.decoded_length] = token
                seq.decoded_length += 1
                seq.current_context_length += 1

    def _select_tokens(self, logits, batch_sequences):
        return logits.argmax(-1)

    def _decode_forward_step(self, running):
        pool = self.gpu_paged_kv_cache_manager
        AttnWrapperBase.cur_batch = [seq.global_idx for seq in running]
        AttnWrapperBase.cache_seqlens = torch.tensor([seq.current_context_length for seq in running])
        rows = []
        for row, seq in enumerate(running):
            length, size = seq.current_context_length, pool.config.page_size
            write(pool, seq.global_idx, length - 1, int(seq.decoded_tokens[0, seq.decoded_length - 1]))
            pages = pool.gpu_table[row, : -(-length // size)].long()
            k = pool.k_cache[:, pages].flatten(1, 2)[:, :length, 0]
            v = pool.v_cache[:, pages].flatten(1, 2)[:, :length, 0]
            rows.append(torch.cat([k.mean(1).flatten(), v.square().sum(1).flatten()]))
        logits = torch.stack(rows) @ self.head
        self._keep(running, self._select_tokens(logits, running))

    def _compute_boundary_decisions(self, running):
        done = tuple(s.uuid for s in running if s.decoded_length >= s.max_decode_length)
        return BoundaryDecisions(done, tuple(s.uuid for s in running if s.uuid not in done))

    def _page_boundary_fast(self, running):
        pool = self.gpu_paged_kv_cache_manager
        decisions = self._compute_boundary_decisions(running)
        for seq in running:
            if seq.uuid in decisions.completed_uuids:
                seq.status = Status.COMPLETED
                pool.release(seq.global_idx)
        active = [seq for seq in running if seq.uuid in decisions.active_uuids]
        pool.rebuild([seq.global_idx for seq in active])
        return active

    def stats(self):
        return {"steps": self.steps, "seconds": time.perf_counter(), "pid_parity": os.getpid() * 0}

    def close(self):
        pass
