"""What a narrow handle cannot carry goes through the worker itself: one declared rewrite for each habit."""

import functools
import sys
from typing import AsyncIterator, overload

from app.settings import *

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
		return super().close() + "!"

	def closes(self):
		return [super(Worker, self).close() for _ in "ab"]

	def mangled(self, other):
		self.__secret += other.__secret
		return self.__hidden(), self._Worker__secret

	def __hidden(self):
		return self.__secret * 2

	def hands_over(self, others):
		others.append(self)
		return self if others else None

	def shows_itself(self):
		return f"{self is not None}", isinstance(self, Worker), [self for _ in "ab"][0] is self

	def computed(self, key):
		setattr(self, "_" + key, 1)
		return getattr(self, key, None), hasattr(self, "_" + key)

	@property
	def size(self):
		"""How many; also settable."""
		return self.SIZE

	@size.setter  # in bytes
	def size(self, value):
		self.SIZE = value

	@functools.lru_cache(maxsize=None)
	def cached(self, *, scale=2):
		return [self.name] * scale

	@classmethod
	def make(cls, name="made"):
		made = super().make(name)
		return made, cls.SIZE

	if sys.platform:
		def conditional(self):
			return self.name

	def __len__(self):
		return len(self.name)

	def __enter__(self):
		return self

	def __exit__(self, *exc):
		self.name += "."

	@overload
	def typed(self, value: int) -> int: ...
	@overload
	def typed(self, value: str) -> str: ...
	def typed(self, value):
		return value * 2

	def class_default(self, size=SIZE, *, log=[]):
		log.append(size)
		return log

	def calls_defaults(self):
		return self.class_default(), self.class_default(3), self.cached(scale=1), self.size

	def rebound(self):
		before = COUNT
		count_up()
		return COUNT - before, [COUNT for _ in "a"][0] - COUNT

	def maybe(self):
		return MAYBE if sys.argv[1:] else self.name

	def relative(self):
		from .settings import PAGES as pages
		from . import settings
		return pages == settings.PAGES

	def starred(self):
		return PAGES

	async def streams(self, count) -> AsyncIterator[int]:
		for index in range(count):
			got = yield index
			if got:
				self.name += str(got)

	# ============ Rest ============

	def rest(self):
		return self.name
