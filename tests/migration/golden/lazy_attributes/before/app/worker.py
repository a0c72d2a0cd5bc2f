"""Attributes that come and go: hasattr() must keep its meaning."""


class Worker:
	def __init__(self):
		self.model = object()

	# ---- Cache ----

	def counter(self):
		if not hasattr(self, "_counter"):
			self._counter = 0
		self._counter += 1
		return self._counter

	def group(self):
		if hasattr(self, "_group") and self._group:
			return self._group
		self._group = getattr(self, "preferred", None) or "default"
		return self._group

	def has_model(self):
		return hasattr(self, "model"), getattr(self, "model", None) is not None

	def drop(self):
		if hasattr(self, "model"):
			del self.model
		if hasattr(self, "_group"):
			delattr(self, "_group")

	def mark(self, value):
		setattr(self, "marked", value)
		self.seen: list = []
		self.seen.append(getattr(self, "marked"))
		return self.seen
