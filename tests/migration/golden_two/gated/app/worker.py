"""One class, two slices: the plans of one ask the pages of the other."""

import json
from math import ceil, floor
from app.parts.pages import PageTable
from app.parts.plans import Planner
from shadow.experiment import Gate, Isolated, Pure, Skip

LIMIT = 8


_PAGES_GATE = Gate(
	"APP_PAGES",
	PageTable,
	{
		"_pages": Isolated(),
		"_free": Pure(),
		"_take": Isolated(),
		"_dump": Isolated(),
	},
)


_PLANS_GATE = Gate(
	"APP_PLANS",
	Planner,
	{
		"_plan": Isolated(),
		"share": Isolated(),
		"_waves": Skip("its body runs while the caller works"),
	},
)


# Serves everybody.
class Worker:
	def __init__(self):
		self.held = {}
		self.log = []

	# ============ Pages ============

	def _pages(self, tokens):
		if _PAGES_GATE.on:
			return _PAGES_GATE.run(self, "_pages", tokens)
		return self._legacy__pages(tokens)

	def _legacy__pages(self, tokens):
		return ceil(tokens / 4)

	def _free(self):
		if _PAGES_GATE.on:
			return _PAGES_GATE.run(self, "_free")
		return self._legacy__free()

	def _legacy__free(self):
		return LIMIT - sum(self.held.values())

	def _take(self, uuid, tokens):
		if _PAGES_GATE.on:
			return _PAGES_GATE.run(self, "_take", uuid, tokens)
		return self._legacy__take(uuid, tokens)

	def _legacy__take(self, uuid, tokens):
		pages = self._pages(tokens)
		if pages > self._free():
			raise MemoryError(uuid)
		self.held[uuid] = pages
		return pages

	def _dump(self):
		if _PAGES_GATE.on:
			return _PAGES_GATE.run(self, "_dump")
		return self._legacy__dump()

	def _legacy__dump(self):
		return json.dumps(self.held)

	# ============ Plans ============

	def _plan(self, wanted):
		if _PLANS_GATE.on:
			return _PLANS_GATE.run(self, "_plan", wanted)
		return self._legacy__plan(wanted)

	def _legacy__plan(self, wanted):
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
		if _PLANS_GATE.on:
			return _PLANS_GATE.run(self, "share")
		return self._legacy_share()

	def _legacy_share(self):
		return floor(100 * self._free() / LIMIT)

	def _waves(self, wanted):
		if _PLANS_GATE.on:
			return (yield from _PLANS_GATE.run(self, "_waves", wanted))
		return (yield from self._legacy__waves(wanted))

	def _legacy__waves(self, wanted):
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
