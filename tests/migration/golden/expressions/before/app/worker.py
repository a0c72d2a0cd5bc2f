"""Chains of attributes and guards that become handles, and those that must not."""


class View:
	def __init__(self, pages):
		self.pages = pages

	def free_pages(self):
		return self.pages

	def take(self, count, *, pin=False):
		self.pages -= count
		return count, pin


class Engine:
	def __init__(self):
		self.view = View(8)


class Rebalancer:
	def __init__(self):
		self.held = []

	def hold(self, *names):
		self.held += names
		return len(self.held)


class Worker:
	def __init__(self):
		self.engine = Engine()
		self.shortcut = self.engine.view
		self.rebalancer = Rebalancer()
		self.limit = None

	def _put_on_hold(self, *names):
		return self.rebalancer.hold(*names)

	# ============ Cache ============

	def free(self):
		return self.engine.view.free_pages()

	def grow(self, pages):
		before = self.engine.view.free_pages()
		self.engine.view = View(pages)  # another object from here on
		self.shortcut = self.engine.view
		return before, self.engine.view.free_pages(), self.shortcut is self.engine.view

	def spend(self, count):
		self.engine.view.pages += 1
		self.engine.view.note = f"{self.engine.view.pages} of {count:{self.engine.view.pages}}"
		took = self.engine.view.take(
			count,
			pin=hasattr(self.engine.view, "note"),
		)
		del self.engine.view.note
		return took, hasattr(self.engine.view, "note"), getattr(self.engine, "view", None) is not None

	def over_lines(self):
		return (
			self.engine
			.view.free_pages()
		)

	def others(self, workers):
		count = lambda self: self.engine.view.pages
		def inner(self=self.engine.view):
			return self.pages
		return [count(worker) for worker in workers], inner(), [w.engine.view.pages for w in workers]

	def lazily(self):
		if not hasattr(self, "_Worker__pool"):
			self.__pool = [1]
		self.__pool.append(2)
		size = len(self.__pool)
		self.__pool = self.__pool + [3]
		total = sum(self.__pool)
		del self.__pool
		return size, total, hasattr(self, "_Worker__pool"), hasattr(self, "engine")

	def hold(this, *names):
		if hasattr(this, "ranks")and names:
			return this._put_on_hold(*names), list(map(this._put_on_hold, names))
		return this._put_on_hold("alone")if hasattr(this, "ranks")else "no ranks", getattr(this, "limit", None)

	def until(self):
		limit = getattr(self, "limit", None)
		return limit, getattr(self, "limit", 0), hasattr(self, "limit"), (self).engine.view.pages

	# ============ Rest ============

	def rest(self):
		return self.free()
