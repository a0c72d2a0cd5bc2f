"""One class, two slices: the plans of one ask the pages of the other."""

import json
from math import ceil, floor

LIMIT = 8


# Serves everybody.
class Worker:
	def __init__(self):
		self.held = {}
		self.log = []

	# ============ Pages ============

	def _pages(self, tokens):
		return ceil(tokens / 4)

	def _free(self):
		return LIMIT - sum(self.held.values())

	def _take(self, uuid, tokens):
		pages = self._pages(tokens)
		if pages > self._free():
			raise MemoryError(uuid)
		self.held[uuid] = pages
		return pages

	def _dump(self):
		return json.dumps(self.held)

	# ============ Plans ============

	def _plan(self, wanted):
		"""Those of `wanted` (uuid, tokens) that fit."""
		left = self._free()
		plan = []
		for uuid, tokens in wanted:
			pages = self._pages(tokens)
			if pages <= left:
				plan.append(uuid)
				left -= pages
		self.log.append((len(plan), self.share))
		return plan

	@property
	def share(self):
		return floor(100 * self._free() / LIMIT)

	def _waves(self, wanted):
		while wanted:
			now = self._plan(wanted) or [wanted[0][0]]
			yield now
			wanted = [(uuid, tokens) for uuid, tokens in wanted if uuid not in now]

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
