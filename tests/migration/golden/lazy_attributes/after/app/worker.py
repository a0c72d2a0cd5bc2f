"""Attributes that come and go: hasattr() must keep its meaning."""
from app.parts.cache import CacheManager


class Worker:
	def __init__(self):
		self.model = object()

	# ---- Cache ----

	def counter(self):
		return CacheManager.for_worker(self).counter()

	def group(self):
		return CacheManager.for_worker(self).group()

	def has_model(self):
		return CacheManager.for_worker(self).has_model()

	def drop(self):
		return CacheManager.for_worker(self).drop()

	def mark(self, value):
		return CacheManager.for_worker(self).mark(value)
