"""What a narrow handle cannot carry goes through the worker itself: one declared rewrite for each habit."""

import functools
import sys
from typing import AsyncIterator, overload

from app.settings import *
from app.parts.cache import CacheManager

COUNT = 0
if sys.argv[1:]:
	MAYBE = 1


def count_up():
	global COUNT
	COUNT += 1
	return COUNT


class Base:
	def close(self):
		return f"base {self.name}"

	@classmethod
	def make(cls, *args):
		return cls(*args)


class Worker(Base):
	SIZE = 8

	def __init__(self, name="w"):
		self.name = name
		self.__secret = 1

	# ============ Cache ============

	def close(self):
		return CacheManager.for_worker(self).close()

	def closes(self):
		return CacheManager.for_worker(self).closes()

	def mangled(self, other):
		return CacheManager.for_worker(self).mangled(other)

	def __hidden(self):
		return CacheManager.for_worker(self)._Worker__hidden()

	def hands_over(self, others):
		return CacheManager.for_worker(self).hands_over(others)

	def shows_itself(self):
		return CacheManager.for_worker(self).shows_itself()

	def computed(self, key):
		return CacheManager.for_worker(self).computed(key)

	@property
	def size(self):
		"""How many; also settable."""
		return CacheManager.for_worker(self).size()

	@size.setter
	def size(self, value):
		return CacheManager.for_worker(self).size_setter(value)

	@functools.lru_cache(maxsize=None)
	def cached(self, *, scale=2):
		return CacheManager.for_worker(self).cached(scale=scale)

	@classmethod
	def make(cls, name="made"):
		return CacheManager.for_worker(cls).make(name)

	if sys.platform:
		def conditional(self):
			return CacheManager.for_worker(self).conditional()

	def __len__(self):
		return CacheManager.for_worker(self).dunder_len()

	def __enter__(self):
		return CacheManager.for_worker(self).dunder_enter()

	def __exit__(self, *exc):
		return CacheManager.for_worker(self).dunder_exit(*exc)

	@overload
	def typed(self, value: int) -> int: ...
	@overload
	def typed(self, value: str) -> str: ...
	def typed(self, value):
		return CacheManager.for_worker(self).typed(value)

	def class_default(self, size=SIZE, *, log=[]):
		return CacheManager.for_worker(self).class_default(size, log=log)

	def calls_defaults(self):
		return CacheManager.for_worker(self).calls_defaults()

	def rebound(self):
		return CacheManager.for_worker(self).rebound()

	def maybe(self):
		return CacheManager.for_worker(self).maybe()

	def relative(self):
		return CacheManager.for_worker(self).relative()

	def starred(self):
		return CacheManager.for_worker(self).starred()

	def streams(self, count) -> AsyncIterator[int]:
		return CacheManager.for_worker(self).streams(count)

	# ============ Rest ============

	def rest(self):
		return self.name
