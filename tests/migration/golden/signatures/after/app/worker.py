"""Every kind of definition keeps its exact signature."""

from contextlib import contextmanager
from typing import AsyncIterator, Iterator
from app.parts.cache import CacheManager

LIMIT = 3


class Worker:
	def __init__(self) -> None:
		self.log: list[object] = []

	# ===== Cache =====

	def plain(self, a, b=2, *rest, c, d: int = 4, **named):
		return CacheManager.for_worker(self).plain(a, b, *rest, c=c, d=d, **named)

	def positional(self, a: int, /, b: int = 1) -> int:
		return CacheManager.for_worker(self).positional(a, b)

	def long_signature(
		self,
		first: dict[str, list[int]],
		second: "tuple[int, ...]" = (1, 2),
		*,
		a_keyword_with_a_long_name: bool = False,
		another_keyword_with_a_long_name: bool = True,
	) -> "list[int]":
		return CacheManager.for_worker(self).long_signature(
			first,
			second,
			a_keyword_with_a_long_name=a_keyword_with_a_long_name,
			another_keyword_with_a_long_name=another_keyword_with_a_long_name,
		)

	async def later(self, value: int, *, scale: int = 2) -> int:
		return await CacheManager.for_worker(self).later(value, scale=scale)

	def each(self, count: int) -> Iterator[int]:
		return (yield from CacheManager.for_worker(self).each(count))

	@contextmanager
	def muted(self, why: str) -> Iterator[str]:
		with CacheManager.for_worker(self).muted(why) as value:
			yield value

	@staticmethod
	def pairs(values, width=2):
		return CacheManager.pairs(values, width)

	def uses_pairs(this, values):
		return CacheManager.for_worker(this).uses_pairs(values)

	# ===== Rest =====

	async def stream(self) -> AsyncIterator[int]:
		yield await self.later(1)
