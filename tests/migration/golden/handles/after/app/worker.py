"""State in several concerns, calls in every direction."""

from __future__ import annotations

from typing import Dict, List, Optional
from app.parts.cache import CacheManager


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
		return CacheManager.for_worker(self).ensure(pages)

	def round_up(self, pages: int) -> int:
		return CacheManager.for_worker(self).round_up(pages)

	def reserve(self, key: str, pages: int) -> List[int]:
		return CacheManager.for_worker(self).reserve(key, pages)

	def rank_of(self, page: int) -> int:
		return CacheManager.for_worker(self).rank_of(page)

	# ============ Reports ============

	def report(self, what: str) -> str:
		self.name = f"{self.name}:{what}:{self.round_up(1)}"
		return self.name
