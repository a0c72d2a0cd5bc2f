class Base:
	def __init__(self, size):
		self.size = size


class Pool(Base):
	# The pool opens with what it is given.
	def __init__(this, size, name="p"):
		super().__init__(size)
		this.name = name; this.pages = list(
			range(size)
		)
		this.held = None
		# Whoever is told may ask at once.
		this.ready = False
		this.tell("made")
		this.ready = True

	def tell(self, what):
		self.said = [*getattr(self, "said", ()), what, self.held is not None]

	def hold(self, page):
		if self.held is None:
			self.held = {}
		self.held[page] = self.pages[page]

	async def drain(self):
		return sorted(self.held) if self.held is not None else []

	def count(it):
		inner = lambda: len(it.held) if it.held is not None else -1  # it, by closure
		return f"{inner()} of {len(it.pages)}", it.held is None and it.ready


def exercise():
	import asyncio

	shown = []
	for order in ("hc", "ch", "dhd", "chcdt"):
		pool = Pool(3)
		for letter in order:
			if letter == "h":
				pool.hold(len(order) % 3)
			elif letter == "c":
				shown.append(pool.count())
			elif letter == "t":
				pool.tell("t")
			else:
				shown.append(asyncio.run(pool.drain()))
		shown.append(pool.said)
	return shown
