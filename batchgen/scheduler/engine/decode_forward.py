"""Decode forwards of the step policy, through the one place that launches them: `DecodeScheduler.step`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from batchgen.attention import AttentionBackend, AttnWrapperBase
from batchgen.cuda_graph import BatchState, DecodeGraphFlags
from batchgen.kv import DualKVCacheCoordinator, StateSlotPool
from batchgen.models import LoadedModel
from batchgen.parallel import DataParallelManager
from batchgen.scheduler.sequences import SequenceState
from batchgen.sequence import SequenceEntry
from batchgen.worker.backends.decode import Executor
from batchgen.worker.decode import DecodeScheduler, DecodeState
from batchgen.worker.decode_types import DecodeBatch
from batchgen.worker.executor import ModelExecutor


@dataclass(frozen=True)
class DecodeRow:
    """One row as the decode scheduler and the executor know it; the length counts the token that the step writes."""

    uuid: str
    global_idx: int
    current_context_length: int


@dataclass(frozen=True)
class DecodeSettings:
    """What the executor asks of the worker's arguments."""

    max_batch_size: int
    disable_cuda_graphs: bool
    cuda_graph_num_buckets: int = 16
    cuda_graph_max_bucket_size: int = 128


class _Core:
    def __init__(self, state_slot_pool: StateSlotPool) -> None:
        self.state_slot_pool = state_slot_pool


class StepState:
    """What `DecodeScheduler` and `ModelExecutor` find on a worker, for a rank that is alone."""

    world_size = 1

    def __init__(
        self, loaded: LoadedModel, pool: Any, slots: StateSlotPool, settings: DecodeSettings
    ) -> None:
        self.model, self.model_config = loaded.model, loaded.config
        self.device: torch.device = loaded.model.device
        self.args = settings
        self.core_engine = _Core(slots)
        self.gpu_paged_kv_cache_manager = pool
        self.PAGE_SIZE = pool.config.page_size
        self.parallel_manager = DataParallelManager(0, 1, settings.max_batch_size)
        self.counters: Counter[str] = Counter()
        self.graph_reasons: Counter[str] = Counter()
        self.logits: Tensor | None = None
        self._cuda_graph_adapter: Any = None
        self._cuda_graph_manager: Any = None
        self._graph_flags = DecodeGraphFlags.from_env()
        self._decode_batch: DecodeBatch | None = None
        self._decode_metadata_key: Any = None
        self._cache_seqlens_buffer: Tensor | None = None
        self._position_ids_buffer: Tensor | None = None
        self._cumulative_decode_steps = 0
        self._current_decode_max_rank_batch_size = 0
        self._current_decode_rank_token_counts = [0]
        self._token_readback = torch.empty(
            settings.max_batch_size, dtype=torch.int64, pin_memory=self.device.type == "cuda"
        )

    def _get_cuda_graph_gpu_manager(self) -> Any:
        return self.gpu_paged_kv_cache_manager

    def _select_tokens(self, logits: Tensor, rows: list[DecodeRow]) -> Tensor:
        """The most likely token of each row; the logits stay for whoever reads them back."""
        self.logits = logits
        return logits.argmax(dim=1)

    @contextmanager
    def disable_watchdog(self) -> Iterator[None]:
        """Steps are not timed here."""
        yield


class StepExecutor(Executor):
    """`ModelExecutorBackend` of the step policy: the worker's own `ModelExecutor`, on a `StepState`."""

    def batch_state(
        self, sequences: Sequence[SequenceEntry], new_tokens: Tensor, max_seqlen: int
    ) -> BatchState:
        state: BatchState = self._executor._decode_make_batch_state(sequences, new_tokens, max_seqlen)
        return state

    def ensure_graph_adapter(self) -> None:
        ModelExecutor.for_worker(self._worker())._ensure_cuda_graph_adapter()


class OneRank:
    """`SyncCoordinator` of a rank that is alone: nobody to tell, nobody to disagree with."""

    def completed(self, decode_uuids: Sequence[str]) -> tuple[set[str], list[str]]:
        """Rows that are done have left the batch before a step."""
        return set(), list(decode_uuids)

    def agreed(self, decode_uuids: Sequence[str]) -> list[str]:
        return list(decode_uuids)

    def publish(self, uuids: Sequence[str]) -> None: ...

    def owned(self, seq: SequenceEntry) -> dict[str, Any]:
        return {}

    def absorb(self, seq: SequenceEntry, metadata: dict[str, Any]) -> None: ...

    def check_alike(self, decode_uuids: Sequence[str]) -> None: ...


class DecodeForward:
    """One token a row: binds attention to the rows, stages the batch, and has `DecodeScheduler.step` launch it."""

    def __init__(
        self,
        loaded: LoadedModel,
        pool: Any,
        slots: StateSlotPool,
        attention: AttentionBackend,
        settings: DecodeSettings,
    ) -> None:
        self.state = StepState(loaded, pool, slots, settings)
        self._attention = attention
        self._executor = StepExecutor(lambda: self.state)
        scheduler = DecodeScheduler(executor=self._executor, sync=OneRank())
        self._scheduler = scheduler.on(cast(DecodeState, self.state))
        self._table_of: list[tuple[int, int]] | None = None

    def run(self, tokens: Sequence[int], seqs: Sequence[SequenceState]) -> tuple[Tensor, Tensor]:
        """(logits float32 [rows, vocab], the most likely tokens int64 [rows] on the host), until the next run."""
        rows = [DecodeRow(str(seq.slot_idx), seq.slot_idx, seq.seq_len + 1) for seq in seqs]
        self._bind(seqs)
        self._prepare_buckets(len(rows))
        input_ids = torch.tensor(tokens, dtype=torch.int64).to(self.state.device)
        entries = cast("list[SequenceEntry]", rows)
        longest = self._scheduler._bind_decode_attention_metadata(entries)
        result = self._scheduler.step(self._scheduler._decode_stage(entries, input_ids, longest))
        self.state._decode_batch = None
        if self.state.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        self.state._cumulative_decode_steps += 1
        assert self.state.logits is not None
        return self.state.logits, result.readback

    def forget_rows(self) -> None:
        """The page table is rebuilt before the next run: a slot may have gone to another sequence meanwhile."""
        self._table_of = None
        self.state._decode_metadata_key = None

    def _bind(self, seqs: Sequence[SequenceState]) -> None:
        pool, wrapper = self.state.gpu_paged_kv_cache_manager, AttnWrapperBase
        wrapper.phase, wrapper.attention_backend = "decode", self._attention
        wrapper.row_exact = self.state.model.row_exact
        wrapper.gpu_paged_kv_cache_manager = pool
        if isinstance(pool, DualKVCacheCoordinator):
            wrapper.gpu_paged_kv_manager_primary, wrapper.gpu_paged_kv_manager_aux = (
                pool.primary,
                pool.auxiliary,
            )
        else:
            wrapper.gpu_paged_kv_manager_primary, wrapper.gpu_paged_kv_manager_aux = pool, None
        table = [(seq.slot_idx, len(seq.block_table)) for seq in seqs]
        if table != self._table_of:
            pool.rebuild_page_table([slot for slot, _ in table])
            self._table_of = table
            wrapper.cur_batch = [slot for slot, _ in table]

    def _prepare_buckets(self, rows: int) -> None:
        state = self.state
        state._current_decode_max_rank_batch_size = rows
        state._current_decode_rank_token_counts = [rows]
        state.parallel_manager.set_num_tokens_per_rank(rows)
        state.parallel_manager.set_rank_token_counts([rows])
        self._executor.ensure_graph_adapter()
        self._executor.capture_graph()
