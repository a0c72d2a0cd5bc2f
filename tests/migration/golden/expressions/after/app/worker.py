"""Chains of attributes and guards that become handles, and those that must not."""
from app.parts.cache import CacheManager


class View:
	def __init__(self, pages):
		self.pages = pages

	def free_pages(self):
		return self.pages

	def take(self, count, *, pin=False):
		self.pages -= count
		return count, pin


class Engine:
	def __init__(self):
		self.view = View(8)


class Rebalancer:
	def __init__(self):
		self.held = []

	def hold(self, *names):
		self.held += names
		return len(self.held)


class Worker:
	def __init__(self):
		self.engine = Engine()
		self.shortcut = self.engine.view
		self.rebalancer = Rebalancer()
		self.limit = None

	def _put_on_hold(self, *names):
		return self.rebalancer.hold(*names)

	# ============ Cache ============

	def free(self):
		return CacheManager.for_worker(self).free()

	def grow(self, pages):
		return CacheManager.for_worker(self).grow(pages)

	def spend(self, count):
		return CacheManager.for_worker(self).spend(count)

	def over_lines(self):
		return CacheManager.for_worker(self).over_lines()

	def others(self, workers):
		return CacheManager.for_worker(self).others(workers)

	def lazily(self):
		return CacheManager.for_worker(self).lazily()

	def hold(this, *names):
		return CacheManager.for_worker(this).hold(*names)

	def until(self):
		return CacheManager.for_worker(self).until()

	# ============ Rest ============

	def rest(self):
		return self.free()
