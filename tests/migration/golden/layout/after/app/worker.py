"""Tabs, odd continuation lines, strings that must not move, comments with owners."""
from app.parts.cache import CacheManager
class Worker:
	def __init__(self): self.a = 1; self.text = "t"

	# ==================================
	# Cache
	# ==================================
	# glued to the first method: a ruler ends the block above

	# stands alone and stays

	def strings(self):
		return CacheManager.for_worker(self).strings()


	def tail(self):
		return CacheManager.for_worker(self).tail()

	# between the methods, and free

	def one(self):
		return CacheManager.for_worker(self).one()
	def two(self, *, é=1):
		return CacheManager.for_worker(self).two(é=é)
	x = 5
	def backslash(self):
		return CacheManager.for_worker(self).backslash()

	# after the last method
