"""Methods of one section that are not equally ready to go."""
from app.parts.cache import CacheManager


class Worker:
	def __init__(self):
		self.total = 8
		self.held = {}

	# ============ Cache ============

	def _free_pages(self):
		return CacheManager.for_worker(self)._free_pages()

	def __used(self):
		return CacheManager.for_worker(self)._Worker__used()

	def _hold(self, uuid, pages):
		return CacheManager.for_worker(self)._hold(uuid, pages)

	def _release(self, uuid):
		return CacheManager.for_worker(self)._release(uuid)

	# ============ Rest ============

	def run(self):
		self._hold("a", 3)
		self._hold("b", 4)
		try:
			self._hold("c", 2)
		except MemoryError as error:
			print("full:", error)
		return self._free_pages(), self._release("a"), self._Worker__used()
