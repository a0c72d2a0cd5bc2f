"""Methods that only some workers have."""
from app.parts.pages import PagesManager


class Worker:
	def __init__(self):
		self.pages = [1, 2]

	# ============ Pages ============

	def close(self):
		return PagesManager.for_worker(self).close()

	def describe(me):
		return PagesManager.for_worker(me).describe()

	# ============ Rest ============

	def rest(self):
		return hasattr(self, "drain"), self.close()
