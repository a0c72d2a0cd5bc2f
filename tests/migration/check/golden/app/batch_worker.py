"""The worker before its slices."""

import logging

import torch.distributed as dist

from app.pools import DualKVCacheCoordinator, NodeStats

logger = logging.getLogger("app.worker")


def ceil_div(a, b):
    return -(-a // b)


class Worker:
	PAGE_SIZE = 64

	def __init__(self, args, model_config, core_engine, batch, executor, rebalancer, rank, world_size):
		self.args = args
		self.model_config = model_config
		self.core_engine = core_engine
		self.batch = batch
		self.executor = executor
		self.rebalancer = rebalancer
		self.rank = rank
		self.world_size = world_size
		self.gpu_manager = None
		self.model = None
		self.stream = None
		self.held = set()
		self._uuid_to_local_map = {}
		self._pending_kv_append_tensors = []

	def append(self, tensors):
		self._pending_kv_append_tensors.append(tensors)

	def run(self, uuids):
		self._configure(uuids)
		if self._over_watermark(len(self.held)):
			self._evict(uuids)
		self._load(uuids)
		free = self._agree(self._free_pages())
		self._release(uuids, free[0])
		return self._pages_of(free[0], exact=True)

	def grow(self, manager):
		self._bind(manager)

	def _put_sequences_on_hold(self, uuids):
		self.rebalancer.put_on_hold(uuids)

	# ============ KV ============

	def _free_pages(self) -> int:
		return self.core_engine.host_paged_kv_worker_view.free_pages()

	def _over_watermark(self, used: int) -> bool:
		host_kv_eviction_watermark = self.args.total_pages * self.args.watermark_percent // 100
		return used > host_kv_eviction_watermark

	def _pages_of(self, tokens: int, *, exact: bool = False) -> int:
		"""Pages for these many tokens."""
		if exact:
			return ceil_div(tokens, self.PAGE_SIZE)
		return tokens // self.PAGE_SIZE + 1

	def _bind(self, manager):
		self.gpu_manager = manager
		if isinstance(manager, DualKVCacheCoordinator):
			self.core_engine.pool = manager.primary
			self.core_engine.pool_aux = manager.auxiliary

	def _evict(self, uuids):
		# The rebalancer decides where they wait.
		self._put_sequences_on_hold(uuids)
		self.held.update(uuids)

	def _load(self, uuids):
		primary, auxiliary = self.gpu_manager.primary, self.gpu_manager.auxiliary
		primary.load(uuids, stream=self.stream)
		auxiliary.load(uuids, stream=self.stream)

	def _release(self, uuids, rank: int):
		try:
			self.gpu_manager.wait(uuids)
		except KeyError as error:
			raise RuntimeError("not loaded") from error
		finally:
			self.held.difference_update(uuids)
		self.gpu_manager.free(uuids)
		for uuid in uuids:
			self.batch.assign_rank(uuid, rank)

	def _agree(self, free: int):
		gathered = [None] * self.world_size
		if not self.batch:
			return gathered
		dist.all_gather_object(gathered, free)
		if self.rank == 0:
			logger.info("free: %s", gathered)
		return gathered

	def _configure(self, uuids):
		if hasattr(self, "parallel_manager"):
			self.parallel_manager.shard(uuids)
		if self.model_config.layers > 1:
			self.executor.configure_decoding(self.model_config.layers)
		else:
			self.executor.configure_decoding(1)
		self.model = self.executor.model

	# ============ End KV ============

	def close(self):
		del self._uuid_to_local_map
