"""The monolithic worker: admission, prefill, decode, paged KV, boundaries and collectives in one class.

One `BatchGenWorker` runs per rank. Every rank holds the metadata of every sequence; tokens, logprobs and KV live
on the rank that owns the sequence. Decisions are taken from replicated metadata and gathered state, so that all
ranks take the same ones, in the same order of collectives.
"""

import faulthandler
import logging
import os
import sys
import threading
import time
from collections import Counter, deque
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from batchgen.worker.decode import DecodeScheduler
from batchgen.worker.executor import ModelExecutor
from batchgen.worker.host_rebalancer import HostKVRebalancer
from batchgen.worker.kv_native import KvNative
from batchgen.worker.sync import SyncCoordinator
from shadow.experiment import Gate, Isolated, Planned


def _ceil_div(tokens: int, page_size: int) -> int:
	return -(-tokens // page_size)


from batchgen.attention import AttnWrapperBase
from batchgen.attention import AttnWrapperBase as Attn_Wrapper
from batchgen.continuous_batching import (
	AdaptiveChunkSizer,
	BoundaryDecisions,
	LoadCandidate,
	NodeHostStats,
	PageClaim,
	check_repeating_pattern,
	plan_host_kv_growth_evictions,
	select_sequences_for_loading,
	select_sequences_for_onhold,
	validate_boundary_payload_alignment,
)
from batchgen.core_engine import CoreEngine
from batchgen.cuda_graph import (
	BatchState,
	DecodeGraphFlags,
	Glm5CudaGraphAdapter,
	StaticGraphManager,
)
from batchgen.kv import (
	AsyncTask,
	DualAsyncLoadTask,
	DualHostKVCoordinator,
	DualKVCacheCoordinator,
	GPUPagedKVCacheManager,
	KVExhausted,
	KVPoolConfig,
	KVStats,
	PagePointers,
)
from batchgen.models import LoadedModel
from batchgen.requests.types import GenerationResult, TokenizedRequest, WorkerProgress
from batchgen.sampling import SamplingParams, TokenLogprob, select_tokens
from batchgen.sequence import (
	QueryBookEntry,
	SequenceBatch,
	SequenceEntry,
	SequenceStatus,
	configure_page_buffers,
)
from batchgen.worker.decode_types import (
	GRAPHS_DISABLED,
	DecodeBatch,
	DecodeOutputs,
	DecodeStepRequest,
	DecodeStepResult,
	DeferredIndexKeys,
	DeferredKv,
	GraphDecision,
)

logger = logging.getLogger("batchgen.worker")

NUM_GPUS_PER_NODE = int(os.environ.get("NUM_GPUS_PER_NODE", "8"))
BATCHGEN_CB_DEBUG = os.environ.get("BATCHGEN_CB_LOG", "").upper() == "DEBUG"
REP_DETECTION = os.environ.get("BATCHGEN_REP_DETECTION", "1") == "1"
# More pending appends than this are waited for: each holds its source tensors and a place in the task queue.
MAX_PENDING_KV_APPENDS = int(os.environ.get("BATCHGEN_MAX_PENDING_KV_APPENDS", "256"))
TILE_SIZE = 128


class QueryBookPoolCapacityError(RuntimeError):
	"""The token buffer pool has no free slot for another local sequence."""


class QueryBookBufferPool:
	"""Decoded-token buffers, one row per local sequence, reused across sequences and batches.

	``buffer`` is int64 [slots, width]. It grows in both directions; growing replaces it, and the owner of a view must
	take a new one (`BatchGenWorker._rebind_query_book_buffers`).
	"""

	def __init__(self, slots: int, width: int) -> None:
		self.buffer = torch.full((slots, width), -1, dtype=torch.int64)
		self._free = list(range(slots - 1, -1, -1))

	def acquire(self) -> int:
		if not self._free:
			raise QueryBookPoolCapacityError(f"all {self.buffer.shape[0]} token buffer slots are in use")
		return self._free.pop()

	def release(self, slot: int) -> None:
		if slot in self._free or not 0 <= slot < self.buffer.shape[0]:
			raise ValueError(f"token buffer slot {slot} is not in use")
		self.buffer[slot].fill_(-1)
		self._free.append(slot)

	def ensure(self, slots: int, width: int) -> bool:
		"""Grow to at least ``slots`` x ``width``; True when the buffer was replaced."""
		have_slots, have_width = self.buffer.shape
		if slots <= have_slots and width <= have_width:
			return False
		# Twice as many slots at a time: one by one, ten thousand requests would copy the buffer ten thousand times.
		rows = have_slots if slots <= have_slots else max(slots, 2 * have_slots)
		grown = torch.full((rows, max(width, have_width)), -1, dtype=torch.int64)
		grown[:have_slots, :have_width] = self.buffer
		self._free = list(range(grown.shape[0] - 1, have_slots - 1, -1)) + self._free
		self.buffer = grown
		return True

	@property
	def in_use(self) -> int:
		return self.buffer.shape[0] - len(self._free)


@dataclass(frozen=True)
class _DualKVLoadPointers:
	"""Page pointers of both pools, captured while the page table named the sequences to load."""

	sequence_ids: torch.Tensor
	active_page_counts: torch.Tensor
	k_ptrs: PagePointers
	v_ptrs: Optional[PagePointers]
	aux_k_ptrs: PagePointers


@dataclass
class _DecodeLoopState:
	"""What one run of `decoding_continuous` carries from step to step."""

	iteration: int = 0
	last_boundary: int = 0
	boundary_due: bool = False
	page_table_verified: bool = False
	pending_async_task: Optional[Any] = None
	pending_load_uuids: List[str] = field(default_factory=list)
	pending_load_global: List[int] = field(default_factory=list)


class _DecodeWatchdog:
	"""Dumps every thread's stack when a decode step takes longer than ``timeout`` seconds."""

	def __init__(self, timeout: float) -> None:
		self.timeout = timeout
		self.fired = 0
		self._deadline: Optional[float] = None
		self._stop = threading.Event()
		self._thread: Optional[threading.Thread] = None

	def start(self) -> None:
		self._stop.clear()
		self.feed()
		self._thread = threading.Thread(target=self._watch, name="decode-watchdog", daemon=True)
		self._thread.start()

	def stop(self) -> None:
		self._deadline = None
		self._stop.set()
		if self._thread is not None:
			self._thread.join()
			self._thread = None

	def feed(self) -> None:
		self._deadline = time.monotonic() + self.timeout

	def suspend(self) -> None:
		self._deadline = None

	def _watch(self) -> None:
		while not self._stop.wait(min(1.0, self.timeout / 4)):
			deadline = self._deadline
			if deadline is not None and time.monotonic() > deadline:
				self.fired += 1
				logger.error("decode step exceeded %.1f s; stacks of all threads follow on stderr", self.timeout)
				faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
				self._deadline = None


@dataclass
class BatchGenWorkerArgs:
	"""Everything that can be set on a worker; see `batchgen run --help` for the user's view."""

	model: str = "smollm2"
	seed: int = 0
	row_exact: bool = False
	page_size: int = 64
	gpu_kv_pages: int = 512
	host_kv_pages: int = 1024
	max_batch_size: int = 64
	max_pool_size: int = 10240
	prefill_micro_batch_tokens: int = 2048
	initial_gpu_page_buffer: int = 32
	extension_gpu_page_buffer: int = 4
	decision_frequency_pages: int = 2
	host_kv_chunk_size: int = 8192
	adaptive_host_kv_chunk: bool = True
	host_kv_watermark: int = 70
	host_kv_eviction_watermark: int = 10
	enable_host_kv_eviction: bool = True
	completion_sync_interval: int = 8
	decode_step_timeout: float = 300.0
	disable_cuda_graphs: bool = False
	cuda_graph_max_bucket_size: int = 128
	cuda_graph_num_buckets: int = 16
	cuda_graph_max_seqlen: int = 0


_DECODE_GATE = Gate(
	"BATCHGEN_WORKER_DECODE",
	DecodeScheduler,
	{
		"_select_sequences_for_onhold": Isolated(),
		"_flush_deferred_kv_to_host": Isolated(),
		"_ensure_host_kv_append_capacity": Isolated(),
		"_append_decode_kv_to_host_aux_async": Isolated(),
		"_prepare_dual_kv_load_pointers": Isolated(),
		"_launch_dual_host_kv_load": Isolated(),
		"_rebuild_input_tokens": Isolated(),
		"_prepare_decode_batch": Isolated(),
		"_decode_candidates": Isolated(),
		"_live_local_budgets": Isolated(),
		"_batch_fits_whole": Isolated(),
		"_config_decoding_for_batch": Isolated(),
		"_compute_boundary_decisions": Isolated(),
		"_host_page_claims": Isolated(),
		"_boundary_wait_pending": Isolated(),
		"_boundary_gather_state": Isolated(),
		"_boundary_merge_and_decide": Isolated(),
		"_boundary_execute_decisions": Isolated(),
		"_can_extend": Isolated(),
		"_evict_sequences": Isolated(),
		"_boundary_async_load": Isolated(),
		"_boundary_finalize": Isolated(),
		"_page_boundary_fast": Isolated(),
		"_finalize_async_load_minimal": Isolated(),
		"_bind_decode_attention_metadata": Isolated(),
		"_sync_decode_moe_rank_counts": Isolated(),
		"_decode_bind_attn_wrapper": Isolated(),
		"_decode_verify_page_table": Isolated(),
		"_decode_init_state": Isolated(),
		"_decode_initial_moe_sync": Isolated(),
		"_decode_handle_boundary": Isolated(),
		"_settle_pending_decode_load": Isolated(),
		"_check_context_invariant": Isolated(),
		"_decode_begin_deferred_kv": Isolated(),
		"_decode_stage": Isolated(),
		"step": Isolated(),
		"_decode_forward_step": Isolated(),
		"_decode_update_sequences": Isolated(),
		"_decode_sync_completions": Isolated(),
		"_assert_step_invariants": Isolated(),
		"_decode_cleanup": Isolated(),
		"_unbind_attn_wrapper": Isolated(),
		"decoding_continuous": Isolated(),
		"_wait_pending_kv_append_tasks": Isolated(),
		"_rebuild_page_table_for_batch": Isolated(),
		"_append_decode_kv_to_host_async": Isolated(),
		"_launch_async_load_new_sequences": Isolated(),
	},
	callbacks=('_on_result', '_on_progress',),
	shared=('batchgen.attention.wrapper.AttnWrapperBase',),
)


_KV_GATE = Gate(
	"BATCHGEN_WORKER_KV",
	KvNative,
	{
		"_compute_two_page_buffer_allocation": Isolated(),
		"_allocate_gpu_kv_two_page_buffer": Planned(),
		"_extend_gpu_kv_allocation": Planned(),
		"_put_sequences_onhold": Planned(),
		"_get_sequence_token_budget": Isolated(),
		"_compute_host_kv_sequence_tokens": Isolated(),
		"_check_first_gpu_pages": Isolated(),
		"_check_host_growth": Isolated(),
		"_reserve_whole_budget": Planned(),
		"_release_gpu_kv_pages": Planned(),
		"_release_kda_state_slots": Isolated(),
		"_get_host_kv_free_pages": Isolated(),
		"_get_host_kv_utilization": Isolated(),
		"_decide_watermark_trigger": Planned(),
		"_host_pages_kept_back": Planned(),
		"_plan_moves": Planned(),
		"_grow_host_kv": Planned(),
	},
)


class BatchGenWorker:
	"""One rank of the offline batch engine.

	Args:
		args: all settings.
		loaded: model, its configuration and its tokenizer.
		device: where the model and the GPU pool live.
		rank, world_size, local_rank: place in the job; `torch.distributed` must be initialised.
		session: names the node's shared host pool; equal on all ranks of one job.
	"""

	PAGE_SIZE = 64
	DECISION_INTERVAL = 128

	def __init__(
		self,
		args: BatchGenWorkerArgs,
		loaded: LoadedModel,
		*,
		device: torch.device,
		rank: int = 0,
		world_size: int = 1,
		local_rank: int = 0,
		session: str = "local",
	):
		self.args = args
		self.device = device
		self.rank = rank
		self.world_size = world_size
		self.local_rank = local_rank
		self.node_id = rank // NUM_GPUS_PER_NODE
		self.session = session
		self.model = loaded.model
		self.model_config = loaded.config
		self.model_name = loaded.config.name
		self.tokenizer = loaded.tokenizer
		self.phase = "idle"
		self._apply_page_geometry()

		self.global_batch = SequenceBatch()
		self.query_book: Dict[int, QueryBookEntry] = {}
		self._local_to_uuid_map: Dict[int, str] = {}
		self._uuid_to_local_map: Dict[str, int] = {}
		self._free_local_indices: List[int] = []
		self._next_local_idx = 0
		self._global_to_uuid: Dict[int, str] = {}
		self._request_queue: deque = deque()
		self._free_pool_slots: List[int] = list(range(args.max_pool_size - 1, -1, -1))
		self._next_global_idx = 0
		self._batch_id = 0
		self._sequences_with_gpu_kv: Set[int] = set()
		self._step_logprobs: Dict[str, TokenLogprob] = {}
		self._results: List[GenerationResult] = []
		self._on_result: Optional[Callable[[GenerationResult], None]] = None
		self._on_progress: Optional[Callable[[WorkerProgress], None]] = None

		self.gpu_paged_kv_cache_manager = None
		self._pending_kv_append_tasks: List[Any] = []
		self._pending_kv_append_tensors: List[Any] = []
		self._deferred_kv_batch: Optional[Tuple[List[int], List[int]]] = None
		self._deferred_kv_entries: List[Tuple[int, torch.Tensor, Optional[torch.Tensor]]] = []
		self._deferred_kv_entries_aux: List[Tuple[int, torch.Tensor, Optional[torch.Tensor]]] = []
		self._cache_seqlens_buffer: Optional[torch.Tensor] = None
		self._position_ids_buffer: Optional[torch.Tensor] = None
		self._decode_metadata_key: Optional[Tuple[List[int], List[int]]] = None
		self._token_readback: Optional[torch.Tensor] = None
		self._decode_batch: Optional[DecodeBatch] = None

		self.counters: Counter = Counter()
		self.graph_reasons: Counter = Counter()
		self._chunk_sizer = AdaptiveChunkSizer(
			args.host_kv_chunk_size, min_chunk=min(1024, args.host_kv_chunk_size)
		)
		self._watchdog = _DecodeWatchdog(args.decode_step_timeout)
		self._graph_flags = DecodeGraphFlags.from_env()
		self._cuda_graph_adapter: Optional[Glm5CudaGraphAdapter] = None
		self._cuda_graph_manager: Optional[StaticGraphManager] = None
		self._closed = False
		self._init_core_engine(loaded)

	def _apply_page_geometry(self):
		"""Rebind the page constants of the class and of `batchgen.sequence` to this worker's settings."""
		configure_page_buffers(
			page_size=self.args.page_size,
			initial=self.args.initial_gpu_page_buffer,
			extension=self.args.extension_gpu_page_buffer,
			decision_frequency=self.args.decision_frequency_pages,
		)
		BatchGenWorker.PAGE_SIZE = self.args.page_size
		BatchGenWorker.DECISION_INTERVAL = self.args.decision_frequency_pages * self.args.page_size

	# ============ Request Pool: Admission Queue ============

	def _submit_requests(self, requests: Sequence[TokenizedRequest]):
		"""Queue requests in order. One that no pool of this job can ever hold ends here, with an error result."""
		for request in requests:
			reason = self._never_fits(request)
			if reason is not None:
				self.counters["rejected"] += 1
				self._deliver_result(
					GenerationResult(
						custom_id=request.custom_id,
						token_ids=(),
						text="",
						finish_reason="error",
						prompt_tokens=len(request.prompt_token_ids),
						logprobs=None,
						detail=reason,
					)
				)
				continue
			self._request_queue.append(request)

	def _never_fits(self, request: TokenizedRequest) -> Optional[str]:
		"""Why this request can never run here, or None."""
		prompt = len(request.prompt_token_ids)
		if prompt == 0:
			return "the prompt has no tokens"
		if request.sampling.max_tokens < 1:
			return f"max_tokens is {request.sampling.max_tokens}; it must be at least 1"
		total = prompt + request.sampling.max_tokens
		limit = self.model_config.max_position_embeddings
		if total > limit:
			return (
				f"prompt of {prompt} tokens + max_tokens {request.sampling.max_tokens} = {total} exceeds the context "
				f"of {limit} tokens of {self.model_name}"
			)
		pages = _ceil_div(total, self.PAGE_SIZE)
		for pool, have in (("GPU", self.args.gpu_kv_pages), ("host", self.args.host_kv_pages)):
			if pages > have:
				return (
					f"prompt of {prompt} tokens + max_tokens {request.sampling.max_tokens} needs {pages} pages of "
					f"{self.PAGE_SIZE} tokens; the {pool} pool has {have}: lower max_tokens or raise --{pool.lower()}-pages"
				)
		return None

	def _poll_admissions(self) -> int:
		"""Move queued requests into the batch while there are free pool slots.

		Rank 0 says how many, all ranks admit the same ones. Returns how many were admitted.
		"""
		decision = [min(len(self._request_queue), len(self._free_pool_slots)) if self.rank == 0 else 0]
		dist.broadcast_object_list(decision, src=0)
		admitted = decision[0]
		if admitted == 0:
			return 0
		requests = [self._request_queue.popleft() for _ in range(admitted)]
		self._admit_requests(requests)
		self.counters["admitted"] += admitted
		return admitted

	def _admit_requests(self, requests: Sequence[TokenizedRequest]):
		"""Create the sequences of `requests` on all ranks and their query book entries on the owning rank."""
		entries = []
		for request in requests:
			seq = self._build_sequence_entry(request)
			self.global_batch.add_sequence(seq)
			self._global_to_uuid[seq.global_idx] = seq.uuid
			entries.append((seq, request))
		self._assign_ranks([seq for seq, _ in entries])
		for seq, request in entries:
			if seq.assigned_rank == self.rank:
				self._register_local_sequence(seq, request)

	def _acquire_pool_slot(self) -> int:
		if not self._free_pool_slots:
			raise QueryBookPoolCapacityError(f"all {self.args.max_pool_size} request pool slots are in use")
		return self._free_pool_slots.pop()

	def _release_pool_slot(self, seq: SequenceEntry):
		self._free_pool_slots.append(seq.pool_slot_index)
		seq.pool_slot_index = -1

	def _has_queued_work(self) -> bool:
		"""Work that a prefill would take: requests outside of the batch, or queued sequences in it."""
		return bool(self._request_queue) or self.global_batch.has_status(SequenceStatus.QUEUEING)

	def _deliver_result(self, result: GenerationResult):
		"""Hand one finished result to the caller; results exist on rank 0 only."""
		if self.rank != 0:
			return
		self._results.append(result)
		if self._on_result is not None:
			self._on_result(result)

	def _report_completion(self, uuids: Sequence[str], payload: Dict[str, Dict[str, Any]]):
		"""Deliver results and forget the sequences' local state.

		Pops the uuid-to-local maps, so everything that needs them (page releases above all) comes before.
		"""
		for uuid in uuids:
			seq = self.global_batch.get_sequence(uuid)
			done = payload[uuid]
			self.counters["completed"] += 1
			self._deliver_result(
				GenerationResult(
					custom_id=seq.custom_id,
					token_ids=tuple(done["token_ids"]),
					text=done["text"],
					finish_reason=done["finish_reason"],
					prompt_tokens=seq.original_prompt_length,
					logprobs=done["logprobs"],
					detail=done["detail"],
				)
			)
			if uuid in self._uuid_to_local_map:
				self._release_local_sequence(uuid)
			self._release_pool_slot(seq)
			seq.input_ids = None
			seq.decoded_tokens = None

	# ============ End Request Pool Methods ============

	def _select_tokens(self, logits: torch.Tensor, batch_sequences: List[SequenceEntry]) -> torch.Tensor:
		"""Next token per row: logits float32 [B, vocab] -> int64 [B].

		The draw is a function of the row, the request's seed and the position in the output, so that neither the
		batch nor a re-prefill changes it. Logprobs, where asked for, wait in `_step_logprobs` for the token to be kept.
		"""
		self._step_logprobs.clear()
		if not batch_sequences:
			return torch.empty(0, dtype=torch.int64, device=logits.device)
		params: List[SamplingParams] = [seq.sampling_params for seq in batch_sequences]
		tokens, logprobs = select_tokens(logits, params, [seq.decoded_length for seq in batch_sequences])
		for seq, logprob in zip(batch_sequences, logprobs):
			if logprob is not None:
				self._step_logprobs[seq.uuid] = logprob
		return tokens

	def _enable_decode_watchdog(self):
		if self.args.decode_step_timeout > 0:
			self._watchdog.start()

	def _disable_decode_watchdog(self):
		self._watchdog.stop()

	@contextmanager
	def disable_watchdog(self) -> Iterator[None]:
		"""No step time-out inside: graph capture and the first step after it may take minutes on a GPU."""
		self._watchdog.suspend()
		try:
			yield
		finally:
			self._watchdog.feed()

	def _is_sequence_completed(self, seq: SequenceEntry) -> bool:
		return seq.eos_reached or seq.decoded_length >= seq.original_max_decode_length

	def _get_finish_reason(self, seq: SequenceEntry) -> Tuple[str, str]:
		"""(OpenAI finish reason, what exactly ended it)."""
		if seq._rep_detected:
			return "stop", "repetition"
		if seq.finish_reason == "stop_string":
			return "stop", "stop_string"
		if seq.eos_reached:
			return "stop", "eos"
		return "length", "max_tokens"

	def _check_stop_strings(self, seq: SequenceEntry, entry: QueryBookEntry) -> bool:
		"""True when the newest token completed one of the request's stop strings."""
		stops = seq.sampling_params.stop
		if not stops:
			return False
		# A stop string of n characters spans at most n tokens with text, and a few bytes of a split character.
		window = max(len(stop.encode("utf-8")) for stop in stops) + 8
		start = max(0, seq.decoded_length - window)
		tail = self.tokenizer.decode(entry.decoded_tokens[0, start : seq.decoded_length].tolist())
		return any(stop in tail for stop in stops)

	def _check_repetition(self, seq: SequenceEntry, token: int, entry: QueryBookEntry) -> bool:
		"""True when the output repeats itself without end: one token, or (tested every 64 tokens) an n-gram."""
		if not REP_DETECTION:
			return False
		if token == seq._rep_last_token:
			seq._rep_count += 1
		else:
			seq._rep_last_token = token
			seq._rep_count = 1
		if seq._rep_count >= 32:
			return True
		if seq.decoded_length % 64 != 0:
			return False
		return check_repeating_pattern(entry.decoded_tokens[0, : seq.decoded_length].tolist())

	def _append_decoded_token(self, seq: SequenceEntry, token: int):
		"""Keep one new token of a local sequence and see whether it was the last."""
		entry = self.query_book[self._uuid_to_local_map[seq.uuid]]
		entry.decoded_tokens[0, seq.decoded_length] = token
		logprob = self._step_logprobs.get(seq.uuid)
		if logprob is not None:
			entry.logprobs.append(logprob)
		seq.decoded_length += 1
		seq.current_context_length += 1
		self.counters["generated_tokens"] += 1
		params = seq.sampling_params
		if not params.ignore_eos and token in self.tokenizer.eos_token_ids:
			seq.eos_reached = True
		elif self._check_stop_strings(seq, entry):
			seq.finish_reason = "stop_string"
			seq.eos_reached = True
		elif self._check_repetition(seq, token, entry):
			seq._rep_detected = True
			seq.eos_reached = True

	def _finished_text(self, seq: SequenceEntry, token_ids: List[int]) -> str:
		"""Text of a finished sequence, cut before the stop string that ended it."""
		text = self.tokenizer.decode(token_ids)
		if seq.finish_reason != "stop_string":
			return text
		cuts = [text.index(stop) for stop in seq.sampling_params.stop if stop in text]
		return text[: min(cuts)]

	def _gather_completed_tokens(self, uuids: Sequence[str]) -> Dict[str, Dict[str, Any]]:
		"""Outputs of the completed sequences from the ranks that own them (collective)."""
		mine = {}
		for uuid in uuids:
			local_idx = self._uuid_to_local_map.get(uuid)
			if local_idx is None:
				continue
			seq = self.global_batch.get_sequence(uuid)
			entry = self.query_book[local_idx]
			token_ids = entry.decoded_tokens[0, : seq.decoded_length].tolist()
			finish_reason, detail = self._get_finish_reason(seq)
			mine[uuid] = {
				"token_ids": token_ids,
				"text": self._finished_text(seq, token_ids),
				"finish_reason": finish_reason,
				"detail": detail,
				"logprobs": tuple(entry.logprobs) if seq.sampling_params.logprobs else None,
			}
		gathered: List[Any] = [None] * self.world_size
		dist.all_gather_object(gathered, mine)
		merged: Dict[str, Dict[str, Any]] = {}
		for part in gathered:
			merged.update(part)
		missing = [uuid for uuid in uuids if uuid not in merged]
		if missing:
			raise RuntimeError(f"[SCHED_INVARIANT] no rank owns the tokens of completed sequences {missing}")
		return merged

	def _complete_sequences(self, uuids: Sequence[str]):
		"""End sequences on all ranks: status, tokens, GPU pages, host pages, then the report (collective)."""
		if not uuids:
			return
		for uuid in uuids:
			self.global_batch.update_status(uuid, SequenceStatus.COMPLETED)
		payload = self._gather_completed_tokens(uuids)
		local_ids = [self._uuid_to_local_map[uuid] for uuid in uuids if uuid in self._uuid_to_local_map]
		# A sequence that ended at prefill never had GPU pages.
		with_gpu = [i for i in local_ids if self._local_to_global_id(i) in self._sequences_with_gpu_kv]
		if with_gpu:
			self._release_gpu_kv_pages(with_gpu)
		self._release_kda_state_slots([self._local_to_global_id(i) for i in local_ids])
		self._release_host_kv_pages(uuids)
		for uuid in uuids:
			seq = self.global_batch.get_sequence(uuid)
			seq.gpu_pages_allocated = 0
			seq.host_pages_allocated = 0
			seq.host_token_capacity = 0
			if self.args.adaptive_host_kv_chunk:
				self._chunk_sizer.record_completion(seq.decoded_length)
		self._report_completion(uuids, payload)

	def _compute_two_page_buffer_allocation(self, local_ids: Sequence[int]) -> Dict[int, int]:
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_compute_two_page_buffer_allocation", local_ids)
		return self._legacy__compute_two_page_buffer_allocation(local_ids)

	def _legacy__compute_two_page_buffer_allocation(self, local_ids: Sequence[int]) -> Dict[int, int]:
		"""Pages to allocate per local sequence: its context and a buffer ahead of it. Read before the initial mark:
		the same getter answers with the smaller extension buffer afterwards."""
		allocation = {}
		for local_idx in local_ids:
			seq = self._get_sequence_by_local(local_idx)
			allocation[seq.global_idx] = seq.get_gpu_pages_for_two_page_buffer()
		return allocation

	def _allocate_gpu_kv_two_page_buffer(self, local_ids: Sequence[int], load_from_host: bool = True) -> bool:
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_allocate_gpu_kv_two_page_buffer", local_ids, load_from_host)
		return self._legacy__allocate_gpu_kv_two_page_buffer(local_ids, load_from_host)

	def _legacy__allocate_gpu_kv_two_page_buffer(self, local_ids: Sequence[int], load_from_host: bool = True) -> bool:
		"""Allocate context plus buffer for new local sequences, load their KV, and rebuild the table over all active.

		False, with nothing changed, when the pool has too few free pages.
		"""
		if not local_ids:
			return True
		manager = self.gpu_paged_kv_cache_manager
		pages = self._compute_two_page_buffer_allocation(local_ids)
		if sum(pages.values()) > self._get_gpu_kv_free_pages():
			return False
		global_ids = list(pages)
		self._check_first_gpu_pages(pages)
		for local_idx in local_ids:
			seq = self._get_sequence_by_local(local_idx)
			self._allocate_gpu_pages(seq.uuid, pages[seq.global_idx])
			seq.gpu_pages_allocated = pages[seq.global_idx]
			seq.mark_initial_gpu_reservation()
			self._sequences_with_gpu_kv.add(seq.global_idx)
		if load_from_host:
			manager.rebuild_page_table(global_ids)
			self._load_host_kv_to_gpu(manager, global_ids)
		manager.rebuild_page_table(sorted(self._sequences_with_gpu_kv))
		return True

	def _extend_gpu_kv_allocation(self, uuids: Sequence[str]) -> bool:
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_extend_gpu_kv_allocation", uuids)
		return self._legacy__extend_gpu_kv_allocation(uuids)

	def _legacy__extend_gpu_kv_allocation(self, uuids: Sequence[str]) -> bool:
		"""Extend local sequences to their next buffer, all or nothing; rank-local."""
		wanted = []
		for uuid in uuids:
			if uuid not in self._uuid_to_local_map:
				continue
			seq = self.global_batch.get_sequence(uuid)
			extra = seq.get_additional_gpu_pages_needed()
			if extra > 0:
				wanted.append((seq, extra))
		if sum(extra for _, extra in wanted) > self._get_gpu_kv_free_pages():
			return False
		for seq, _ in wanted:
			# KeyError, before anything is extended, for one that has no pages.
			self.gpu_paged_kv_cache_manager.num_pages_of(seq.global_idx)
		for seq, extra in wanted:
			new_pages = self._allocate_gpu_pages(seq.uuid, extra)
			seq.gpu_pages_allocated += len(new_pages)
			self.counters["gpu_pages_extended"] += len(new_pages)
		return True

	def _select_sequences_for_onhold(
		self, states: Dict[str, Dict[str, Any]], uuids: Sequence[str], free_pages: int
	) -> List[str]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_select_sequences_for_onhold", states, uuids, free_pages)
		return self._legacy__select_sequences_for_onhold(states, uuids, free_pages)

	def _legacy__select_sequences_for_onhold(
		self, states: Dict[str, Dict[str, Any]], uuids: Sequence[str], free_pages: int
	) -> List[str]:
		"""Which of one rank's sequences must pause so that the others can extend: shortest first.

		Order is (priority, decoded length, global index). A paused sequence gives its pages and needs none.
		"""
		claims = [
			PageClaim(
				uuid=uuid,
				global_idx=self.global_batch.get_sequence(uuid).global_idx,
				priority=self.global_batch.get_sequence(uuid).priority,
				decoded_length=states[uuid]["decoded_length"],
				held=states[uuid]["gpu_pages_allocated"],
				wanted=states[uuid]["additional_pages_needed"],
			)
			for uuid in uuids
		]
		return list(select_sequences_for_onhold(claims, free_pages))

	def _put_sequences_onhold(self, uuids: Sequence[str]):
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_put_sequences_onhold", uuids)
		return self._legacy__put_sequences_onhold(uuids)

	def _legacy__put_sequences_onhold(self, uuids: Sequence[str]):
		"""Boundary form: the decision is already the same on all ranks, so the owner frees and all ranks mark."""
		local_ids = [self._uuid_to_local_map[uuid] for uuid in uuids if uuid in self._uuid_to_local_map]
		if local_ids:
			self._release_gpu_kv_pages(local_ids)
		for uuid in uuids:
			self.global_batch.get_sequence(uuid).gpu_pages_allocated = 0
			self.global_batch.update_status(uuid, SequenceStatus.ON_HOLD)
			self.counters["holds"] += 1

	def _put_sequences_on_hold(self, uuids: Sequence[str]) -> None:
		return HostKVRebalancer.for_worker(self)._put_sequences_on_hold(uuids)

	def _flush_deferred_kv_to_host(self):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_flush_deferred_kv_to_host")
		return self._legacy__flush_deferred_kv_to_host()

	def _legacy__flush_deferred_kv_to_host(self):
		"""Start the host append of the step's collected KV: one batched task per pool."""
		if self._deferred_kv_batch is None:
			return
		global_ids, positions = self._deferred_kv_batch
		self._deferred_kv_batch = None
		entries, self._deferred_kv_entries = self._deferred_kv_entries, []
		entries_aux, self._deferred_kv_entries_aux = self._deferred_kv_entries_aux, []
		if not global_ids:
			return
		self._ensure_host_kv_append_capacity(global_ids, positions)
		self._append_decode_kv_to_host_async(entries, global_ids, positions)
		if entries_aux:
			self._append_decode_kv_to_host_aux_async(entries_aux, global_ids, positions)
		if len(self._pending_kv_append_tasks) > MAX_PENDING_KV_APPENDS:
			self._wait_pending_kv_append_tasks()

	def _ensure_host_kv_append_capacity(self, global_ids: Sequence[int], positions: Sequence[int]):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_ensure_host_kv_append_capacity", global_ids, positions)
		return self._legacy__ensure_host_kv_append_capacity(global_ids, positions)

	def _legacy__ensure_host_kv_append_capacity(self, global_ids: Sequence[int], positions: Sequence[int]):
		"""Host pages exist for every position about to be written; grows on demand within the token budget."""
		view = self.core_engine.host_paged_kv_worker_view
		grow = []
		for global_id, position in zip(global_ids, positions):
			uuid = self._global_to_uuid.get(global_id)
			if uuid is None or not view.has_sequence(global_id):
				raise RuntimeError(f"host KV append for unknown sequence {global_id}")
			if position < 0:
				raise RuntimeError(f"host KV append for sequence {global_id} at negative position {position}")
			seq = self.global_batch.get_sequence(uuid)
			if seq.host_pages_allocated == 0:
				raise RuntimeError(f"host KV append for sequence {global_id}, which has no host pages")
			if position >= seq.kv_token_budget:
				raise RuntimeError(
					f"host KV append for sequence {global_id} at {position}, over its budget of {seq.kv_token_budget} tokens"
				)
			missing = _ceil_div(position + 1, self.PAGE_SIZE) - seq.host_pages_allocated
			if missing > 0:
				grow.append((seq, missing))
		if not grow:
			return
		self._check_host_growth({seq.global_idx: pages for seq, pages in grow})
		for seq, pages in grow:
			self._allocate_host_pages(seq.uuid, pages)
			seq.host_pages_allocated += pages
			seq.host_token_capacity = seq.host_pages_allocated * self.PAGE_SIZE
			self.counters["host_pages_grown"] += pages

	def _append_decode_kv_to_host_aux_async(self, entries, global_ids, positions):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_append_decode_kv_to_host_aux_async", entries, global_ids, positions)
		return self._legacy__append_decode_kv_to_host_aux_async(entries, global_ids, positions)

	def _legacy__append_decode_kv_to_host_aux_async(self, entries, global_ids, positions):
		"""Index keys of the auxiliary pool, in step with the primary's append."""
		view = self.core_engine.host_paged_kv_worker_view_aux
		if view is None:
			raise RuntimeError("index keys were collected, but no auxiliary host pool is bound")
		task = view.async_append_decode_kv_to_host_batched_kernel(entries, global_ids, positions)
		self._pending_kv_append_tasks.append(task)
		self._pending_kv_append_tensors.append(entries)

	def _release_host_kv_pages(self, uuids: Sequence[str]):
		"""Release and unregister host pages; only the rank that owns a sequence's host KV does it."""
		owned = [self.global_batch.get_sequence(uuid).global_idx for uuid in uuids if self._owns_host_kv(uuid)]
		if owned:
			self.core_engine.host_paged_kv_worker_view.release_sequence_pages(owned)

	def _owns_host_kv(self, uuid: str) -> bool:
		seq = self.global_batch.get_sequence(uuid)
		return uuid in self._uuid_to_local_map and seq.host_pages_allocated > 0

	def _init_core_engine(self, loaded: LoadedModel):
		"""Core engine, host pools of this node, and the class-level attention state that never changes."""
		self.core_engine = CoreEngine(
			loaded,
			rank=self.rank,
			world_size=self.world_size,
			device=self.device,
			num_state_slots=self.args.max_pool_size,
		)
		primary, auxiliary = self._make_kv_pool_configs(self.args.host_kv_pages)
		first = self.node_id * NUM_GPUS_PER_NODE
		local_world = min(first + NUM_GPUS_PER_NODE, self.world_size) - first
		self.core_engine.open_host_kv(
			primary,
			auxiliary,
			node_id=self.node_id,
			local_rank=self.local_rank,
			local_world=local_world,
			session=self.session,
		)
		self.host_paged_kv_worker_view = self.core_engine.host_paged_kv_worker_view
		AttnWrapperBase.attention_backend = self.core_engine.attention_backend
		AttnWrapperBase.row_exact = self.args.row_exact

	def _make_kv_pool_configs(self, num_pages: int) -> Tuple[KVPoolConfig, Optional[KVPoolConfig]]:
		"""Shapes of the primary pool and, where the model has one, of the index-key pool beside it."""
		num_layers, num_kv_heads, head_dim = self.model.kv_pool_shape()
		dtype = self.model.dtype
		primary = KVPoolConfig(
			name="primary",
			num_layers=num_layers,
			num_pages=num_pages,
			page_size=self.PAGE_SIZE,
			num_kv_heads=num_kv_heads,
			head_dim=head_dim,
			dtype=dtype,
			max_slots=max(self.args.max_batch_size, 1),
		)
		aux_shape = self.model.aux_pool_shape()
		if aux_shape is None:
			return primary, None
		aux_layers, aux_heads, aux_dim = aux_shape
		auxiliary = replace(
			primary,
			name="auxiliary",
			num_layers=aux_layers,
			num_kv_heads=aux_heads,
			head_dim=aux_dim,
			has_value=False,
		)
		return primary, auxiliary

	# ============ KV Cache Helper Methods ============

	def _get_sequence_token_budget(self, sequence_id: int) -> int:
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_get_sequence_token_budget", sequence_id)
		return self._legacy__get_sequence_token_budget(sequence_id)

	def _legacy__get_sequence_token_budget(self, sequence_id: int) -> int:
		"""Tokens a local sequence may ever hold: its original prompt and everything it may decode.

		Memoised on its query book entry. An eviction moves decoded tokens into the prompt and leaves this as it is.

		Raises:
			RuntimeError: the query book is empty. KeyError: the local index has no entry or no sequence.
		"""
		if not self.query_book:
			raise RuntimeError(f"no token budget for local sequence {sequence_id}: the query book is empty")
		if sequence_id not in self.query_book:
			raise KeyError(f"local sequence {sequence_id} has no query book entry")
		entry = self.query_book[sequence_id]
		if entry.kv_token_budget > 0:
			return entry.kv_token_budget
		seq = self._get_sequence_by_local(sequence_id)
		entry.kv_token_budget = seq.original_prompt_length + seq.original_max_decode_length
		return entry.kv_token_budget

	def _compute_host_kv_sequence_tokens(self, local_ids: Sequence[int]) -> List[int]:
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_compute_host_kv_sequence_tokens", local_ids)
		return self._legacy__compute_host_kv_sequence_tokens(local_ids)

	def _legacy__compute_host_kv_sequence_tokens(self, local_ids: Sequence[int]) -> List[int]:
		"""Token budgets in the order of `local_ids`; fails as the single one does."""
		return [self._get_sequence_token_budget(local_idx) for local_idx in local_ids]

	def _bind_gpu_paged_kv_manager(self, manager: Any):
		"""Publish the GPU pool: the worker keeps the coordinator, the core engine the pools behind it.

		Whoever needs the manager later asks for it again; it is another object after the pool has grown.
		"""
		self.gpu_paged_kv_cache_manager = manager
		primary, auxiliary = manager, None
		if isinstance(manager, DualKVCacheCoordinator):
			primary, auxiliary = manager.primary, manager.auxiliary
		if hasattr(self.core_engine, "gpu_paged_kv_manager"):
			self.core_engine.gpu_paged_kv_manager = primary
		if hasattr(self.core_engine, "gpu_paged_kv_manager_aux"):
			self.core_engine.gpu_paged_kv_manager_aux = auxiliary

	def _get_cuda_graph_gpu_manager(self) -> Optional[Any]:
		"""The pool that captured graphs read: the worker's, else the one bound to the core engine."""
		if self.gpu_paged_kv_cache_manager is not None:
			return self.gpu_paged_kv_cache_manager
		return getattr(self.core_engine, "gpu_paged_kv_manager", None)

	def _cuda_graph_page_table_token_capacity(self, sequence_tokens: Optional[Sequence[int]] = None) -> int:
		"""Tokens that one row of the graph page table must be able to name."""
		context = getattr(self.model_config, "max_position_embeddings", None) or 0
		candidates = [
			max(sequence_tokens or (0,)),
			getattr(self.args, "cuda_graph_max_seqlen", None) or 0,
			context if 0 < context < 16384 else 16384,
		]
		return max(candidates)

	def _cuda_graph_page_table_slot_capacity(self) -> int:
		"""Rows of the graph page table: the widest batch of this rank. A `max_batch_size` of 0 is no limit."""
		limit = getattr(self.args, "max_batch_size", None) or 0

		def limited(rows: int) -> int:
			return min(rows, limit) if limit > 0 else rows

		candidates = [
			limited(getattr(self.args, "cuda_graph_max_bucket_size", None) or 0),
			limit,
			limited(len(self._uuid_to_local_map)),
		]
		return max((rows for rows in candidates if rows > 0), default=1)

	def _with_cuda_graph_page_table_capacity(
		self, config: KVPoolConfig, sequence_tokens: Optional[Sequence[int]] = None
	) -> KVPoolConfig:
		"""`config` with a graph page table for this worker's batches; no wider than the pool has pages."""
		pages = _ceil_div(self._cuda_graph_page_table_token_capacity(sequence_tokens), config.page_size)
		return replace(
			config,
			graph_max_slots=self._cuda_graph_page_table_slot_capacity(),
			graph_max_pages=min(max(pages, 1), config.num_pages),
		)

	def _ensure_gpu_paged_kv_manager(self, sequence_tokens: List[int]) -> Any:
		"""A bound, initialised GPU pool for sequences of these many tokens, as far as `gpu_kv_pages` goes.

		A pool that is large enough stays, even after `destroy()`: initialising it again gives it fresh pages. A
		smaller one is replaced, which is only possible while no sequence lives in it (RuntimeError).

		Args:
			sequence_tokens: budgets, in tokens, of all sequences that will take turns in the pool.
		"""
		from batchgen.sequence import INITIAL_GPU_PAGE_BUFFER

		wanted = sum(_ceil_div(tokens, self.PAGE_SIZE) for tokens in sequence_tokens)
		required = min(max(wanted, 1), self.args.gpu_kv_pages)
		manager = self.gpu_paged_kv_cache_manager
		if manager is not None and manager.config.num_pages >= required:
			manager.initialize()
			self._bind_gpu_paged_kv_manager(manager)
			return manager

		if manager is not None:
			if self._sequences_with_gpu_kv:
				raise RuntimeError(
					f"the GPU pool must grow from {manager.config.num_pages} to {required} pages while sequences "
					f"{sorted(self._sequences_with_gpu_kv)} hold pages of it; put them on hold first"
				)
			# Not `_destroy_gpu_paged_kv_cache`: only this rank grows, and that one resets replicated fields.
			if self._cuda_graph_adapter is not None or self._cuda_graph_manager is not None:
				self._release_cuda_graphs()
			manager.destroy()
		primary_config, auxiliary_config = self._make_kv_pool_configs(required)
		primary = GPUPagedKVCacheManager(
			self._with_cuda_graph_page_table_capacity(primary_config, sequence_tokens), self.device
		)
		if auxiliary_config is None:
			manager = primary
		else:
			auxiliary = GPUPagedKVCacheManager(
				self._with_cuda_graph_page_table_capacity(auxiliary_config, sequence_tokens), self.device
			)
			manager = DualKVCacheCoordinator(primary, auxiliary)
		manager.initialize()
		self._bind_gpu_paged_kv_manager(manager)
		self.counters["gpu_pools_created"] += 1
		if wanted > required:
			logger.info(
				"rank %d: GPU pool of %d pages for sequences of %d pages in all: they take turns, each with %d pages "
				"of headroom at first",
				self.rank,
				required,
				wanted,
				INITIAL_GPU_PAGE_BUFFER,
			)
		else:
			logger.info("rank %d: GPU pool of %d pages, room for all sequences", self.rank, required)
		return manager

	def _allocate_gpu_pages(self, uuid: str, n: int) -> List[int]:
		"""`n` GPU pages for a sequence: its first ones, or more of them. Returns the new pages.

		With an index pool the same pages of both. KVExhausted, with nothing changed, when fewer are free; whoever
		allocates for several sequences asks for all of them first (`_check_first_gpu_pages`).
		"""
		manager = self.gpu_paged_kv_cache_manager
		global_id = self.global_batch.get_sequence(uuid).global_idx
		if manager.has_sequence(global_id):
			held = manager.num_pages_of(global_id)
			return manager.extend_pages_for_sequence(global_id, (held + n) * self.PAGE_SIZE)
		return manager.allocate_pages_for_sequences([global_id], [n * self.PAGE_SIZE])[global_id]

	def _release_gpu_pages(self, uuid: str):
		"""Free all GPU pages of a sequence, and its row of the page table. KeyError when it has none."""
		self.gpu_paged_kv_cache_manager.free_pages_for_sequences([self.global_batch.get_sequence(uuid).global_idx])

	def _check_first_gpu_pages(self, pages: Dict[int, int]):
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_check_first_gpu_pages", pages)
		return self._legacy__check_first_gpu_pages(pages)

	def _legacy__check_first_gpu_pages(self, pages: Dict[int, int]):
		"""Raise what would stop a first allocation of `pages`, {global id: pages}, while nothing has changed.

		Raises:
			ValueError: one of the sequences has pages already. KVExhausted: the pool has too few for all of them.
		"""
		manager = self.gpu_paged_kv_cache_manager
		for global_id in pages:
			if manager.has_sequence(global_id):
				raise ValueError(f"sequence {global_id} already holds {manager.num_pages_of(global_id)} GPU pages")
		need, free = sum(pages.values()), self._get_gpu_kv_free_pages()
		if need > free:
			raise KVExhausted(manager.config.name, need, free)

	def _allocate_host_pages(self, uuid: str, n: int) -> List[int]:
		"""`n` host pages for a sequence, which is registered with its first ones. Returns the new pages.

		KVExhausted, with nothing changed, when the node has fewer.
		"""
		view = self.core_engine.host_paged_kv_worker_view
		global_id = self.global_batch.get_sequence(uuid).global_idx
		held = 0
		if view.has_sequence(global_id):
			held = view.page_count(global_id)
			view.grow_pages_for_sequences([(global_id, n)])
		else:
			view.register_sequences([global_id])
			try:
				view.allocate_pages_for_sequences([(global_id, n * self.PAGE_SIZE)])
			except KVExhausted:
				view.unregister_sequences([global_id])
				raise
		return view.build_page_table([global_id])[0, held:].tolist()

	def _check_host_growth(self, pages: Dict[int, int]):
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_check_host_growth", pages)
		return self._legacy__check_host_growth(pages)

	def _legacy__check_host_growth(self, pages: Dict[int, int]):
		"""Raise what would stop local sequences from growing by `pages`, {global id: pages}, while nothing has changed.

		What another rank of the node takes in between is not seen: then KVExhausted comes with some of them grown.

		Raises:
			KeyError: one of the sequences is not registered. KVExhausted: the node has too few pages for all of them.
		"""
		for global_id in pages:
			self._host_pages_held(global_id)
		need, free = sum(pages.values()), self._get_host_kv_free_pages()
		if need > free:
			raise KVExhausted("host", need, free)

	def _prepare_gpu_paged_kv_cache(self, local_ids: Sequence[int]):
		"""A GPU pool for the whole token budget of each local sequence, reserved and loaded.

		For a batch that fits whole: none of these sequences is ever extended, nor has to make room for another.
		KVExhausted, with nothing reserved, when the pool has too few free pages.
		"""
		sequence_tokens = self._compute_host_kv_sequence_tokens(local_ids)
		self._ensure_gpu_paged_kv_manager(sequence_tokens)
		if local_ids:
			self._reserve_whole_budget(local_ids, sequence_tokens)

	def _reserve_whole_budget(self, local_ids: Sequence[int], sequence_tokens: Sequence[int]):
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_reserve_whole_budget", local_ids, sequence_tokens)
		return self._legacy__reserve_whole_budget(local_ids, sequence_tokens)

	def _legacy__reserve_whole_budget(self, local_ids: Sequence[int], sequence_tokens: Sequence[int]):
		"""Reserve `sequence_tokens[i]` tokens for local sequence i and load its KV from the host, synchronously.

		KVExhausted, with nothing reserved, when the pool has too few free pages.
		"""
		manager = self.gpu_paged_kv_cache_manager
		global_ids = [self._local_to_global_id(local_idx) for local_idx in local_ids]
		pages = {
			global_id: _ceil_div(tokens, self.PAGE_SIZE) for global_id, tokens in zip(global_ids, sequence_tokens)
		}
		self._check_first_gpu_pages(pages)
		for local_idx in local_ids:
			seq = self._get_sequence_by_local(local_idx)
			seq.gpu_pages_allocated = len(self._allocate_gpu_pages(seq.uuid, pages[seq.global_idx]))
			seq.mark_initial_gpu_reservation()
			self._sequences_with_gpu_kv.add(seq.global_idx)
		manager.rebuild_page_table(global_ids)
		self._load_host_kv_to_gpu(manager, global_ids)
		manager.rebuild_page_table(sorted(self._sequences_with_gpu_kv))

	def _launch_aux_host_kv_load(self, sequence_tensor: torch.Tensor) -> Optional[AsyncTask]:
		"""Start loading the index keys of `sequence_tensor` (int64 [N], the rows of the current page table).

		None where the model has no index pool: neither an auxiliary host view nor a dual manager is bound.
		RuntimeError when only one of the two is, since attention would select from stale index keys.
		"""
		view = getattr(self.core_engine, "host_paged_kv_worker_view_aux", None)
		manager = self.gpu_paged_kv_cache_manager
		is_dual = isinstance(manager, DualKVCacheCoordinator)
		if view is None and not is_dual:
			return None
		if view is None or not is_dual:
			raise RuntimeError(
				f"index keys cannot be loaded: the auxiliary host pool is {'not ' if view is None else ''}bound, "
				f"the GPU manager is {'' if is_dual else 'not '}dual"
			)
		counts = []
		for global_id in sequence_tensor.tolist():
			seq = self.global_batch.get_sequence(self._global_to_uuid[global_id])
			counts.append(_ceil_div(seq.current_context_length - 1, self.PAGE_SIZE))
		k_ptrs, _ = manager.auxiliary.get_page_pointers()
		return view.async_load_layer_paged_kv_to_device(
			sequence_tensor, torch.tensor(counts, dtype=torch.int64), k_ptrs, None
		)

	def _prepare_dual_kv_load_pointers(
		self, gpu_manager: Any, new_ids: Sequence[int], existing_ids: Optional[Sequence[int]] = None
	) -> _DualKVLoadPointers:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_prepare_dual_kv_load_pointers", gpu_manager, new_ids, existing_ids)
		return self._legacy__prepare_dual_kv_load_pointers(gpu_manager, new_ids, existing_ids)

	def _legacy__prepare_dual_kv_load_pointers(
		self, gpu_manager: Any, new_ids: Sequence[int], existing_ids: Optional[Sequence[int]] = None
	) -> _DualKVLoadPointers:
		"""Load targets of `new_ids` in both pools, while the page table goes on naming `existing_ids` only.

		The table names the new sequences just long enough to read their pages off it: the decode steps that run
		during the load must not see pages whose KV has not arrived. RuntimeError when the pools disagree.
		"""
		if not isinstance(gpu_manager, DualKVCacheCoordinator):
			raise RuntimeError(f"a dual KV load needs the dual coordinator, got {type(gpu_manager).__name__}")
		primary, auxiliary = gpu_manager.primary, gpu_manager.auxiliary
		new_ids = list(new_ids)
		try:
			gpu_manager.rebuild_page_table(new_ids)
			for pool in (primary, auxiliary):
				if pool.slot_to_seq_id != new_ids:
					raise RuntimeError(
						f"page table of the {pool.config.name} pool has rows {pool.slot_to_seq_id}, "
						f"requested were {new_ids}"
					)
			held = primary.export_active_sequence_page_counts()
			held_aux = auxiliary.export_active_sequence_page_counts()
			if not torch.equal(held, held_aux):
				raise RuntimeError(
					f"sequences {new_ids} have {held.tolist()} pages in the primary pool and {held_aux.tolist()} in "
					"the auxiliary pool"
				)
			k_ptrs, v_ptrs = primary.get_page_pointers()
			aux_k_ptrs, _ = auxiliary.get_page_pointers()
		finally:
			if existing_ids:
				gpu_manager.rebuild_page_table(list(existing_ids))
			else:
				gpu_manager.clear_page_table()

		counts = []
		for global_id in new_ids:
			seq = self.global_batch.get_sequence(self._global_to_uuid[global_id])
			counts.append(_ceil_div(seq.current_context_length - 1, self.PAGE_SIZE))
		return _DualKVLoadPointers(
			sequence_ids=torch.tensor(new_ids, dtype=torch.int64),
			active_page_counts=torch.tensor(counts, dtype=torch.int64),
			k_ptrs=k_ptrs,
			v_ptrs=v_ptrs,
			aux_k_ptrs=aux_k_ptrs,
		)

	def _launch_dual_host_kv_load(self, pointers: _DualKVLoadPointers) -> DualAsyncLoadTask:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_launch_dual_host_kv_load", pointers)
		return self._legacy__launch_dual_host_kv_load(pointers)

	def _legacy__launch_dual_host_kv_load(self, pointers: _DualKVLoadPointers) -> DualAsyncLoadTask:
		"""Start loading both pools; one task that waits for both."""
		view = getattr(self.core_engine, "host_paged_kv_worker_view", None)
		if not isinstance(view, DualHostKVCoordinator):
			raise RuntimeError(
				f"a dual KV load needs the dual host coordinator, bound is {type(view).__name__}: the index keys of "
				f"sequences {pointers.sequence_ids.tolist()} would stay stale"
			)
		return view.async_load_dual(
			pointers.sequence_ids,
			pointers.active_page_counts,
			pointers.k_ptrs,
			pointers.v_ptrs,
			pointers.aux_k_ptrs,
		)

	def _load_host_kv_to_gpu(self, manager: Any, global_ids: Sequence[int]):
		"""Load the host KV of `global_ids` into their GPU pages and wait for it.

		The host holds positions [0, current_context_length - 1): the newest token gets its KV in the next step.

		Raises:
			RuntimeError: no host pool is bound, or the page table's rows are not `global_ids`.
		"""
		view = getattr(self.core_engine, "host_paged_kv_worker_view", None)
		if view is None:
			raise RuntimeError("cannot load KV: no host pool is bound to the core engine")
		if manager.slot_to_seq_id != list(global_ids):
			raise RuntimeError(
				f"cannot load KV: the page table has rows {manager.slot_to_seq_id}, to load are {list(global_ids)}"
			)
		counts = []
		for global_id in global_ids:
			seq = self.global_batch.get_sequence(self._global_to_uuid[global_id])
			counts.append(_ceil_div(seq.current_context_length - 1, self.PAGE_SIZE))
		sequence_tensor = torch.tensor(list(global_ids), dtype=torch.int64)
		primary = manager.primary if isinstance(manager, DualKVCacheCoordinator) else manager
		k_ptrs, v_ptrs = primary.get_page_pointers()
		task = view.async_load_layer_paged_kv_to_device(
			sequence_tensor, torch.tensor(counts, dtype=torch.int64), k_ptrs, v_ptrs
		)
		task.wait()
		aux_task = self._launch_aux_host_kv_load(sequence_tensor)
		if aux_task is not None:
			aux_task.wait()
		if self.device.type == "cuda":
			torch.cuda.synchronize(self.device)
		self.counters["kv_loads"] += len(global_ids)
		if BATCHGEN_CB_DEBUG:
			logger.info("rank %d: loaded %d host pages of sequences %s", self.rank, sum(counts), list(global_ids))

	def _release_gpu_kv_pages(self, local_ids: Sequence[int]):
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_release_gpu_kv_pages", local_ids)
		return self._legacy__release_gpu_kv_pages(local_ids)

	def _legacy__release_gpu_kv_pages(self, local_ids: Sequence[int]):
		"""Free the GPU pages of local sequences. KeyError, with nothing freed, for one that has none.

		Keeps `had_initial_gpu_reservation`: a sequence that comes back gets the extension buffer.
		"""
		sequences = [self._get_sequence_by_local(local_idx) for local_idx in local_ids]
		global_ids = [seq.global_idx for seq in sequences]
		if len(set(global_ids)) != len(global_ids):
			raise KeyError(f"a sequence is named twice in a release of {global_ids}")
		for global_id in global_ids:
			# KeyError, before anything is freed, for one that has no pages.
			self.gpu_paged_kv_cache_manager.num_pages_of(global_id)
		for seq in sequences:
			self._release_gpu_pages(seq.uuid)
		self._release_kda_state_slots(global_ids)
		for seq in sequences:
			self._sequences_with_gpu_kv.discard(seq.global_idx)
			seq.gpu_pages_allocated = 0

	def _release_kda_state_slots(self, global_ids: Sequence[int]):
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_release_kda_state_slots", global_ids)
		return self._legacy__release_kda_state_slots(global_ids)

	def _legacy__release_kda_state_slots(self, global_ids: Sequence[int]):
		"""Give back the recurrent-state slots that these sequences hold; those without one are passed over."""
		pool = getattr(self.core_engine, "state_slot_pool", None)
		if pool is None:
			return
		held = [global_id for global_id in global_ids if pool.has(global_id)]
		if held:
			pool.release(held)

	def _destroy_gpu_paged_kv_cache(self, *, empty_cuda_cache: bool = False):
		"""Drop the GPU pool with everything in it. The host KV stays, so that all of it can be loaded again.

		On every rank alike: the reset of the sequences' GPU fields is replicated. The manager object stays bound
		and uninitialised, for `_ensure_gpu_paged_kv_manager` to revive.
		"""
		# Captured graphs hold tensors of this pool.
		if self._cuda_graph_adapter is not None or self._cuda_graph_manager is not None:
			self._release_cuda_graphs()
		if self.gpu_paged_kv_cache_manager is not None:
			self.gpu_paged_kv_cache_manager.destroy()
		self._release_kda_state_slots(sorted(self._sequences_with_gpu_kv))
		self._sequences_with_gpu_kv.clear()
		for seq in self.global_batch:
			if seq.status != SequenceStatus.COMPLETED:
				seq.reset_gpu_allocation()
		if empty_cuda_cache and self.device.type == "cuda":
			torch.cuda.empty_cache()

	def _read_host_kv_stats(self) -> Optional[KVStats]:
		"""Page counters of this node's host pool, as of now; None without one."""
		view = getattr(self.core_engine, "host_paged_kv_worker_view", None)
		return None if view is None else view.get_stats()

	def _host_pages_held(self, global_id: int) -> int:
		"""Host pages of a sequence that this rank keeps there. KeyError for one that is not registered."""
		return self.core_engine.host_paged_kv_worker_view.page_count(global_id)

	def _get_host_kv_free_pages(self) -> int:
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_get_host_kv_free_pages")
		return self._legacy__get_host_kv_free_pages()

	def _legacy__get_host_kv_free_pages(self) -> int:
		"""Free pages of this node's host pool, as of now; all ranks of the node draw on them."""
		stats = self._read_host_kv_stats()
		return 0 if stats is None else stats.num_free_pages

	def _get_host_kv_utilization(self) -> Dict[str, int]:
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_get_host_kv_utilization")
		return self._legacy__get_host_kv_utilization()

	def _legacy__get_host_kv_utilization(self) -> Dict[str, int]:
		"""Host pool of this rank's node, as of now, and the sequences of the node's ranks that hold pages of it."""
		free, used, total = 0, 0, 0
		stats = self._read_host_kv_stats()
		if stats is not None:
			free, used, total = stats.num_free_pages, stats.num_used_pages, stats.num_total_pages
		node_id = self.rank // NUM_GPUS_PER_NODE
		first = node_id * NUM_GPUS_PER_NODE
		ranks = range(first, min(first + NUM_GPUS_PER_NODE, self.world_size))

		def count(status: SequenceStatus) -> int:
			return sum(len(self.global_batch.get_sequences_for_rank_with_status(rank, status)) for rank in ranks)

		in_decode = count(SequenceStatus.IN_DECODE)
		onhold = count(SequenceStatus.ON_HOLD)
		prefilled = count(SequenceStatus.PREFILLED)
		return {
			"rank": self.rank,
			"node_id": node_id,
			"num_free_pages": free,
			"num_total_pages": total,
			"num_used_pages": used,
			"free_percent": int(free / total * 100) if total > 0 else 100,
			"num_in_decode": in_decode,
			"num_onhold": onhold,
			"num_prefilled": prefilled,
			"num_valid_sequences": in_decode + onhold + prefilled,
		}

	def _get_gpu_kv_free_pages(self) -> int:
		"""Free pages of this rank's GPU pool; 0 without one, and 0 for one that was destroyed."""
		manager = self.gpu_paged_kv_cache_manager
		if manager is None or not manager.is_initialized:
			return 0
		return manager.get_stats().num_free_pages

	def _get_or_create_gloo_group(self) -> Any:
		"""Group of all ranks for CPU tensors. The first call is collective: every rank must make it."""
		if not hasattr(self, "_gloo_migration_group"):
			self._gloo_migration_group = dist.new_group(backend="gloo")
		return self._gloo_migration_group

	def _gather_host_kv_stats_by_node(self, worker_view: Any) -> List[NodeHostStats]:
		"""Host pool of every node, in node order (collective).

		The first rank of a node speaks for it. A node that nobody speaks for counts as full: zero pages.
		"""
		stats = worker_view.get_stats()
		row = [-1, 0, 0]
		if self.local_rank == 0:
			row = [self.rank // NUM_GPUS_PER_NODE, stats.num_free_pages, stats.num_total_pages]
		gathered = [torch.zeros(3, dtype=torch.int64) for _ in range(self.world_size)]
		dist.all_gather(gathered, torch.tensor(row, dtype=torch.int64))
		by_node = {}
		for contribution in gathered:
			node_id, free, total = contribution.tolist()
			if node_id >= 0:
				by_node[node_id] = NodeHostStats(node_id, free, total)
		num_nodes = _ceil_div(self.world_size, NUM_GPUS_PER_NODE)
		return [by_node.get(node_id, NodeHostStats(node_id, 0, 0)) for node_id in range(num_nodes)]

	def _check_host_kv_watermark_trigger(self) -> bool:
		"""Whether decoding should pause for a prefill: host pages lie idle and there is work to fill them.

		True when the emptiest node has more than `host_kv_watermark` percent free pages and requests are queued or
		(with host eviction on) evicted sequences wait. Collective, the same answer on all ranks, unless decode
		preemption is off: then False at once.
		"""
		if os.environ.get("BATCHGEN_ENABLE_DECODE_PREEMPTION", "1") != "1":
			return False
		gathered: List[Any] = [None] * self.world_size
		dist.all_gather_object(gathered, self._get_host_kv_utilization())
		# Ranks of one node read the same live counters at different moments: its first rank's reading counts.
		by_node: Dict[int, Dict[str, int]] = {}
		for utilization in gathered:
			by_node.setdefault(utilization["node_id"], utilization)
		triggered = self._decide_watermark_trigger(by_node)

		if self.rank == 0:
			used = sum(utilization["num_used_pages"] for utilization in by_node.values())
			total = sum(utilization["num_total_pages"] for utilization in by_node.values())
			self._host_kv_page_stats = {
				"used": used,
				"total": total,
				"free_percent": int((total - used) / total * 100) if total > 0 else 100,
				"num_nodes": len(by_node),
			}
			if triggered:
				logger.info(
					"host KV watermark: %d %% of a node's pages are free (> %d %%) and work waits; pausing decode",
					max(utilization["free_percent"] for utilization in by_node.values()),
					self.args.host_kv_watermark,
				)
		else:
			if not hasattr(self, "_watermark_check_counter"):
				self._watermark_check_counter = 0
			self._watermark_check_counter += 1
			if self._watermark_check_counter % 64 == 0:
				mine = by_node[self.rank // NUM_GPUS_PER_NODE]
				logger.info(
					"rank %d, node %d: host pages %d/%d used; %d in decode, %d on hold, %d prefilled",
					self.rank,
					mine["node_id"],
					mine["num_used_pages"],
					mine["num_total_pages"],
					mine["num_in_decode"],
					mine["num_onhold"],
					mine["num_prefilled"],
				)
		return triggered

	def _decide_watermark_trigger(self, by_node: Dict[int, Dict[str, int]]) -> bool:
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_decide_watermark_trigger", by_node)
		return self._legacy__decide_watermark_trigger(by_node)

	def _legacy__decide_watermark_trigger(self, by_node: Dict[int, Dict[str, int]]) -> bool:
		"""The answer of the watermark check, from the utilization of each node and the replicated work that waits."""
		max_free_percent = max(utilization["free_percent"] for utilization in by_node.values())
		has_evicted = self.args.enable_host_kv_eviction and self.global_batch.has_status(SequenceStatus.EVICTED)
		return max_free_percent > self.args.host_kv_watermark and (self._has_queued_work() or has_evicted)

	def _host_pages_kept_back(self, stats: Sequence[NodeHostStats]) -> Dict[int, int]:
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_host_pages_kept_back", stats)
		return self._legacy__host_pages_kept_back(stats)

	def _legacy__host_pages_kept_back(self, stats: Sequence[NodeHostStats]) -> Dict[int, int]:
		"""Pages by node that fresh sequences leave free, for the growth of those already there."""
		host_kv_eviction_watermark = self.args.host_kv_eviction_watermark
		return {node.node_id: node.total * host_kv_eviction_watermark // 100 for node in stats}

	def _gather_migration_state(self) -> List[Tuple[Dict[str, int], Dict[str, int]]]:
		"""What a migration is planned from, of every rank (collective): its node's utilization, and the host pages
		of its own sequences that may move, by uuid."""
		waiting = (SequenceStatus.PREFILLED, SequenceStatus.ON_HOLD)
		movable = {}
		for uuid in self._uuid_to_local_map:
			seq = self.global_batch.get_sequence(uuid)
			holds_gpu_pages = seq.global_idx in self._sequences_with_gpu_kv
			if seq.status in waiting and seq.host_pages_allocated > 0 and not holds_gpu_pages:
				movable[uuid] = seq.host_pages_allocated
		gathered: List[Any] = [None] * self.world_size
		dist.all_gather_object(gathered, (self._get_host_kv_utilization(), movable))
		return gathered

	def _plan_kv_migration(self) -> List[Tuple[str, int, int]]:
		"""Which waiting sequences move to another node, as (uuid, from rank, to rank) (collective).

		Nodes above the mean number of used pages give PREFILLED and ON_HOLD sequences, smallest budget first, to the
		node with the fewest used pages that has room. What moves and what it costs comes from the owners, so the
		plan is the same on all ranks and a sequence costs what its new node will allocate. A move must leave its
		target below what its source had: every plan evens the nodes out, and balanced ones stay as they are.
		"""
		if _ceil_div(self.world_size, NUM_GPUS_PER_NODE) <= 1:
			return []
		return self._plan_moves(self._gather_migration_state())

	def _plan_moves(
		self, gathered: Sequence[Tuple[Dict[str, int], Dict[str, int]]]
	) -> List[Tuple[str, int, int]]:
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_plan_moves", gathered)
		return self._legacy__plan_moves(gathered)

	def _legacy__plan_moves(
		self, gathered: Sequence[Tuple[Dict[str, int], Dict[str, int]]]
	) -> List[Tuple[str, int, int]]:
		"""The moves, from what every rank has told: (its node's utilization, host pages of what may move)."""
		num_nodes = _ceil_div(self.world_size, NUM_GPUS_PER_NODE)
		used: Dict[int, int] = {}
		total: Dict[int, int] = {}
		owner: Dict[str, int] = {}
		cost: Dict[str, int] = {}
		for rank, (utilization, owned) in enumerate(gathered):
			used.setdefault(utilization["node_id"], utilization["num_used_pages"])
			total.setdefault(utilization["node_id"], utilization["num_total_pages"])
			owner.update((uuid, rank) for uuid in owned)
			cost.update(owned)

		target = sum(used.values()) // num_nodes
		received = dict.fromkeys(used, 0)
		operations: List[Tuple[str, int, int]] = []
		for source in sorted(used, key=lambda node: (-used[node], node)):
			candidates = sorted(
				(uuid for uuid in owner if owner[uuid] // NUM_GPUS_PER_NODE == source),
				key=lambda u: (
					self.global_batch.get_sequence(u).kv_token_budget,
					self.global_batch.get_sequence(u).global_idx,
				),
			)
			for uuid in candidates:
				if used[source] <= target:
					break
				with_room = [
					node
					for node in used
					if node != source and used[node] + cost[uuid] <= min(total[node], used[source] - 1)
				]
				if not with_room:
					continue
				destination = min(with_room, key=lambda node: (used[node], node))
				first = destination * NUM_GPUS_PER_NODE
				ranks_there = min(first + NUM_GPUS_PER_NODE, self.world_size) - first
				operations.append((uuid, owner[uuid], first + received[destination] % ranks_there))
				received[destination] += 1
				used[source] -= cost[uuid]
				used[destination] += cost[uuid]
		return operations

	def _group_migrations_for_parallel_execution(
		self, operations: Sequence[Tuple[str, int, int]]
	) -> List[List[Tuple[str, int, int]]]:
		return HostKVRebalancer.for_worker(self)._group_migrations_for_parallel_execution(operations)

	def _rebalance_host_kv(self) -> int:
		return HostKVRebalancer.for_worker(self)._rebalance_host_kv()

	# ============ Main Entry Point ============

	def generate(
		self,
		requests: Sequence[TokenizedRequest],
		*,
		on_result: Optional[Callable[[GenerationResult], None]] = None,
		on_progress: Optional[Callable[[WorkerProgress], None]] = None,
	) -> List[GenerationResult]:
		"""Run all requests to completion; the same call on every rank, with the same requests.

		Results are delivered on rank 0, in order of completion, through `on_result` as they come and as the return
		value at the end. Other ranks return an empty list.
		"""
		if self._closed:
			raise RuntimeError("this worker is closed; build a new one")
		self._check_custom_ids(requests)
		self._on_result = on_result
		self._on_progress = on_progress
		self._reset_for_new_batch()
		self.counters["requests"] += len(requests)
		self._batch_total = len(requests)
		try:
			self._submit_requests(requests)
			self._generation_loop()
		except BaseException:
			# Whatever interrupted the batch, the worker must be able to run the next one.
			self._abandon_batch()
			raise
		finally:
			self._on_result = None
			self._on_progress = None
		return self._results

	def _check_custom_ids(self, requests: Sequence[TokenizedRequest]):
		seen: Set[str] = set()
		for request in requests:
			if request.custom_id in seen:
				raise ValueError(f"custom_id {request.custom_id!r} occurs twice in one batch")
			seen.add(request.custom_id)

	# ============ UUID/Index Conversion Helpers ============

	def _local_to_global_id(self, local_idx: int) -> int:
		return self._get_sequence_by_local(local_idx).global_idx

	def _get_sequence_by_local(self, local_idx: int) -> SequenceEntry:
		return self.global_batch.get_sequence(self._local_to_uuid_map[local_idx])

	def _local_indices_for(self, uuids: Sequence[str]) -> List[int]:
		"""Local indices of the sequences among `uuids` that this rank owns, in global order."""
		owned = [uuid for uuid in uuids if uuid in self._uuid_to_local_map]
		owned.sort(key=lambda u: self.global_batch.get_sequence(u).global_idx)
		return [self._uuid_to_local_map[uuid] for uuid in owned]

	def _sort_by_global_idx(self, uuids) -> List[str]:
		return sorted(uuids, key=lambda u: self.global_batch.get_sequence(u).global_idx)

	def _map_local(self, uuid: str) -> int:
		"""Give a sequence the lowest free local index of this rank."""
		if uuid in self._uuid_to_local_map:
			raise RuntimeError(f"sequence {uuid} already has local index {self._uuid_to_local_map[uuid]}")
		if self._free_local_indices:
			local_idx = min(self._free_local_indices)
			self._free_local_indices.remove(local_idx)
		else:
			local_idx = self._next_local_idx
			self._next_local_idx += 1
		self._local_to_uuid_map[local_idx] = uuid
		self._uuid_to_local_map[uuid] = local_idx
		return local_idx

	def _unmap_local(self, uuid: str) -> int:
		local_idx = self._uuid_to_local_map.pop(uuid)
		del self._local_to_uuid_map[local_idx]
		self._free_local_indices.append(local_idx)
		return local_idx

	# ============ QueryBook Buffer Pool ============

	def _ensure_buffer_pool(self, slots: int, width: int):
		"""Room for `slots` sequences of up to `width` decoded tokens; created on first use."""
		if not hasattr(self, "_buffer_pool"):
			self._buffer_pool = QueryBookBufferPool(max(slots, 16), max(width, 16))
			return
		if self._buffer_pool.ensure(slots, width):
			self._rebind_query_book_buffers()

	def _rebind_query_book_buffers(self):
		"""Point every entry at its row of the grown buffer; the old rows are stale from here on."""
		for local_idx, entry in self.query_book.items():
			seq = self._get_sequence_by_local(local_idx)
			entry.decoded_tokens = self._buffer_pool.buffer[seq._buffer_slot : seq._buffer_slot + 1]
			seq.decoded_tokens = entry.decoded_tokens

	def _open_query_book_entry(self, seq: SequenceEntry) -> QueryBookEntry:
		"""Local index, token buffer row and query book entry of a sequence that this rank owns."""
		local_idx = self._map_local(seq.uuid)
		self._ensure_buffer_pool(len(self._local_to_uuid_map), seq.original_max_decode_length)
		seq._buffer_slot = self._buffer_pool.acquire()
		seq.decoded_tokens = self._buffer_pool.buffer[seq._buffer_slot : seq._buffer_slot + 1]
		entry = QueryBookEntry(encoded_prompt=seq.input_ids, decoded_tokens=seq.decoded_tokens)
		self.query_book[local_idx] = entry
		return entry

	def _release_local_sequence(self, uuid: str):
		"""Forget what this rank holds of a sequence (completed, or moved to another rank)."""
		seq = self.global_batch.get_sequence(uuid)
		local_idx = self._unmap_local(uuid)
		del self.query_book[local_idx]
		self._buffer_pool.release(seq._buffer_slot)
		seq._buffer_slot = -1
		seq.input_ids = None
		seq.decoded_tokens = None
		seq.evicted_token_ids = None

	# ============ Tokenization and Assignment ============

	def _build_sequence_entry(self, request: TokenizedRequest) -> SequenceEntry:
		"""Metadata of one request, the same on every rank."""
		global_idx = self._next_global_idx
		self._next_global_idx += 1
		seq = SequenceEntry(
			f"b{self._batch_id}-{global_idx}",
			global_idx,
			len(request.prompt_token_ids),
			request.sampling.max_tokens,
			sampling_params=request.sampling,
			batch_id=self._batch_id,
		)
		seq.custom_id = request.custom_id
		seq.pool_slot_index = self._acquire_pool_slot()
		return seq

	def _register_local_sequence(self, seq: SequenceEntry, request: TokenizedRequest):
		seq.input_ids = torch.tensor([request.prompt_token_ids], dtype=torch.int64)
		self._open_query_book_entry(seq)

	def _register_migrated_sequence(
		self, seq: SequenceEntry, input_ids: torch.Tensor, decoded_tokens: torch.Tensor, logprobs: List[TokenLogprob]
	):
		"""Take over a sequence from another rank: its re-entry prompt, its output so far, its logprobs."""
		seq.input_ids = input_ids
		entry = self._open_query_book_entry(seq)
		entry.decoded_tokens[0, : decoded_tokens.shape[1]] = decoded_tokens[0]
		entry.logprobs.extend(logprobs)

	def _assign_ranks(self, sequences: Sequence[SequenceEntry]):
		"""Spread new sequences over the ranks by tiles of prompt and decode tokens, longest first; same on all ranks."""
		tiles_per_rank = [0] * self.world_size
		for rank in range(self.world_size):
			for seq in self.global_batch.get_sequences_for_rank(rank):
				if seq.status != SequenceStatus.COMPLETED:
					tiles_per_rank[rank] += _ceil_div(seq.kv_token_budget, TILE_SIZE)
		for seq in sorted(sequences, key=lambda s: (-s.kv_token_budget, s.global_idx)):
			rank = min(range(self.world_size), key=lambda r: (tiles_per_rank[r], r))
			tiles_per_rank[rank] += _ceil_div(seq.kv_token_budget, TILE_SIZE)
			self.global_batch.assign_rank(seq.uuid, rank)

	def _rebuild_input_tokens(self, batch: Sequence[int]) -> torch.Tensor:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_rebuild_input_tokens", batch)
		return self._legacy__rebuild_input_tokens(batch)

	def _legacy__rebuild_input_tokens(self, batch: Sequence[int]) -> torch.Tensor:
		"""Newest token of each local sequence, int64 [B] on the device: the next step's input."""
		tokens = []
		for local_idx in batch:
			seq = self._get_sequence_by_local(local_idx)
			tokens.append(int(self.query_book[local_idx].decoded_tokens[0, seq.decoded_length - 1]))
		return torch.tensor(tokens, dtype=torch.int64, device=self.device)

	# ============ KV-Driven Batch Preparation ============

	def _host_chunk_tokens(self) -> int:
		"""Tokens that a host allocation grows by: never less than what carries a sequence to the next boundary."""
		adaptive = self.args.adaptive_host_kv_chunk
		chunk = self._chunk_sizer.chunk_size() if adaptive else self.args.host_kv_chunk_size
		return max(chunk, (self.args.extension_gpu_page_buffer + 1) * self.PAGE_SIZE)

	def _prepare_prefill_batch(self) -> List[str]:
		"""Sequences to prefill now: evicted ones first (most decoded first), then queued ones in order.

		Takes what the host pools can hold. Fresh sequences leave `host_kv_eviction_watermark` percent of a node's
		pages free for the growth of those already there. Collective; the same list on all ranks.
		"""
		stats = self._gather_host_kv_stats_by_node(self.core_engine.host_paged_kv_worker_view)
		free = {node.node_id: node.free for node in stats}
		reserve = self._host_pages_kept_back(stats)
		occupied = {node.node_id: node.free < node.total for node in stats}
		evicted = self.global_batch.get_sequences_by_status(SequenceStatus.EVICTED)
		evicted.sort(key=lambda seq: (-seq.total_decoded_before_eviction, seq.global_idx))
		queued = self.global_batch.get_sequences_by_status(SequenceStatus.QUEUEING)
		chunk = self._host_chunk_tokens()
		chosen: List[str] = []
		blocked: Set[int] = set()
		for seq in evicted + queued:
			node = seq.assigned_rank // NUM_GPUS_PER_NODE
			if node in blocked:
				continue
			pages = seq.get_host_pages_for_initial_chunk(chunk)
			keep_free = reserve[node] if occupied[node] else 0
			if pages > free[node] - keep_free:
				# In order: a smaller one behind must not overtake for ever.
				blocked.add(node)
				continue
			free[node] -= pages
			occupied[node] = True
			chosen.append(seq.uuid)
		return chosen

	def _reserve_prefill_host_kv(self, uuids: Sequence[str]) -> bool:
		"""Register and allocate host pages for a prefill on all owning ranks, or on none (collective)."""
		view = self.core_engine.host_paged_kv_worker_view
		chunk = self._host_chunk_tokens()
		mine = [self.global_batch.get_sequence(uuid) for uuid in uuids if uuid in self._uuid_to_local_map]
		global_ids = [seq.global_idx for seq in mine]
		view.register_sequences(global_ids)
		allocated = True
		try:
			view.allocate_pages_for_sequences(
				[(seq.global_idx, seq.get_host_pages_for_initial_chunk(chunk) * self.PAGE_SIZE) for seq in mine]
			)
		except KVExhausted as error:
			free = self._get_host_kv_free_pages()
			logger.warning("host KV reservation of %d sequences failed, %d pages are free: %s", len(mine), free, error)
			allocated = False
		verdict = torch.tensor([int(allocated)], dtype=torch.int64)
		dist.all_reduce(verdict, op=dist.ReduceOp.MIN)
		if int(verdict.item()) == 0:
			if allocated and global_ids:
				view.release_sequence_pages(global_ids)
			elif global_ids:
				view.unregister_sequences(global_ids)
			return False
		for uuid in uuids:
			seq = self.global_batch.get_sequence(uuid)
			seq.host_pages_allocated = seq.get_host_pages_for_initial_chunk(chunk)
			seq.host_token_capacity = seq.host_pages_allocated * self.PAGE_SIZE
		return True

	def _admit_to_prefill(self, uuids: Sequence[str]) -> List[str]:
		"""Reserve, then publish IN_PREFILL. Halves the batch when a rank could not reserve its part."""
		batch = list(uuids)
		while batch:
			if self._reserve_prefill_host_kv(batch):
				for uuid in batch:
					self.global_batch.update_status(uuid, SequenceStatus.IN_PREFILL)
				return batch
			batch = batch[: len(batch) // 2]
		return []

	def _prepare_decode_batch(self) -> List[str]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_prepare_decode_batch")
		return self._legacy__prepare_decode_batch()

	def _legacy__prepare_decode_batch(self) -> List[str]:
		"""Sequences to decode now, in global order, within each rank's live free pages and row limit (collective)."""
		candidates = self._decode_candidates()
		if not candidates:
			return []
		self._ensure_gpu_paged_kv_manager(self._live_local_budgets())
		free = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
		dist.all_gather(free, torch.tensor([self._get_gpu_kv_free_pages()], dtype=torch.int64))
		free_pages = [int(pages.item()) for pages in free]
		rows = [0] * self.world_size
		chosen = []
		for seq in candidates:
			rank = seq.assigned_rank
			pages = seq.get_gpu_pages_for_two_page_buffer()
			if rows[rank] >= self.args.max_batch_size or pages > free_pages[rank]:
				continue
			rows[rank] += 1
			free_pages[rank] -= pages
			chosen.append(seq.uuid)
		if not chosen:
			raise RuntimeError(
				f"[SCHED_INVARIANT] {len(candidates)} sequences wait to decode and none fits into free pages {free_pages}"
			)
		return self._sync_decode_uuids_tensor(chosen)

	def _decode_candidates(self) -> List[SequenceEntry]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_decode_candidates")
		return self._legacy__decode_candidates()

	def _legacy__decode_candidates(self) -> List[SequenceEntry]:
		waiting = self.global_batch.get_sequences_by_status(SequenceStatus.PREFILLED)
		waiting += self.global_batch.get_sequences_by_status(SequenceStatus.ON_HOLD)
		return sorted(waiting, key=lambda seq: seq.global_idx)

	def _live_local_budgets(self) -> List[int]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_live_local_budgets")
		return self._legacy__live_local_budgets()

	def _legacy__live_local_budgets(self) -> List[int]:
		"""Token budgets of all local sequences that still have work to do; sizes the GPU pool."""
		local_ids = [
			local_idx
			for local_idx, uuid in sorted(self._local_to_uuid_map.items())
			if self.global_batch.get_sequence(uuid).status != SequenceStatus.COMPLETED
		]
		return self._compute_host_kv_sequence_tokens(local_ids)

	def _batch_fits_whole(self, local_ids: Sequence[int]) -> bool:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_batch_fits_whole", local_ids)
		return self._legacy__batch_fits_whole(local_ids)

	def _legacy__batch_fits_whole(self, local_ids: Sequence[int]) -> bool:
		"""True when this rank's whole remaining work is this batch and fits the pool with its full budgets."""
		if self._has_queued_work() or self.global_batch.has_status(SequenceStatus.EVICTED):
			return False
		if len(local_ids) != len(self._local_to_uuid_map):
			return False
		pages = [_ceil_div(tokens, self.PAGE_SIZE) for tokens in self._compute_host_kv_sequence_tokens(local_ids)]
		return sum(pages) <= self._get_gpu_kv_free_pages()

	# ============ Batch Statistics ============

	def _count_status(self, status: SequenceStatus) -> int:
		return len(self.global_batch._status_index[status])

	def _compute_batch_statistics(self) -> Dict[str, Any]:
		"""Sequences by status and pool use of this rank, at this moment."""

		def pool_stats(pool):
			stats = pool.get_stats()
			return stats.num_used_pages, stats.num_total_pages

		gpu = (0, 0)
		if self.gpu_paged_kv_cache_manager is not None:
			gpu = pool_stats(self.gpu_paged_kv_cache_manager)
		host = pool_stats(self.core_engine.host_paged_kv_worker_view)
		return {
			"queued": len(self._request_queue)
			+ self._count_status(SequenceStatus.QUEUEING)
			+ self._count_status(SequenceStatus.EVICTED),
			"prefilled": self._count_status(SequenceStatus.PREFILLED),
			"running": self._count_status(SequenceStatus.IN_DECODE) + self._count_status(SequenceStatus.IN_PREFILL),
			"on_hold": self._count_status(SequenceStatus.ON_HOLD) + self._count_status(SequenceStatus.PREFILLED),
			"gpu_pages_used": gpu[0],
			"gpu_pages_total": gpu[1],
			"host_pages_used": host[0],
			"host_pages_total": host[1],
		}

	def _log_batch_statistics(self, where: str):
		if not logger.isEnabledFor(logging.INFO):
			return
		stats = self._compute_batch_statistics()
		utilization = self._get_host_kv_utilization()
		logger.info(
			"%s: %d queued, %d running, %d waiting; GPU pages %d/%d, host pages %d/%d (%d %% free)",
			where,
			stats["queued"],
			stats["running"],
			stats["on_hold"],
			stats["gpu_pages_used"],
			stats["gpu_pages_total"],
			stats["host_pages_used"],
			stats["host_pages_total"],
			utilization["free_percent"],
		)

	def _report_progress(self):
		if self._on_progress is None:
			return
		stats = self._compute_batch_statistics()
		self._on_progress(
			WorkerProgress(
				generated_tokens=self.counters["generated_tokens"],
				prompt_tokens=self.counters["prefill_tokens"],
				completed=self.counters["completed"] + self.counters["rejected"] - self._progress_base,
				total=self._batch_total,
				running=stats["running"],
				queued=stats["queued"],
				on_hold=stats["on_hold"],
				gpu_pages_used=stats["gpu_pages_used"],
				gpu_pages_total=stats["gpu_pages_total"],
				host_pages_used=stats["host_pages_used"],
				host_pages_total=stats["host_pages_total"],
			)
		)

	def stats(self) -> Dict[str, Any]:
		"""Counters since the worker was built, and why decode steps could not use the static buffers."""
		report: Dict[str, Any] = {name: int(count) for name, count in sorted(self.counters.items())}
		report["watchdog_fired"] = self._watchdog.fired
		report["decode_seconds"] = getattr(self, "_cumulative_decode_seconds", 0.0)
		report["boundary_seconds"] = getattr(self, "_cumulative_boundary_seconds", 0.0)
		for reason, count in sorted(self.graph_reasons.items()):
			report[f"graph_{reason}"] = count
		return report

	# ============ Main Generation Loop ============

	def _generation_loop(self):
		"""Admit, prefill what the host pools hold, rebalance, decode; until nothing is left."""
		while True:
			self._poll_admissions()
			if self.global_batch.all_completed() and not self._request_queue:
				break
			prefilled = self._run_prefill_phase()
			self._rebalance_host_kv()
			decoded = self._run_decode_phase()
			if not prefilled and not decoded:
				raise RuntimeError(
					"[SCHED_INVARIANT] no sequence can be prefilled or decoded: "
					f"{self._compute_batch_statistics()}"
				)
		if self.gpu_paged_kv_cache_manager is not None:
			self._destroy_gpu_paged_kv_cache()
		self._log_batch_statistics("batch done")

	def _run_prefill_phase(self) -> bool:
		"""Prefill round after round while the host pools take more; one reconfiguration for the whole phase."""
		configured = False
		while True:
			uuids = self._admit_to_prefill(self._prepare_prefill_batch())
			if not uuids:
				return configured
			if not configured:
				self._config_prefill_for_batch()
				configured = True
			self.prefill(uuids)
			self._report_progress()
			self._poll_admissions()

	def _run_decode_phase(self) -> bool:
		decode_uuids = self._prepare_decode_batch()
		if not decode_uuids:
			return False
		batch = self._config_decoding_for_batch(decode_uuids)
		self._ensure_cuda_graph_adapter()
		new_tokens = self._rebuild_input_tokens(batch)
		self.decoding_continuous(new_tokens, decode_uuids, batch)
		return True

	# ============ Phase Configuration ============

	def set_phase(self, phase: str):
		self.phase = phase
		AttnWrapperBase.phase = phase

	def _config_prefill_for_batch(self):
		"""From decode (or idle) to prefill: the GPU pool makes room for the prompts."""
		self._log_batch_statistics("prefill phase")
		if self.gpu_paged_kv_cache_manager is not None:
			self._destroy_gpu_paged_kv_cache()
		self.model = self.core_engine.configure_prefill(self.model)
		self.set_phase("prefill")
		self.counters["prefill_phases"] += 1

	def _config_decoding_for_batch(self, decode_uuids: Sequence[str]) -> List[int]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_config_decoding_for_batch", decode_uuids)
		return self._legacy__config_decoding_for_batch(decode_uuids)

	def _legacy__config_decoding_for_batch(self, decode_uuids: Sequence[str]) -> List[int]:
		"""From prefill to decode: model and parallel manager, GPU pages with their KV, status.

		Returns the local batch in row order (global order).
		"""
		self._log_batch_statistics("decode phase")
		model = self.model
		# The configured model may be another object; nothing may run on the old one in between.
		del self.model
		model, self.parallel_manager = self.core_engine.configure_decoding(
			model, max_rows_per_rank=self.args.max_batch_size
		)
		self.model = model
		self.set_phase("decode")
		batch = self._local_indices_for(decode_uuids)
		if batch:
			self._allocate_state_slots(batch)
			if self._batch_fits_whole(batch):
				self._prepare_gpu_paged_kv_cache(batch)
				self.counters["full_reservations"] += 1
			elif not self._allocate_gpu_kv_two_page_buffer(batch):
				raise RuntimeError(
					f"[SCHED_INVARIANT] {len(batch)} selected sequences do not fit "
					f"{self._get_gpu_kv_free_pages()} free GPU pages"
				)
		for uuid in decode_uuids:
			seq = self.global_batch.get_sequence(uuid)
			if seq.status == SequenceStatus.ON_HOLD:
				self.counters["reloads"] += 1
			self.global_batch.update_status(uuid, SequenceStatus.IN_DECODE)
		# Which allocation a rank chose, and so how many pages, is known to its owner alone.
		self._sync_sequence_metadata(decode_uuids)
		self.counters["decode_phases"] += 1
		return batch

	def _allocate_state_slots(self, local_ids: Sequence[int]):
		"""Recurrent-state slots of sequences that have none (a held sequence gave its slot back)."""
		pool = self.core_engine.state_slot_pool
		missing = [self._local_to_global_id(i) for i in local_ids if not pool.has(self._local_to_global_id(i))]
		if missing:
			pool.allocate(missing)

	# ============ Prefill and Decode ============

	def prefill(self, uuids: Sequence[str]):
		"""Prefill admitted sequences: micro-batches through the model, KV to the host pages layer by layer.

		Afterwards every sequence is PREFILLED with one more token than before, or COMPLETED (collective).
		"""
		local_ids = self._local_indices_for(uuids)
		if local_ids:
			self._allocate_state_slots(local_ids)
		for micro_batch in self._split_prefill_micro_batches(local_ids):
			self._prefill_micro_batch(micro_batch)
		for uuid in uuids:
			self.global_batch.update_status(uuid, SequenceStatus.PREFILLED)
		self._sync_sequence_metadata(uuids)
		self.counters["prefilled"] += len(uuids)
		self._complete_sequences(
			[uuid for uuid in uuids if self._is_sequence_completed(self.global_batch.get_sequence(uuid))]
		)

	def _prefill_tokens_of(self, seq: SequenceEntry) -> torch.Tensor:
		"""Prompt of this prefill, int64 [1, P]: the request's own, or all tokens so far after an eviction."""
		return seq.input_ids if seq.evicted_token_ids is None else seq.evicted_token_ids

	def _split_prefill_micro_batches(self, local_ids: Sequence[int]) -> List[List[int]]:
		"""In order, each of at most `prefill_micro_batch_tokens` tokens (a longer prompt is alone)."""
		batches: List[List[int]] = []
		tokens = 0
		for local_idx in local_ids:
			length = self._get_sequence_by_local(local_idx).prompt_length
			if not batches or tokens + length > self.args.prefill_micro_batch_tokens:
				batches.append([])
				tokens = 0
			batches[-1].append(local_idx)
			tokens += length
		return batches

	def _prefill_micro_batch(self, local_ids: Sequence[int]):
		"""One forward over packed prompts; the KV of a layer goes to the host while the next layer runs."""
		sequences = [self._get_sequence_by_local(i) for i in local_ids]
		prompts = [self._prefill_tokens_of(seq)[0] for seq in sequences]
		cu_seqlens = torch.zeros(len(prompts) + 1, dtype=torch.int32)
		cu_seqlens[1:] = torch.tensor([len(p) for p in prompts], dtype=torch.int32).cumsum(0)
		input_ids = torch.cat(prompts).to(self.device)
		position_ids = torch.cat([torch.arange(len(p)) for p in prompts]).to(self.device)
		tasks: List[Any] = []
		sources: List[Any] = []
		self._bind_prefill_attention([seq.global_idx for seq in sequences], cu_seqlens, tasks, sources)
		try:
			with torch.inference_mode():
				hidden = self.model(input_ids, position_ids)
				last = (cu_seqlens[1:] - 1).to(device=self.device, dtype=torch.int64)
				logits = self.model.compute_logits(hidden[last])
				tokens = self._select_tokens(logits, sequences).tolist()
		finally:
			AttnWrapperBase.cu_seqlens, AttnWrapperBase.cur_batch = None, None
			AttnWrapperBase.prefill_kv_callback = None
			AttnWrapperBase.prefill_kv_callback_aux = None
			AttnWrapperBase.state_slots = None
			for task in tasks:
				task.wait()
		self.counters["prefill_tokens"] += len(input_ids)
		for seq, token in zip(sequences, tokens):
			if seq.evicted_token_ids is not None:
				self.counters["re_prefills"] += 1
				seq.input_ids = seq.evicted_token_ids
				seq.evicted_token_ids = None
				self.query_book[self._uuid_to_local_map[seq.uuid]].encoded_prompt = seq.input_ids
			self._append_decoded_token(seq, token)

	def _bind_prefill_attention(
		self, global_ids: List[int], cu_seqlens: torch.Tensor, tasks: List[Any], sources: List[Any]
	):
		"""Class-level attention state of a prefill forward; the callbacks start the offload of each layer."""
		view = self.core_engine.host_paged_kv_worker_view
		view_aux = self.core_engine.host_paged_kv_worker_view_aux
		starts = [0] * len(global_ids)

		def offload(layer_idx, k, v):
			sources.append((k, v))
			tasks.append(
				view.async_offload_layer_kv_range_to_host(layer_idx, global_ids, k, v, cu_seqlens, starts)
			)

		def offload_aux(layer_idx, k):
			if view_aux is None:
				raise RuntimeError("the model has index keys, but no auxiliary host pool is bound")
			k = k.unsqueeze(1)
			sources.append(k)
			tasks.append(
				view_aux.async_offload_layer_kv_range_to_host(layer_idx, global_ids, k, None, cu_seqlens, starts)
			)

		AttnWrapperBase.cur_batch, AttnWrapperBase.cu_seqlens = global_ids, cu_seqlens
		AttnWrapperBase.prefill_kv_callback = offload
		AttnWrapperBase.prefill_kv_callback_aux = offload_aux
		AttnWrapperBase.state_slots = self.core_engine.state_slot_pool.slots_for(global_ids)

	def _sync_completion_status_tensor(self, decode_uuids: Sequence[str]) -> Tuple[Set[str], List[str]]:
		return SyncCoordinator.for_worker(self)._sync_completion_status_tensor(decode_uuids)

	def _sync_decode_uuids_tensor(self, decode_uuids: Sequence[str]) -> List[str]:
		return SyncCoordinator.for_worker(self)._sync_decode_uuids_tensor(decode_uuids)

	def _sync_sequence_metadata(self, uuids: Sequence[str]) -> None:
		return SyncCoordinator.for_worker(self)._sync_sequence_metadata(uuids)

	def _owned_metadata(self, seq: SequenceEntry) -> Dict[str, Any]:
		return SyncCoordinator.for_worker(self)._owned_metadata(seq)

	def _absorb_metadata(self, seq: SequenceEntry, metadata: Dict[str, Any]) -> None:
		return SyncCoordinator.for_worker(self)._absorb_metadata(seq, metadata)

	# Advanced by the owner alone between two collectives; everything else changes on all ranks at once.
	_REPLICATED_FIELDS = (
		"decoded_length",
		"current_context_length",
		"gpu_pages_allocated",
		"had_initial_gpu_reservation",
		"host_pages_allocated",
		"host_token_capacity",
		"prompt_length",
		"reentry_decoded_baseline",
		"max_decode_length",
		"total_decoded_before_eviction",
		"eos_reached",
		"finish_reason",
		"_rep_detected",
	)

	# ============ RANK-0 BOUNDARY DECISION COMPUTATION ============

	def _compute_boundary_decisions(
		self,
		decode_uuids: Sequence[str],
		global_seq_state: Dict[str, Dict[str, Any]],
		global_candidate_info: Dict[str, Dict[str, Any]],
		per_rank_free: Dict[int, int],
		node_stats: Sequence[NodeHostStats],
	) -> BoundaryDecisions:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_compute_boundary_decisions", decode_uuids, global_seq_state, global_candidate_info, per_rank_free, node_stats)
		return self._legacy__compute_boundary_decisions(decode_uuids, global_seq_state, global_candidate_info, per_rank_free, node_stats)

	def _legacy__compute_boundary_decisions(
		self,
		decode_uuids: Sequence[str],
		global_seq_state: Dict[str, Dict[str, Any]],
		global_candidate_info: Dict[str, Dict[str, Any]],
		per_rank_free: Dict[int, int],
		node_stats: Sequence[NodeHostStats],
	) -> BoundaryDecisions:
		"""What happens at this boundary, from the gathered state alone: rank 0 computes it for everybody.

		Pages that the decision itself frees are credited before they are handed out: completions first, then host
		evictions, then holds; loads take what is left.
		"""
		completed = tuple(u for u in decode_uuids if global_seq_state[u]["completed"])
		active = tuple(u for u in decode_uuids if not global_seq_state[u]["completed"])
		rank_free = dict(per_rank_free)
		node_free = {node.node_id: node.free for node in node_stats}
		for uuid in completed:
			state = global_seq_state[uuid]
			rank_free[state["assigned_rank"]] += state["gpu_pages_allocated"]
			node_free[state["assigned_rank"] // NUM_GPUS_PER_NODE] += state["host_pages_allocated"]

		growth_uuids: List[str] = []
		growth_pages: List[int] = []
		evicted: List[str] = []
		stalled: List[str] = []
		growth_feasible = True
		scheduler_error: Optional[str] = None
		for node in node_stats:
			claims = self._host_page_claims(node.node_id, active, global_seq_state, global_candidate_info)
			if not any(claim.wanted for claim in claims):
				continue
			plan = plan_host_kv_growth_evictions(
				claims,
				NodeHostStats(node.node_id, node_free[node.node_id], node.total),
				enable_eviction=self.args.enable_host_kv_eviction,
			)
			if plan.feasible:
				growth_uuids.extend(plan.growth_uuids)
				growth_pages.extend(plan.growth_pages)
				evicted.extend(plan.evicted_uuids)
				continue
			growth_feasible = False
			# Sequences that were never decoded hold pages, too, and cannot be evicted yet: let them run first.
			waiting = [
				uuid
				for uuid, info in global_candidate_info.items()
				if info["status"] == int(SequenceStatus.PREFILLED)
				and info["assigned_rank"] // NUM_GPUS_PER_NODE == node.node_id
			]
			if waiting:
				stalled.extend(claim.uuid for claim in claims if claim.wanted > 0)
			else:
				scheduler_error = (
					f"[HOST_KV_GROWTH_PLAN] node {node.node_id}: {sum(plan.growth_pages)} host pages wanted by "
					f"{len(plan.growth_uuids)} sequences, {node_free[node.node_id]} of {node.total} free, and nothing "
					"left to evict; raise the host pool or enable host KV eviction"
				)
		if scheduler_error is not None:
			return BoundaryDecisions(
				completed_uuids=completed, active_uuids=active, growth_feasible=False, scheduler_error=scheduler_error
			)

		gone = set(evicted) | set(stalled)
		for uuid in gone & set(active):
			state = global_seq_state[uuid]
			rank_free[state["assigned_rank"]] += state["gpu_pages_allocated"]
		onhold: List[str] = list(stalled)
		for rank in range(self.world_size):
			mine = [u for u in active if u not in gone and global_seq_state[u]["assigned_rank"] == rank]
			victims = self._select_sequences_for_onhold(global_seq_state, mine, rank_free[rank])
			for uuid in victims:
				rank_free[rank] += global_seq_state[uuid]["gpu_pages_allocated"]
			onhold.extend(victims)
			for uuid in mine:
				if uuid not in victims:
					rank_free[rank] -= global_seq_state[uuid]["additional_pages_needed"]
		onhold_set = set(onhold)
		final = tuple(u for u in active if u not in gone and u not in onhold_set)
		extension = tuple(u for u in final if global_seq_state[u]["additional_pages_needed"] > 0)
		growing = [(u, p) for u, p in zip(growth_uuids, growth_pages) if u not in gone]

		slots = {rank: self.args.max_batch_size for rank in range(self.world_size)}
		for uuid in final:
			slots[global_seq_state[uuid]["assigned_rank"]] -= 1
		candidates = [
			LoadCandidate(
				uuid=uuid,
				global_idx=self.global_batch.get_sequence(uuid).global_idx,
				group=info["assigned_rank"],
				pages_needed=info["pages_needed"],
				decoded_length=info["decoded_length"],
			)
			for uuid, info in global_candidate_info.items()
		]
		loads, _ = select_sequences_for_loading(
			candidates, rank_free, exclude_uuids=set(evicted) | onhold_set, per_group_seq_slots=slots
		)
		return BoundaryDecisions(
			completed_uuids=completed,
			active_uuids=active,
			host_growth_uuids=tuple(u for u, _ in growing),
			host_growth_pages=tuple(p for _, p in growing),
			growth_feasible=growth_feasible and bool(growing),
			host_evicted_uuids=tuple(evicted),
			onhold_uuids=tuple(onhold),
			seqs_needing_extension=extension,
			new_load_uuids=loads,
			decode_uuids_final=final,
		)

	def _host_page_claims(
		self,
		node_id: int,
		active: Sequence[str],
		global_seq_state: Dict[str, Dict[str, Any]],
		global_candidate_info: Dict[str, Dict[str, Any]],
	) -> List[PageClaim]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_host_page_claims", node_id, active, global_seq_state, global_candidate_info)
		return self._legacy__host_page_claims(node_id, active, global_seq_state, global_candidate_info)

	def _legacy__host_page_claims(
		self,
		node_id: int,
		active: Sequence[str],
		global_seq_state: Dict[str, Dict[str, Any]],
		global_candidate_info: Dict[str, Dict[str, Any]],
	) -> List[PageClaim]:
		"""One node's sequences that hold host pages and may be evicted: those decoding, and those on hold."""
		claims = []
		held = [
			(uuid, info)
			for uuid, info in global_candidate_info.items()
			if info["status"] == int(SequenceStatus.ON_HOLD)
		]
		for uuid, state in [(u, global_seq_state[u]) for u in active] + held:
			if state["assigned_rank"] // NUM_GPUS_PER_NODE != node_id:
				continue
			seq = self.global_batch.get_sequence(uuid)
			claims.append(
				PageClaim(
					uuid=uuid,
					global_idx=seq.global_idx,
					priority=seq.priority,
					decoded_length=state["decoded_length"],
					held=state["host_pages_allocated"],
					wanted=state.get("host_growth_pages", 0),
				)
			)
		return claims

	def _boundary_wait_pending(
		self,
		decode_uuids: Sequence[str],
		batch: List[int],
		pending_task: Optional[Any],
		pending_load_uuids: Sequence[str],
		pending_load_global: Sequence[int],
	) -> Tuple[List[str], List[int]]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_boundary_wait_pending", decode_uuids, batch, pending_task, pending_load_uuids, pending_load_global)
		return self._legacy__boundary_wait_pending(decode_uuids, batch, pending_task, pending_load_uuids, pending_load_global)

	def _legacy__boundary_wait_pending(
		self,
		decode_uuids: Sequence[str],
		batch: List[int],
		pending_task: Optional[Any],
		pending_load_uuids: Sequence[str],
		pending_load_global: Sequence[int],
	) -> Tuple[List[str], List[int]]:
		"""Settle what runs beside the forward: host appends on all ranks, and the load of the last boundary."""
		self._wait_pending_kv_append_tasks(sync_distributed_errors=True)
		if BATCHGEN_CB_DEBUG:
			self._check_boundary_desync(decode_uuids)
		if not pending_load_uuids:
			return list(decode_uuids), batch
		if pending_task is not None:
			pending_task.wait()
		dist.barrier()
		decode_uuids = self._finalize_async_load_minimal(decode_uuids, pending_load_uuids, pending_load_global)
		batch = self._local_indices_for(decode_uuids)
		self._rebuild_page_table_for_batch(batch)
		return decode_uuids, batch

	def _check_boundary_desync(self, decode_uuids: Sequence[str]) -> None:
		return SyncCoordinator.for_worker(self)._check_boundary_desync(decode_uuids)

	def _boundary_gather_state(self, decode_uuids: Sequence[str]) -> List[Dict[str, Any]]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_boundary_gather_state", decode_uuids)
		return self._legacy__boundary_gather_state(decode_uuids)

	def _legacy__boundary_gather_state(self, decode_uuids: Sequence[str]) -> List[Dict[str, Any]]:
		"""Every rank's free pages, and the state of its decoding and waiting sequences (collective)."""
		chunk = self._host_chunk_tokens()
		seq_state: Dict[str, Dict[str, Any]] = {}
		for uuid in decode_uuids:
			if uuid not in self._uuid_to_local_map:
				continue
			seq = self.global_batch.get_sequence(uuid)
			state = self._owned_metadata(seq)
			state["completed"] = self._is_sequence_completed(seq)
			state["assigned_rank"] = seq.assigned_rank
			state["additional_pages_needed"] = seq.get_additional_gpu_pages_needed()
			state["host_growth_pages"] = seq.get_host_growth_pages(chunk) if seq.needs_host_kv_growth() else 0
			seq_state[uuid] = state
		candidate_state: Dict[str, Dict[str, Any]] = {}
		for seq in self._decode_candidates():
			if seq.uuid not in self._uuid_to_local_map:
				continue
			candidate_state[seq.uuid] = {
				"pages_needed": seq.get_gpu_pages_for_two_page_buffer(),
				"assigned_rank": seq.assigned_rank,
				"status": int(seq.status),
				"decoded_length": seq.decoded_length,
				"host_pages_allocated": seq.host_pages_allocated,
			}
		payloads: List[Any] = [None] * self.world_size
		dist.all_gather_object(
			payloads,
			{
				"free_pages": self._get_gpu_kv_free_pages(),
				"seq_state": seq_state,
				"candidate_state": candidate_state,
			},
		)
		return payloads

	def _boundary_merge_and_decide(
		self, decode_uuids: Sequence[str], payloads: Sequence[Dict[str, Any]]
	) -> Tuple[BoundaryDecisions, Dict[str, Dict[str, Any]]]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_boundary_merge_and_decide", decode_uuids, payloads)
		return self._legacy__boundary_merge_and_decide(decode_uuids, payloads)

	def _legacy__boundary_merge_and_decide(
		self, decode_uuids: Sequence[str], payloads: Sequence[Dict[str, Any]]
	) -> Tuple[BoundaryDecisions, Dict[str, Dict[str, Any]]]:
		"""Check and merge the payloads, let rank 0 decide, and give everybody the decision (collective)."""
		validate_boundary_payload_alignment(
			[payload["seq_state"] for payload in payloads],
			{uuid: self.global_batch.get_sequence(uuid).assigned_rank for uuid in decode_uuids},
		)
		global_seq_state: Dict[str, Dict[str, Any]] = {}
		global_candidate_info: Dict[str, Dict[str, Any]] = {}
		for payload in payloads:
			global_seq_state.update(payload["seq_state"])
			global_candidate_info.update(payload["candidate_state"])
		for uuid, state in global_seq_state.items():
			if uuid not in self._uuid_to_local_map:
				self._absorb_metadata(self.global_batch.get_sequence(uuid), state)
		node_stats = self._gather_host_kv_stats_by_node(self.core_engine.host_paged_kv_worker_view)
		message: List[Any] = [None]
		if self.rank == 0:
			try:
				message[0] = self._compute_boundary_decisions(
					decode_uuids,
					global_seq_state,
					global_candidate_info,
					{rank: payload["free_pages"] for rank, payload in enumerate(payloads)},
					node_stats,
				)
			except Exception as error:
				# The other ranks wait in the broadcast: tell them, then fail together.
				logger.exception("boundary decision failed on rank 0")
				message[0] = BoundaryDecisions(scheduler_error=f"{type(error).__name__}: {error}")
		dist.broadcast_object_list(message, src=0)
		decisions: BoundaryDecisions = message[0]
		if decisions.scheduler_error is not None:
			raise RuntimeError(decisions.scheduler_error)
		return decisions, global_seq_state

	def _boundary_execute_decisions(self, decisions: BoundaryDecisions) -> List[str]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_boundary_execute_decisions", decisions)
		return self._legacy__boundary_execute_decisions(decisions)

	def _legacy__boundary_execute_decisions(self, decisions: BoundaryDecisions) -> List[str]:
		"""Apply a decision in its order: completions, host evictions, host growth, holds, extensions (collective).

		Returns the sequences that go on decoding; extensions that fail on any rank go on hold on all.
		"""
		self._complete_sequences(decisions.completed_uuids)
		if decisions.host_evicted_uuids:
			self._evict_sequences(decisions.host_evicted_uuids)
		if decisions.host_growth_uuids:
			self._grow_host_kv(decisions.host_growth_uuids, decisions.host_growth_pages)
		if decisions.onhold_uuids:
			self._put_sequences_onhold(decisions.onhold_uuids)
		decode_uuids = list(decisions.decode_uuids_final)
		if not decisions.seqs_needing_extension:
			return decode_uuids
		extended = torch.tensor([int(self._can_extend(decisions.seqs_needing_extension))], dtype=torch.int64)
		dist.all_reduce(extended, op=dist.ReduceOp.MIN)
		if int(extended.item()) == 0:
			# A rank's pool has less than it reported. Its sequences cannot extend, and the list is everybody's.
			logger.error("extension of %s refused on some rank: on hold", list(decisions.seqs_needing_extension))
			self._put_sequences_onhold(decisions.seqs_needing_extension)
			refused = set(decisions.seqs_needing_extension)
			return [uuid for uuid in decode_uuids if uuid not in refused]
		if not self._extend_gpu_kv_allocation(decisions.seqs_needing_extension):
			raise RuntimeError("[SCHED_INVARIANT] GPU pages vanished between the extension check and the extension")
		for uuid in decisions.seqs_needing_extension:
			if uuid not in self._uuid_to_local_map:
				seq = self.global_batch.get_sequence(uuid)
				seq.gpu_pages_allocated += seq.get_additional_gpu_pages_needed()
		return decode_uuids

	def _can_extend(self, uuids: Sequence[str]) -> bool:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_can_extend", uuids)
		return self._legacy__can_extend(uuids)

	def _legacy__can_extend(self, uuids: Sequence[str]) -> bool:
		local = [self._get_sequence_by_local(i) for i in self._local_indices_for(uuids)]
		return sum(seq.get_additional_gpu_pages_needed() for seq in local) <= self._get_gpu_kv_free_pages()

	def _evict_sequences(self, uuids: Sequence[str]):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_evict_sequences", uuids)
		return self._legacy__evict_sequences(uuids)

	def _legacy__evict_sequences(self, uuids: Sequence[str]):
		"""Drop the host KV of sequences; each comes back through a prefill of everything it has so far.

		The owner keeps the tokens; all ranks note the re-entry prompt, so that capacity is computed alike.
		"""
		local_ids = [self._uuid_to_local_map[uuid] for uuid in uuids if uuid in self._uuid_to_local_map]
		with_gpu = [i for i in local_ids if self._local_to_global_id(i) in self._sequences_with_gpu_kv]
		if with_gpu:
			self._release_gpu_kv_pages(with_gpu)
		for local_idx in local_ids:
			seq = self._get_sequence_by_local(local_idx)
			fresh = self.query_book[local_idx].decoded_tokens[:, seq.reentry_decoded_baseline : seq.decoded_length]
			seq.evicted_token_ids = torch.cat([seq.input_ids, fresh], dim=1)
		self._release_host_kv_pages(uuids)
		for uuid in uuids:
			seq = self.global_batch.get_sequence(uuid)
			seq.total_decoded_before_eviction = seq.decoded_length
			seq.prompt_length += max(0, seq.decoded_length - seq.reentry_decoded_baseline)
			seq.reentry_decoded_baseline = seq.decoded_length
			seq.max_decode_length = seq.original_max_decode_length - seq.decoded_length
			seq.host_pages_allocated = 0
			seq.host_token_capacity = 0
			seq.reset_gpu_allocation()
			seq.decode_dp_group = None
			self.global_batch.update_status(uuid, SequenceStatus.EVICTED)
			self.counters["evictions"] += 1

	def _grow_host_kv(self, uuids: Sequence[str], pages: Sequence[int]):
		if _KV_GATE.on:
			return _KV_GATE.run(self, "_grow_host_kv", uuids, pages)
		return self._legacy__grow_host_kv(uuids, pages)

	def _legacy__grow_host_kv(self, uuids: Sequence[str], pages: Sequence[int]):
		"""Grow host allocations: the owner's pool first, then the metadata of all ranks."""
		mine = {
			self.global_batch.get_sequence(uuid).global_idx: count
			for uuid, count in zip(uuids, pages)
			if uuid in self._uuid_to_local_map
		}
		self._check_host_growth(mine)
		for uuid, count in zip(uuids, pages):
			seq = self.global_batch.get_sequence(uuid)
			if seq.global_idx in mine:
				self._allocate_host_pages(uuid, count)
			seq.host_pages_allocated += count
			seq.host_token_capacity = seq.host_pages_allocated * self.PAGE_SIZE
			self.counters["host_growths"] += 1

	def _boundary_async_load(
		self, new_load_uuids: Sequence[str], existing_batch: Sequence[int]
	) -> Tuple[Optional[Any], List[str], List[int], List[int]]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_boundary_async_load", new_load_uuids, existing_batch)
		return self._legacy__boundary_async_load(new_load_uuids, existing_batch)

	def _legacy__boundary_async_load(
		self, new_load_uuids: Sequence[str], existing_batch: Sequence[int]
	) -> Tuple[Optional[Any], List[str], List[int], List[int]]:
		"""Start loading the selected sequences beside the coming forward steps.

		Returns (task or None where this rank loads nothing, uuids of all ranks, local indices, global ids).
		"""
		local_ids = self._local_indices_for(new_load_uuids)
		global_ids = [self._local_to_global_id(i) for i in local_ids]
		task = None
		if local_ids:
			self._allocate_state_slots(local_ids)
			existing = [self._local_to_global_id(i) for i in existing_batch]
			task = self._launch_async_load_new_sequences(local_ids, existing)
		self.counters["async_loads"] += len(new_load_uuids)
		return task, list(new_load_uuids), local_ids, global_ids

	def _boundary_finalize(self, decode_uuids: Sequence[str]) -> Tuple[List[int], bool]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_boundary_finalize", decode_uuids)
		return self._legacy__boundary_finalize(decode_uuids)

	def _legacy__boundary_finalize(self, decode_uuids: Sequence[str]) -> Tuple[List[int], bool]:
		"""Row order, page table and row counts for the next steps; then the watermark question (collective).

		Returns (local batch in row order, whether to leave the decode phase for a prefill).
		"""
		batch = self._local_indices_for(decode_uuids)
		self._rebuild_page_table_for_batch(batch)
		self._sync_decode_moe_rank_counts(batch, reason="boundary")
		dist.barrier()
		expected = self._sync_decode_uuids_tensor(decode_uuids)
		if expected != list(decode_uuids):
			raise RuntimeError(f"[SCHED_INVARIANT] ranks disagree after a boundary: {decode_uuids} here, {expected} common")
		return batch, self._check_host_kv_watermark_trigger()

	def _page_boundary_fast(
		self,
		decode_uuids: Sequence[str],
		batch: List[int],
		pending_task: Optional[Any],
		pending_load_uuids: Sequence[str],
		pending_load_global: Sequence[int],
	):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_page_boundary_fast", decode_uuids, batch, pending_task, pending_load_uuids, pending_load_global)
		return self._legacy__page_boundary_fast(decode_uuids, batch, pending_task, pending_load_uuids, pending_load_global)

	def _legacy__page_boundary_fast(
		self,
		decode_uuids: Sequence[str],
		batch: List[int],
		pending_task: Optional[Any],
		pending_load_uuids: Sequence[str],
		pending_load_global: Sequence[int],
	):
		"""One boundary. The order of collectives is the same on every rank whatever it owns.

		Returns (decode_uuids, batch, new_async_task, new_load_uuids, new_load_local, new_load_global, timing,
		watermark_triggered).
		"""
		started = time.perf_counter()
		decode_uuids, batch = self._boundary_wait_pending(
			decode_uuids, batch, pending_task, pending_load_uuids, pending_load_global
		)
		waited = time.perf_counter()
		payloads = self._boundary_gather_state(decode_uuids)
		decisions, _ = self._boundary_merge_and_decide(decode_uuids, payloads)
		decided = time.perf_counter()
		decode_uuids = self._boundary_execute_decisions(decisions)
		task, load_uuids, load_local, load_global = self._boundary_async_load(
			decisions.new_load_uuids, self._local_indices_for(decode_uuids)
		)
		batch, watermark_triggered = self._boundary_finalize(decode_uuids)
		self.counters["boundaries"] += 1
		timing = {
			"wait_pending": waited - started,
			"decide": decided - waited,
			"execute": time.perf_counter() - decided,
		}
		return decode_uuids, batch, task, load_uuids, load_local, load_global, timing, watermark_triggered

	def _finalize_async_load_minimal(
		self, decode_uuids: Sequence[str], load_uuids: Sequence[str], load_global: Sequence[int]
	) -> List[str]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_finalize_async_load_minimal", decode_uuids, load_uuids, load_global)
		return self._legacy__finalize_async_load_minimal(decode_uuids, load_uuids, load_global)

	def _legacy__finalize_async_load_minimal(
		self, decode_uuids: Sequence[str], load_uuids: Sequence[str], load_global: Sequence[int]
	) -> List[str]:
		"""Loaded sequences join the decode: status and pages on all ranks, confirmed by the rank that loaded them."""
		confirmed = set(load_global)
		for uuid in load_uuids:
			seq = self.global_batch.get_sequence(uuid)
			pages = seq.get_gpu_pages_for_two_page_buffer()
			if uuid in self._uuid_to_local_map:
				if seq.global_idx not in confirmed:
					raise RuntimeError(f"sequence {uuid} was to be loaded by this rank, which did not load it")
				allocated = self.gpu_paged_kv_cache_manager.num_pages_of(seq.global_idx)
				if allocated != pages:
					raise RuntimeError(f"sequence {uuid} has {allocated} GPU pages, its reservation says {pages}")
			if seq.status == SequenceStatus.ON_HOLD:
				self.counters["reloads"] += 1
			self.global_batch.update_status(uuid, SequenceStatus.IN_DECODE)
			seq.gpu_pages_allocated = pages
			seq.mark_initial_gpu_reservation()
		self._async_load_tensors = None
		return self._sort_by_global_idx(list(decode_uuids) + list(load_uuids))

	def _bind_decode_attention_metadata(self, sequences: Sequence[SequenceEntry]) -> int:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_bind_decode_attention_metadata", sequences)
		return self._legacy__bind_decode_attention_metadata(sequences)

	def _legacy__bind_decode_attention_metadata(self, sequences: Sequence[SequenceEntry]) -> int:
		"""kv_len (int32) and position (int64) per row into persistent device buffers; returns the longest kv_len.

		kv_len counts the token that this step writes, at position kv_len - 1. When the rows are those of the last
		step, each one token longer, the buffers advance in place.
		"""
		rows = [seq.global_idx for seq in sequences]
		lengths = [seq.current_context_length for seq in sequences]
		if self._cache_seqlens_buffer is None:
			# Inference tensors could not be updated in place outside of inference mode.
			with torch.inference_mode(False):
				capacity = self.args.max_batch_size
				self._cache_seqlens_buffer = torch.zeros(capacity, dtype=torch.int32, device=self.device)
				self._position_ids_buffer = torch.zeros(capacity, dtype=torch.int64, device=self.device)
		cache_seqlens = self._cache_seqlens_buffer[: len(rows)]
		position_ids = self._position_ids_buffer[: len(rows)]
		last = self._decode_metadata_key
		if last is not None and last[0] == rows and all(n == o + 1 for n, o in zip(lengths, last[1])):
			cache_seqlens.add_(1)
			position_ids.add_(1)
		else:
			cache_seqlens.copy_(torch.tensor(lengths, dtype=torch.int32), non_blocking=True)
			position_ids.copy_(torch.tensor(lengths, dtype=torch.int64) - 1, non_blocking=True)
		self._decode_metadata_key = (rows, lengths)
		AttnWrapperBase.cache_seqlens, AttnWrapperBase.position_ids = cache_seqlens, position_ids
		AttnWrapperBase.max_seqlen = max(lengths, default=0)
		return AttnWrapperBase.max_seqlen

	def _sync_decode_moe_rank_counts(self, batch: Sequence[int], *, reason: str):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_sync_decode_moe_rank_counts", batch, reason=reason)
		return self._legacy__sync_decode_moe_rank_counts(batch, reason=reason)

	def _legacy__sync_decode_moe_rank_counts(self, batch: Sequence[int], *, reason: str):
		"""How many rows every rank decodes (collective); the widest decides padding and bucket on all of them."""
		counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
		dist.all_gather(counts, torch.tensor([len(batch)], dtype=torch.int64))
		rank_counts = [int(count.item()) for count in counts]
		self._current_decode_max_rank_batch_size = max(rank_counts)
		self._current_decode_rank_token_counts = rank_counts
		self.parallel_manager.set_num_tokens_per_rank(max(rank_counts))
		self.parallel_manager.set_rank_token_counts(rank_counts)
		logger.debug("decode rows per rank at %s: %s", reason, rank_counts)
		self._capture_cuda_graph_for_batch()

	def _ensure_cuda_graph_adapter(self) -> None:
		return ModelExecutor.for_worker(self)._ensure_cuda_graph_adapter()

	def _capture_cuda_graph_for_batch(self) -> None:
		return ModelExecutor.for_worker(self)._capture_cuda_graph_for_batch()

	def _release_cuda_graphs(self) -> None:
		return ModelExecutor.for_worker(self)._release_cuda_graphs()

	def _decode_bind_attn_wrapper(self, batch: Sequence[int]):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_decode_bind_attn_wrapper", batch)
		return self._legacy__decode_bind_attn_wrapper(batch)

	def _legacy__decode_bind_attn_wrapper(self, batch: Sequence[int]):
		"""Publish pools, host views and row order to the attention wrapper's class attributes."""
		manager = self.gpu_paged_kv_cache_manager
		if isinstance(manager, DualKVCacheCoordinator):
			primary, auxiliary = manager.primary, manager.auxiliary
		else:
			primary, auxiliary = manager, None
		Attn_Wrapper.gpu_paged_kv_cache_manager = manager
		AttnWrapperBase.gpu_paged_kv_manager_primary, AttnWrapperBase.gpu_paged_kv_manager_aux = primary, auxiliary
		AttnWrapperBase.host_paged_kv_worker_view = self.host_paged_kv_worker_view
		AttnWrapperBase.host_paged_kv_worker_view_aux = getattr(
			self.core_engine, "host_paged_kv_worker_view_aux", None
		)
		Attn_Wrapper.cur_batch = [self._local_to_global_id(i) for i in batch]
		AttnWrapperBase.attention_backend = self.core_engine.attention_backend
		AttnWrapperBase.row_exact = self.args.row_exact
		self._decode_metadata_key = None

	def _decode_verify_page_table(self, state: _DecodeLoopState, batch: Sequence[int]):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_decode_verify_page_table", state, batch)
		return self._legacy__decode_verify_page_table(state, batch)

	def _legacy__decode_verify_page_table(self, state: _DecodeLoopState, batch: Sequence[int]):
		"""The table's rows must be the batch's rows, in order: attention reads row i for batch row i."""
		if state.page_table_verified:
			return
		manager = self.gpu_paged_kv_cache_manager
		expected = [self._local_to_global_id(i) for i in batch]
		if manager is not None and list(manager.slot_to_seq_id) != expected:
			self._rebuild_page_table_for_batch(batch)
		state.page_table_verified = True

	def _decode_init_state(self, decode_uuids: Sequence[str]) -> _DecodeLoopState:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_decode_init_state", decode_uuids)
		return self._legacy__decode_init_state(decode_uuids)

	def _legacy__decode_init_state(self, decode_uuids: Sequence[str]) -> _DecodeLoopState:
		"""Fresh loop state; a boundary comes first when a sequence is about to outgrow its host pages."""
		self._pending_kv_append_tasks = []
		self._pending_kv_append_tensors = []
		if not hasattr(self, "_cumulative_decode_steps"):
			self._cumulative_decode_steps = 0
			self._cumulative_decode_seconds = 0.0
			self._cumulative_boundary_seconds = 0.0
		due = False
		for uuid in decode_uuids:
			seq = self.global_batch.get_sequence(uuid)
			if seq.needs_host_kv_growth() and seq.get_host_growth_pages(self._host_chunk_tokens()) > 0:
				due = True
		return _DecodeLoopState(boundary_due=due)

	def _decode_initial_moe_sync(self, batch: Sequence[int]):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_decode_initial_moe_sync", batch)
		return self._legacy__decode_initial_moe_sync(batch)

	def _legacy__decode_initial_moe_sync(self, batch: Sequence[int]):
		self._sync_decode_moe_rank_counts(batch, reason="decode_entry")
		if self._token_readback is None:
			self._token_readback = torch.empty(
				self.args.max_batch_size, dtype=torch.int64, pin_memory=self.device.type == "cuda"
			)

	def _decode_handle_boundary(
		self, state: _DecodeLoopState, new_tokens: torch.Tensor, decode_uuids: Sequence[str], batch: List[int]
	) -> Tuple[str, torch.Tensor, List[str], List[int]]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_decode_handle_boundary", state, new_tokens, decode_uuids, batch)
		return self._legacy__decode_handle_boundary(state, new_tokens, decode_uuids, batch)

	def _legacy__decode_handle_boundary(
		self, state: _DecodeLoopState, new_tokens: torch.Tensor, decode_uuids: Sequence[str], batch: List[int]
	) -> Tuple[str, torch.Tensor, List[str], List[int]]:
		"""Run a boundary and act on it: ("step" | "again" | "stop", input tokens, decode_uuids, batch)."""
		started = time.perf_counter()
		(
			decode_uuids,
			batch,
			state.pending_async_task,
			state.pending_load_uuids,
			_,
			state.pending_load_global,
			timing,
			watermark_triggered,
		) = self._page_boundary_fast(
			decode_uuids, batch, state.pending_async_task, state.pending_load_uuids, state.pending_load_global
		)
		state.last_boundary = state.iteration
		state.boundary_due = False
		state.page_table_verified = False
		self._decode_metadata_key = None
		self._decode_verify_page_table(state, batch)
		self._cumulative_boundary_seconds += time.perf_counter() - started
		logger.debug("boundary %d: %s", self.counters["boundaries"], timing)
		if watermark_triggered:
			self._wait_pending_kv_append_tasks(sync_distributed_errors=True)
			# A load launched by this very boundary owns GPU pages: settle it, or they would be nobody's.
			decode_uuids, batch = self._settle_pending_decode_load(state, decode_uuids, batch)
			if decode_uuids:
				self._put_sequences_on_hold(decode_uuids)
			self.counters["watermark_breaks"] += 1
			return "stop", new_tokens, [], []
		self._poll_admissions()
		if not decode_uuids:
			if not state.pending_load_uuids:
				return "stop", new_tokens, [], []
			decode_uuids, batch = self._settle_pending_decode_load(state, decode_uuids, batch)
			self._sync_decode_moe_rank_counts(batch, reason="load_only")
			# What has just come back may need host pages before it writes its next token.
			state.boundary_due = True
			return "again", new_tokens, decode_uuids, batch
		return "step", self._rebuild_input_tokens(batch), decode_uuids, batch

	def _settle_pending_decode_load(
		self, state: _DecodeLoopState, decode_uuids: Sequence[str], batch: List[int]
	) -> Tuple[List[str], List[int]]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_settle_pending_decode_load", state, decode_uuids, batch)
		return self._legacy__settle_pending_decode_load(state, decode_uuids, batch)

	def _legacy__settle_pending_decode_load(
		self, state: _DecodeLoopState, decode_uuids: Sequence[str], batch: List[int]
	) -> Tuple[List[str], List[int]]:
		"""Wait for a launched load and let its sequences join; every way out of the loop comes through here."""
		if not state.pending_load_uuids:
			return list(decode_uuids), batch
		if state.pending_async_task is not None:
			state.pending_async_task.wait()
		dist.barrier()
		decode_uuids = self._finalize_async_load_minimal(
			decode_uuids, state.pending_load_uuids, state.pending_load_global
		)
		state.pending_async_task = None
		state.pending_load_uuids, state.pending_load_global = [], []
		batch = self._local_indices_for(decode_uuids)
		self._rebuild_page_table_for_batch(batch)
		self._decode_metadata_key = None
		return decode_uuids, batch

	def _check_context_invariant(self, sequences: Sequence[SequenceEntry]):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_check_context_invariant", sequences)
		return self._legacy__check_context_invariant(sequences)

	def _legacy__check_context_invariant(self, sequences: Sequence[SequenceEntry]):
		"""context == original prompt + decoded, or the row would be written to a wrong position."""
		for seq in sequences:
			expected = seq.original_prompt_length + seq.decoded_length
			if seq.current_context_length != expected:
				raise RuntimeError(
					f"[CTX_INVARIANT] sequence {seq.uuid} has context {seq.current_context_length}, prompt + decoded = {expected}"
				)

	def _decode_begin_deferred_kv(self, sequences: Sequence[SequenceEntry]):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_decode_begin_deferred_kv", sequences)
		return self._legacy__decode_begin_deferred_kv(sequences)

	def _legacy__decode_begin_deferred_kv(self, sequences: Sequence[SequenceEntry]):
		"""Collect the step's KV per layer, for one host append after the forward (or at once, BATCHGEN_SYNC_KV=1)."""
		global_ids = [seq.global_idx for seq in sequences]
		positions = [seq.current_context_length - 1 for seq in sequences]
		self._deferred_kv_batch = (global_ids, positions)
		self._deferred_kv_entries = []
		self._deferred_kv_entries_aux = []
		kv_append_callback = DeferredKv(self._deferred_kv_entries)
		kv_append_callback_aux = DeferredIndexKeys(self._deferred_kv_entries_aux)
		if os.environ.get("BATCHGEN_SYNC_KV") == "1":
			self._deferred_kv_batch = None

			def kv_append_callback(layer_idx, k, v):
				self._ensure_host_kv_append_capacity(global_ids, positions)
				view = self.core_engine.host_paged_kv_worker_view
				view.async_append_decode_kv_to_host(layer_idx, global_ids, k, v, positions).wait()

			def kv_append_callback_aux(layer_idx, k):
				view = self.core_engine.host_paged_kv_worker_view_aux
				view.async_append_decode_kv_to_host(layer_idx, global_ids, k.unsqueeze(1), None, positions).wait()

		AttnWrapperBase.kv_append_callback = kv_append_callback
		AttnWrapperBase.kv_append_callback_aux = kv_append_callback_aux

	def _decode_make_batch_state(
		self, sequences: Sequence[SequenceEntry], new_tokens: torch.Tensor, max_seqlen: int
	) -> BatchState:
		return ModelExecutor.for_worker(self)._decode_make_batch_state(sequences, new_tokens, max_seqlen)

	def _decode_graph_decision(self, batch_state: BatchState) -> GraphDecision:
		return ModelExecutor.for_worker(self)._decode_graph_decision(batch_state)

	def _decode_compare_graph(
		self, batch_state: BatchState, inputs: Dict[str, torch.Tensor], outputs: Dict[str, torch.Tensor]
	) -> None:
		return ModelExecutor.for_worker(self)._decode_compare_graph(batch_state, inputs, outputs)

	def _decode_run_eager(self, batch: DecodeBatch) -> DecodeOutputs:
		return ModelExecutor.for_worker(self)._decode_run_eager(batch)

	def _decode_stage(
		self, sequences: Sequence[SequenceEntry], new_tokens: torch.Tensor, max_seqlen: int
	) -> DecodeStepRequest:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_decode_stage", sequences, new_tokens, max_seqlen)
		return self._legacy__decode_stage(sequences, new_tokens, max_seqlen)

	def _legacy__decode_stage(
		self, sequences: Sequence[SequenceEntry], new_tokens: torch.Tensor, max_seqlen: int
	) -> DecodeStepRequest:
		"""Put the coming step's batch where `step` finds it; returns what `step` is to be asked."""
		state = self._decode_make_batch_state(sequences, new_tokens, max_seqlen)
		self._decode_batch = DecodeBatch(
			state,
			tuple(sequences),
			self._token_readback[: len(sequences)],
			AttnWrapperBase.kv_append_callback,
			AttnWrapperBase.kv_append_callback_aux,
		)
		uuids = tuple(seq.uuid for seq in sequences)
		return DecodeStepRequest(
			uuids, state.cache_seqlens, state.position_ids, self._decode_graph_decision(state)
		)

	def step(self, req: DecodeStepRequest) -> DecodeStepResult:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "step", req)
		return self._legacy_step(req)

	def _legacy_step(self, req: DecodeStepRequest) -> DecodeStepResult:
		"""One decode forward of the staged batch (eligibility -> prepare_replay_inputs -> replay -> stage KV, or an eager
		run), and the selection of its tokens, whose copy to the host is started.

		RuntimeError, with nothing launched, when another batch is staged than the request's, or the adapter does not say
		of it what the request says.
		"""
		batch, adapter = self._decode_batch, self._cuda_graph_adapter
		if batch is None or not batch.is_for(req):
			raise RuntimeError(f"[SCHED_INVARIANT] the staged batch is not that of sequences {list(req.active_uuids)}")
		decision = GRAPHS_DISABLED if adapter is None else adapter.eligibility(batch.state)
		if decision != req.cuda_graph_decision:
			raise RuntimeError(f"[SCHED_INVARIANT] the step was to run by {req.cuda_graph_decision}, now it is {decision}")
		with torch.inference_mode():
			if decision.use_graph:
				inputs = adapter.prepare_replay_inputs(batch.state, decision.bucket)
				outputs = self._cuda_graph_manager.replay(decision.bucket, inputs)
				adapter.stage_post_graph_kv(batch.state, outputs, batch.append_kv, batch.append_index_keys)
				if self._graph_flags.compare:
					self._decode_compare_graph(batch.state, inputs, outputs)
				self.counters["graph_steps"] += 1
				logits = outputs["logits"][: batch.state.local_bsz].unsqueeze(1)
			else:
				logits = self._decode_run_eager(batch).logits
			next_tokens = self._select_tokens(logits[:, -1, :], list(batch.sequences))
		batch.readback.copy_(next_tokens, non_blocking=True)
		return DecodeStepResult(next_tokens, batch.readback, decision)

	def _decode_forward_step(
		self, state: _DecodeLoopState, new_tokens: torch.Tensor, batch: Sequence[int]
	) -> Tuple[torch.Tensor, List[int]]:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_decode_forward_step", state, new_tokens, batch)
		return self._legacy__decode_forward_step(state, new_tokens, batch)

	def _legacy__decode_forward_step(
		self, state: _DecodeLoopState, new_tokens: torch.Tensor, batch: Sequence[int]
	) -> Tuple[torch.Tensor, List[int]]:
		"""One token for every local row: bind, stage, step, start the host append.

		Returns (next tokens on the device, the same on the host).
		"""
		started = time.perf_counter()
		sequences = [self._get_sequence_by_local(i) for i in batch]
		self._check_context_invariant(sequences)
		self._decode_verify_page_table(state, batch)
		max_seqlen = self._bind_decode_attention_metadata(sequences)
		self._decode_begin_deferred_kv(sequences)
		result = self.step(self._decode_stage(sequences, new_tokens, max_seqlen))
		self._decode_batch = None
		self._flush_deferred_kv_to_host()
		if self.device.type == "cuda":
			torch.cuda.current_stream().synchronize()
		self._cumulative_decode_steps += 1
		self._cumulative_decode_seconds += time.perf_counter() - started
		self.counters["decode_steps"] += 1
		return result.next_tokens, result.readback.tolist()

	def _decode_update_sequences(self, batch: Sequence[int], tokens: Sequence[int]):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_decode_update_sequences", batch, tokens)
		return self._legacy__decode_update_sequences(batch, tokens)

	def _legacy__decode_update_sequences(self, batch: Sequence[int], tokens: Sequence[int]):
		"""Keep the step's tokens; a row that is done waits for the boundary and keeps its last token."""
		for local_idx, token in zip(batch, tokens):
			seq = self._get_sequence_by_local(local_idx)
			if not self._is_sequence_completed(seq):
				self._append_decoded_token(seq, token)

	def _decode_sync_completions(self, state: _DecodeLoopState, decode_uuids: Sequence[str]):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_decode_sync_completions", state, decode_uuids)
		return self._legacy__decode_sync_completions(state, decode_uuids)

	def _legacy__decode_sync_completions(self, state: _DecodeLoopState, decode_uuids: Sequence[str]):
		"""Every few steps: does any rank have a finished sequence? Then the boundary comes now (collective)."""
		if state.iteration % self.args.completion_sync_interval != 0:
			return
		completed, _ = self._sync_completion_status_tensor(decode_uuids)
		if completed:
			state.boundary_due = True

	def _assert_step_invariants(self, decode_uuids: Sequence[str], batch: Sequence[int]):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_assert_step_invariants", decode_uuids, batch)
		return self._legacy__assert_step_invariants(decode_uuids, batch)

	def _legacy__assert_step_invariants(self, decode_uuids: Sequence[str], batch: Sequence[int]):
		"""Everything that must hold after a step (BATCHGEN_DECODE_ASSERT=1): metadata, indexes, pools, tables."""
		problems = list(self.global_batch.validate_indexes())
		for seq in self.global_batch:
			problems += seq.validate_metadata(seq.uuid in self._uuid_to_local_map)
		manager = self.gpu_paged_kv_cache_manager
		expected = [self._local_to_global_id(i) for i in batch]
		if list(manager.slot_to_seq_id) != expected:
			problems.append(f"page table rows {manager.slot_to_seq_id} are not the batch's {expected}")
		for local_idx in batch:
			seq = self._get_sequence_by_local(local_idx)
			if manager.num_pages_of(seq.global_idx) != seq.gpu_pages_allocated:
				problems.append(
					f"sequence {seq.uuid}: {manager.num_pages_of(seq.global_idx)} pages in the pool, "
					f"{seq.gpu_pages_allocated} in its metadata"
				)
			if self.core_engine.host_paged_kv_worker_view.page_count(seq.global_idx) != seq.host_pages_allocated:
				problems.append(f"sequence {seq.uuid}: host pages differ between the pool and its metadata")
		manager.check_invariants()
		if problems:
			raise AssertionError("; ".join(problems))

	def _decode_cleanup(self, state: _DecodeLoopState):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_decode_cleanup", state)
		return self._legacy__decode_cleanup(state)

	def _legacy__decode_cleanup(self, state: _DecodeLoopState):
		"""Leave the loop with nothing in flight and no class-level binding to what this phase owned (collective)."""
		self._wait_pending_kv_append_tasks(sync_distributed_errors=True)
		if state.pending_load_uuids:
			raise RuntimeError(f"[SCHED_INVARIANT] the load of {state.pending_load_uuids} was never settled")
		self._unbind_attn_wrapper()
		self._disable_decode_watchdog()

	def _unbind_attn_wrapper(self):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_unbind_attn_wrapper")
		return self._legacy__unbind_attn_wrapper()

	def _legacy__unbind_attn_wrapper(self):
		Attn_Wrapper.gpu_paged_kv_cache_manager = None
		AttnWrapperBase.gpu_paged_kv_manager_primary, AttnWrapperBase.gpu_paged_kv_manager_aux = None, None
		AttnWrapperBase.host_paged_kv_worker_view, AttnWrapperBase.host_paged_kv_worker_view_aux = None, None
		Attn_Wrapper.cur_batch = None
		AttnWrapperBase.cache_seqlens, AttnWrapperBase.position_ids, AttnWrapperBase.max_seqlen = None, None, None
		AttnWrapperBase.decode_page_table = None
		AttnWrapperBase.decode_plan, AttnWrapperBase.decode_plan_aux = None, None
		AttnWrapperBase.primary_slot_indices, AttnWrapperBase.aux_slot_indices = None, None
		AttnWrapperBase.kv_append_callback = None
		AttnWrapperBase.kv_append_callback_aux = None
		AttnWrapperBase.state_slots = None

	def decoding_continuous(self, new_tokens: torch.Tensor, decode_uuids: Sequence[str], batch: Sequence[int]):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "decoding_continuous", new_tokens, decode_uuids, batch)
		return self._legacy_decoding_continuous(new_tokens, decode_uuids, batch)

	def _legacy_decoding_continuous(self, new_tokens: torch.Tensor, decode_uuids: Sequence[str], batch: Sequence[int]):
		"""Decode until nothing is left to decode or the watermark asks for a prefill (collective).

		Args:
			new_tokens: int64 [B], the newest token of each local row.
			decode_uuids: sequences decoding on all ranks, in global order.
			batch: local indices of this rank's rows, in the same order.
		"""
		decode_uuids, batch = list(decode_uuids), list(batch)
		self._decode_bind_attn_wrapper(batch)
		state = self._decode_init_state(decode_uuids)
		self._decode_initial_moe_sync(batch)
		self._enable_decode_watchdog()
		check = os.environ.get("BATCHGEN_DECODE_ASSERT") == "1"
		while decode_uuids:
			self._watchdog.feed()
			if state.boundary_due or state.iteration - state.last_boundary >= self.DECISION_INTERVAL:
				action, new_tokens, decode_uuids, batch = self._decode_handle_boundary(
					state, new_tokens, decode_uuids, batch
				)
				if action == "stop":
					break
				if action == "again":
					continue
			state.iteration += 1
			new_tokens, tokens = self._decode_forward_step(state, new_tokens, batch)
			self._decode_update_sequences(batch, tokens)
			if check:
				self._assert_step_invariants(decode_uuids, batch)
			self._decode_sync_completions(state, decode_uuids)
			self._report_progress()
		self._decode_cleanup(state)

	def _wait_pending_kv_append_tasks(
		self, *, sync_distributed_errors: bool = False, defer_errors: bool = False
	) -> int:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_wait_pending_kv_append_tasks", sync_distributed_errors=sync_distributed_errors, defer_errors=defer_errors)
		return self._legacy__wait_pending_kv_append_tasks(sync_distributed_errors=sync_distributed_errors, defer_errors=defer_errors)

	def _legacy__wait_pending_kv_append_tasks(
		self, *, sync_distributed_errors: bool = False, defer_errors: bool = False
	) -> int:
		"""Wait for all host appends; returns how many there were.

		Errors are raised here, or on all ranks together (`sync_distributed_errors`, collective even when this rank has
		nothing to wait for), or kept for the next distributed wait (`defer_errors`).
		"""
		tasks = getattr(self, "_pending_kv_append_tasks", None) or []
		errors: List[str] = []
		for task in tasks:
			if task is None:
				continue
			try:
				task.wait()
			except Exception as error:
				errors.append(f"rank {self.rank}: {type(error).__name__}: {error}")
		if tasks and not errors and self.device.type == "cuda":
			torch.cuda.synchronize()
		self._pending_kv_append_tasks = []
		self._pending_kv_append_tensors = []
		if defer_errors:
			if not hasattr(self, "_deferred_kv_append_wait_errors"):
				self._deferred_kv_append_wait_errors = []
			self._deferred_kv_append_wait_errors.extend(errors)
			return len(tasks)
		errors = (getattr(self, "_deferred_kv_append_wait_errors", None) or []) + errors
		self._deferred_kv_append_wait_errors = []
		if sync_distributed_errors:
			gathered: List[Any] = [None] * self.world_size
			dist.all_gather_object(gathered, errors)
			errors = [error for part in gathered for error in part]
		if errors:
			raise RuntimeError("host KV append failed: " + "; ".join(errors))
		return len(tasks)

	def _rebuild_page_table_for_batch(self, batch: Sequence[int]):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_rebuild_page_table_for_batch", batch)
		return self._legacy__rebuild_page_table_for_batch(batch)

	def _legacy__rebuild_page_table_for_batch(self, batch: Sequence[int]):
		"""Page table rows in batch order; sequences without GPU pages cannot have one and are dropped loudly."""
		manager = self.gpu_paged_kv_cache_manager
		if manager is None:
			return
		global_ids = []
		for local_idx in batch:
			global_id = self._local_to_global_id(local_idx)
			if manager.has_sequence(global_id):
				global_ids.append(global_id)
			else:
				logger.error("sequence %d is in the decode batch without GPU pages", global_id)
		if global_ids:
			manager.rebuild_page_table(global_ids)
		else:
			manager.clear_page_table()
		Attn_Wrapper.cur_batch = global_ids

	def _append_decode_kv_to_host_async(self, entries, global_ids, positions):
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_append_decode_kv_to_host_async", entries, global_ids, positions)
		return self._legacy__append_decode_kv_to_host_async(entries, global_ids, positions)

	def _legacy__append_decode_kv_to_host_async(self, entries, global_ids, positions):
		"""One task for all layers (BATCHGEN_KV_OFFLOAD_UVA_KERNEL, on by default) or one per layer.

		Layer 0 is always checked for NaN: it is the first place where a corrupt page shows.
		"""
		view = self.core_engine.host_paged_kv_worker_view
		if entries and bool(torch.isnan(entries[0][1]).any()):
			raise RuntimeError(f"NaN in the keys of layer {entries[0][0]} for sequences {list(global_ids)}")
		if os.environ.get("BATCHGEN_KV_OFFLOAD_UVA_KERNEL", "1") == "1":
			task = view.async_append_decode_kv_to_host_batched_kernel(entries, global_ids, positions)
			self._pending_kv_append_tasks.append(task)
		else:
			for layer_idx, k, v in entries:
				task = view.async_append_decode_kv_to_host(layer_idx, global_ids, k, v, positions)
				self._pending_kv_append_tasks.append(task)
		# The copies read these tensors until their task is waited for.
		self._pending_kv_append_tensors.append(entries)

	def _launch_async_load_new_sequences(self, local_ids: Sequence[int], existing_ids: Sequence[int]) -> Any:
		if _DECODE_GATE.on:
			return _DECODE_GATE.run(self, "_launch_async_load_new_sequences", local_ids, existing_ids)
		return self._legacy__launch_async_load_new_sequences(local_ids, existing_ids)

	def _legacy__launch_async_load_new_sequences(self, local_ids: Sequence[int], existing_ids: Sequence[int]) -> Any:
		"""Allocate pages for new local sequences and start their host-to-GPU load; the table stays the existing rows'."""
		manager = self.gpu_paged_kv_cache_manager
		pages = self._compute_two_page_buffer_allocation(local_ids)
		new_ids = list(pages)
		self._check_first_gpu_pages(pages)
		for global_id in new_ids:
			self._allocate_gpu_pages(self._global_to_uuid[global_id], pages[global_id])
		self._sequences_with_gpu_kv.update(new_ids)
		if isinstance(manager, DualKVCacheCoordinator):
			pointers = self._prepare_dual_kv_load_pointers(manager, new_ids, list(existing_ids) or None)
			self._async_load_tensors = pointers
			return self._launch_dual_host_kv_load(pointers)
		try:
			manager.rebuild_page_table(new_ids)
			k_ptrs, v_ptrs = manager.get_page_pointers()
		finally:
			if existing_ids:
				manager.rebuild_page_table(existing_ids)
			else:
				manager.clear_page_table()
		counts = torch.tensor(
			[_ceil_div(self._get_sequence_by_local(i).current_context_length - 1, self.PAGE_SIZE) for i in local_ids],
			dtype=torch.int64,
		)
		sequence_ids = torch.tensor(new_ids, dtype=torch.int64)
		self._async_load_tensors = (sequence_ids, counts, k_ptrs, v_ptrs)
		return self.core_engine.host_paged_kv_worker_view.async_load_layer_paged_kv_to_device(
			sequence_ids, counts, k_ptrs, v_ptrs
		)

	# ============ Utility Methods ============

	def _reset_for_new_batch(self):
		"""Start a batch on a live worker: indexes and counters of the last one go, pools and model stay."""
		if self._local_to_uuid_map:
			raise RuntimeError(f"{len(self._local_to_uuid_map)} sequences of the last batch are still held")
		self._apply_page_geometry()
		self._batch_id += 1
		self._next_global_idx = 0
		self.global_batch = SequenceBatch()
		self._global_to_uuid = {}
		self._request_queue.clear()
		self._results = []
		self._decode_metadata_key = None
		self._progress_base = self.counters["completed"] + self.counters["rejected"]
		self._batch_total = 0

	def _abandon_batch(self):
		"""After an error or an interrupt: nothing in flight, no page held, ready for the next batch (rank-local)."""
		for task in self._pending_kv_append_tasks:
			if task is not None:
				try:
					task.wait()
				except Exception as error:
					logger.error("host KV append failed while abandoning the batch: %s", error)
		self._pending_kv_append_tasks = []
		self._pending_kv_append_tensors = []
		self._deferred_kv_append_wait_errors = []
		self._deferred_kv_batch = None
		self._decode_batch = None
		self._disable_decode_watchdog()
		self._unbind_attn_wrapper()
		if not hasattr(self, "model"):
			raise RuntimeError("the model was being reconfigured when the batch failed; build a new worker")
		if self.gpu_paged_kv_cache_manager is not None:
			self._destroy_gpu_paged_kv_cache()
		view = self.core_engine.host_paged_kv_worker_view
		held = view.sequence_ids()
		if held:
			view.release_sequence_pages(held)
		for uuid in list(self._uuid_to_local_map):
			self._release_local_sequence(uuid)
		for seq in self.global_batch:
			if self.core_engine.state_slot_pool.has(seq.global_idx):
				self._release_kda_state_slots([seq.global_idx])
			if seq.pool_slot_index >= 0:
				self._release_pool_slot(seq)
		self.set_phase("idle")

	def hot_reload(self):
		"""Take over edited worker code without losing the live state: methods come from the reloaded module."""
		import importlib

		module = importlib.reload(sys.modules[type(self).__module__])
		self.__class__ = module.BatchGenWorker
		self._apply_page_geometry()

	def deep_free(self):
		"""Give back everything large: GPU pools, graphs, model. The worker cannot run again."""
		if self.gpu_paged_kv_cache_manager is not None:
			self._destroy_gpu_paged_kv_cache(empty_cuda_cache=True)
			self._bind_gpu_paged_kv_manager(None)
		if hasattr(self, "parallel_manager"):
			del self.parallel_manager
		if hasattr(self, "model"):
			del self.model
		self._cache_seqlens_buffer = None
		self._position_ids_buffer = None
		AttnWrapperBase.reset()

	def close(self):
		"""Free everything and leave the host pools (shared segments are unlinked by their creator)."""
		if self._closed:
			return
		self._closed = True
		self._disable_decode_watchdog()
		self.deep_free()
		self.core_engine.close()
		self.host_paged_kv_worker_view = None
