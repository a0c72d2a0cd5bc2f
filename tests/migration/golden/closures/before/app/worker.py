"""Functions, lambdas and classes inside methods; try/finally that restores."""


class Sink:
	callback = None


class Worker:
	def __init__(self):
		self.items = [3, 1, 2]
		self.table = []
		self.weights = {1: 9, 2: 8, 3: 7}

	# ============ Cache ============

	def ordered(self):
		return sorted(self.items, key=lambda item: self.weights[item])

	def install(self):
		seen = []

		def callback(item, scale=self.items[0]):
			nonlocal seen
			seen = [*seen, item * scale, *self.table]
			return [self.weight(i) for i in seen if self.weights]

		Sink.callback = callback
		return callback

	def weight(self, item):
		return self.weights.get(item, 0)

	def own_self(self):
		class Probe:
			limit = self.items[0]

			def __init__(self, value):
				super().__init__()
				self.value = value
				self.__hidden = value

			def get(self):
				return self.value, self.__hidden, __class__.__name__

		def inner(self, other=self.items[1]):
			return self + other

		return Probe(1).get(), Probe.limit, inner(1), (lambda self: self * 2)(4)

	def restore(self, bad):
		saved, self.table = self.table, ["temporary"]
		try:
			if bad:
				raise ValueError(self.table)
		except ValueError as error:
			return str(error)
		else:
			return "fine"
		finally:
			self.table = saved
