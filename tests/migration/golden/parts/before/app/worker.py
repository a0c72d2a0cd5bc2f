"""Methods of one section that are not equally ready to go."""


class Worker:
	def __init__(self):
		self.total = 8
		self.held = {}

	# ============ Cache ============

	def _free_pages(self):
		return self.total - self.__used()

	def __used(self):
		return sum(self.held.values())

	def _hold(self, uuid, pages):
		if pages > self._free_pages():
			raise MemoryError(uuid)
		self.held[uuid] = pages

	def _release(self, uuid):
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
