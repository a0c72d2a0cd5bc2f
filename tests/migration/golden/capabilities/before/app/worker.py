"""Methods that only some workers have."""


class Worker:
	def __init__(self):
		self.pages = [1, 2]

	# ============ Pages ============

	def close(self):
		if hasattr(self, "drain"):  # a worker with a pool
			self.drain(all=True)
		return not hasattr(self, "drain"), len(self.pages)

	def describe(me):
		kind = ("draining" if hasattr(me, "drain")else "plain")
		return f"{kind}, {'evicts' if hasattr(me, '_evict') else 'keeps'}", [hasattr(me, "_evict") for _ in "ab"]

	# ============ Rest ============

	def rest(self):
		return hasattr(self, "drain"), self.close()
