"""Tests whose answer is always the same, and tests whose answer is not."""


class Worker:
	def __init__(self):
		self.pool = [1]
		self.size = 2

	# ============ Cache ============

	def always(self):
		if hasattr(self, "pool") and not(hasattr(self, "size")):
			return "never here"
		return len(getattr(self, "pool", None)), getattr(self, "size", 0)  # both are there

	def never(self):
		return (1 if hasattr(self, "gone")else 2), f"{getattr(self, 'gone', 'no')}", f'{getattr(self, "gone", "no")}'

	def depends(self):
		if not hasattr(self, "lazy"):
			self.lazy = self.pool
			return "made"
		return getattr(self, "lazy", None), [hasattr(self, "pool") for self_ in "ab"]

	# ============ Rest ============

	def rest(self):
		return self.always()
