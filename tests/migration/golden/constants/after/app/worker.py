"""Tests whose answer is always the same, and tests whose answer is not."""
from app.parts.cache import CacheManager


class Worker:
	def __init__(self):
		self.pool = [1]
		self.size = 2

	# ============ Cache ============

	def always(self):
		return CacheManager.for_worker(self).always()

	def never(self):
		return CacheManager.for_worker(self).never()

	def depends(self):
		return CacheManager.for_worker(self).depends()

	# ============ Rest ============

	def rest(self):
		return self.always()
