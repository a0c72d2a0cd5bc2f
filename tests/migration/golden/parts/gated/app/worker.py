"""Methods of one section that are not equally ready to go."""
from app.parts.cache import CacheManager
from shadow.experiment import Gate, Isolated, Pure


_PARTS_GATE = Gate(
	"APP_CACHE",
	CacheManager,
	{
		"_free_pages": Isolated(),
		"_Worker__used": Pure(),
		"_hold": Isolated(),
		"_release": Isolated(),
	},
	parts={
		"STATS": (
			"_free_pages",
			"_Worker__used",
		),
		"LOADS": (
			"_release",
		),
	},
)


class Worker:
	def __init__(self):
		self.total = 8
		self.held = {}

	# ============ Cache ============

	def _free_pages(self):
		if _PARTS_GATE.on:
			return _PARTS_GATE.run(self, "_free_pages")
		return self._legacy__free_pages()

	def _legacy__free_pages(self):
		return self.total - self.__used()

	def __used(self):
		if _PARTS_GATE.on:
			return _PARTS_GATE.run(self, "_Worker__used")
		return self._legacy__Worker__used()

	def _legacy__Worker__used(self):
		return sum(self.held.values())

	def _hold(self, uuid, pages):
		if _PARTS_GATE.on:
			return _PARTS_GATE.run(self, "_hold", uuid, pages)
		return self._legacy__hold(uuid, pages)

	def _legacy__hold(self, uuid, pages):
		if pages > self._free_pages():
			raise MemoryError(uuid)
		self.held[uuid] = pages

	def _release(self, uuid):
		if _PARTS_GATE.on:
			return _PARTS_GATE.run(self, "_release", uuid)
		return self._legacy__release(uuid)

	def _legacy__release(self, uuid):
		return self.held.pop(uuid, 0)

	# ============ Rest ============

	def run(self):
		self._hold("a", 3)
		self._hold("b", 4)
		try:
			self._hold("c", 2)
		except MemoryError as error:
			print("full:", error)
		return self._free_pages(), self._release("a"), self._Worker__used()
