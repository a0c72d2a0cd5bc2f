"""Functions, lambdas and classes inside methods; try/finally that restores."""
from app.parts.cache import CacheManager


class Sink:
	callback = None


class Worker:
	def __init__(self):
		self.items = [3, 1, 2]
		self.table = []
		self.weights = {1: 9, 2: 8, 3: 7}

	# ============ Cache ============

	def ordered(self):
		return CacheManager.for_worker(self).ordered()

	def install(self):
		return CacheManager.for_worker(self).install()

	def weight(self, item):
		return CacheManager.for_worker(self).weight(item)

	def own_self(self):
		return CacheManager.for_worker(self).own_self()

	def restore(self, bad):
		return CacheManager.for_worker(self).restore(bad)
