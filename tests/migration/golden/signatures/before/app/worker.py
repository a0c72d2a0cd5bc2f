"""Every kind of definition keeps its exact signature."""

from contextlib import contextmanager
from typing import AsyncIterator, Iterator

LIMIT = 3


class Worker:
	def __init__(self) -> None:
		self.log: list[object] = []

	# ===== Cache =====

	def plain(self, a, b=2, *rest, c, d: int = 4, **named):
		self.log.append((a, b, rest, c, d, named))
		return self.log[-1]

	def positional(self, a: int, /, b: int = 1) -> int:
		return a - b

	def long_signature(
		self,
		first: dict[str, list[int]],  # by key
		# the second has a default
		second: "tuple[int, ...]" = (1, 2),
		*,
		a_keyword_with_a_long_name: bool = False,
		another_keyword_with_a_long_name: bool = True,
	) -> "list[int]":  # sums
		return [sum(first[k]) + sum(second) for k in first if a_keyword_with_a_long_name or another_keyword_with_a_long_name]

	async def later(self, value: int, *, scale: int = 2) -> int:
		self.log.append(value)
		return value * scale

	def each(self, count: int) -> Iterator[int]:
		for index in range(count):
			got = yield index
			self.log.append(got)
		return count

	@contextmanager
	def muted(self, why: str) -> Iterator[str]:
		"""Inside, nothing is logged."""
		log, self.log = self.log, []
		try:
			yield why
		except KeyError:
			log.append("swallowed")
		finally:
			self.log = log

	@staticmethod
	def pairs(values, width=2):
		return [values[i : i + width] for i in range(0, len(values), width)]

	def uses_pairs(this, values):
		return this.pairs(values, width=LIMIT), Worker.pairs(values)

	# ===== Rest =====

	async def stream(self) -> AsyncIterator[int]:
		yield await self.later(1)
