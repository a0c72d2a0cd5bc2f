"""One class, two slices: the plans of one ask the pages of the other."""

from app.parts.pages import PageTable
from app.parts.plans import Planner

LIMIT = 8


# Serves everybody.
class Worker:
	def __init__(self):
		self.held = {}
		self.log = []

	# ============ Pages ============

	def _pages(self, tokens):
		return PageTable.for_worker(self)._pages(tokens)

	def _free(self):
		return PageTable.for_worker(self)._free()

	def _take(self, uuid, tokens):
		return PageTable.for_worker(self)._take(uuid, tokens)

	def _dump(self):
		return PageTable.for_worker(self)._dump()

	# ============ Plans ============

	@property
	def share(self):
		return Planner.for_worker(self).share()

	def _waves(self, wanted):
		return (yield from Planner.for_worker(self)._waves(wanted))

	# ============ Rest ============

	def run(self):
		wanted = [("a", 9), ("b", 14), ("c", 20), ("d", 3)]
		for wave in self._waves(wanted):
			for uuid, tokens in wanted:
				if uuid in wave:
					try:
						self._take(uuid, tokens)
					except MemoryError as error:
						print("full:", error)
			print(wave, self._dump(), self.share)
			self.held.clear()
		return self.log
