"""State in several concerns, calls in every direction."""

from __future__ import annotations

from typing import Dict, List, Optional


class Pool:
	def __init__(self, pages: int) -> None:
		self.pages = pages

	def free(self) -> int:
		return self.pages


class Worker:
	PAGE_SIZE = 64

	def __init__(self, rank: int, limit: Optional[int] = None) -> None:
		self.rank = rank
		self.limit = limit
		self.pool: Optional[Pool] = None
		self.table: Dict[str, List[int]] = {}
		self.grown = 0
		self.name = "worker"

	# ============ Cache ============

	def ensure(self, pages: int) -> Pool:
		"""A pool of at least `pages` pages; another object after it grew."""
		if self.pool is None or self.pool.free() < pages:
			self.pool = Pool(self.round_up(pages))
			self.grown += 1
			self.report("grown")
		return self.pool

	def round_up(self, pages: int) -> int:
		size = self.PAGE_SIZE // 16
		return (pages + size - 1) // size * size

	def reserve(self, key: str, pages: int) -> List[int]:
		pool = self.ensure(pages)
		# The pool may be a new object by now: read it again.
		assert pool is self.pool
		self.table[key], (self.last, *self.rest) = list(range(pages)), (key, pages)
		return sorted(self.table[key], key=self.rank_of)

	def rank_of(self, page: int) -> int:
		return -page if self.rank else page

	# ============ Reports ============

	def report(self, what: str) -> str:
		self.name = f"{self.name}:{what}:{self.round_up(1)}"
		return self.name
