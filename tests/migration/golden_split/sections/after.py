"""Sections under comments become helpers that are called after them; names that cross are passed."""


class Worker:
	def __init__(self):
		self.pages = {"a": 3, "b": 1}
		self.log = []

	def step(self, batch, limit=2):
		"""One step."""
		# ---- Collect what is ready ----
		ready = []
		skipped = 0
		for name in batch:
			if name in self.pages:
				ready.append(name)
			else:
				skipped += 1
		self.log.append(("ready", len(ready)))

		needed = self._step_1_count_pages_needed(limit, ready)

		return needed, skipped

	def _step_1_count_pages_needed(self, limit, ready):
		# Count the pages that will be needed, with one
		# spare page for each sequence.
		needed = 0
		for name in ready:
			pages = self.pages[name] + 1
			if pages > limit:
				pages = limit
			needed += pages
		self.log.append(("needed", needed))

		# Free the rest
		freed = {}
		for name in list(self.pages):
			if name not in ready:
				freed[name] = self.pages.pop(name)
		self.log.append(("freed", sorted(freed)))  # names only
		return needed


def exercise():
	worker = Worker()
	return [worker.step(["a", "x"]), worker.step([], limit=0), worker.log, worker.pages]
