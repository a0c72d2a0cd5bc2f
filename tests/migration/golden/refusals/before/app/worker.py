"""One method for each reason to refuse; the expected codes are in expected.txt."""

import functools
import inspect
import sys
import time
import warnings

from app.settings import *

COUNT = 0
if sys.argv[1:]:
	MAYBE = 1
	import json as guarded


def count_up():
	global COUNT
	COUNT += 1


class Base:
	def close(self):
		return "base"


class Worker(Base):
	SIZE = 8

	def __init__(self):
		self.name = "w"
		self.__secret = 1

	# ============ Cache ============

	def close(self):
		return super().close()

	def own_class(self):
		return [__class__ for _ in self.name]

	def mangled(self):
		return self.__secret

	def mangled_name(self):
		__local = self.name
		return __local

	def counts(self):
		global COUNT
		COUNT += 1

	def hands_over(self, others):
		others.append(self)

	def returns_itself(self):
		self.name = "x"
		return self

	def shows_itself(self):
		return f"{self}"

	def computed(self, key):
		return getattr(self, key, None)

	def writes_computed(self, key):
		setattr(self, "_" + key, 1)

	@property
	def size(self):
		return self.SIZE

	@functools.lru_cache(maxsize=None)
	def cached(self):
		return self.name

	@classmethod
	def make(cls):
		return 1

	def twice(self):
		return 1

	def twice(self):
		return 2

	if sys.platform:
		def conditional(self):
			return self.name

	def __len__(self):
		return len(self.name)

	def rebinds(self):
		for self in [self.name]:
			pass

	def nothing(*args):
		return args

	def frames(self):
		return inspect.currentframe().f_back, sys._getframe(1)

	def spaces(self):
		return locals(), self.name

	def module(self):
		return __name__, self.name

	def warns(self):
		warnings.warn(self.name, stacklevel=2)

	def prints(self):
		return f"{self.name=}"

	def prints_nicely(self):
		return f"{time.time = } {self.name!r}"

	def class_default(self, size=SIZE):
		return size

	def worker_default(self, count=count_up):
		return count

	def own_default(self, cache={}):
		return cache

	def reads_rebound(self):
		count_up()
		return COUNT

	def maybe(self):
		return MAYBE if sys.argv[1:] else self.name

	def relative(self):
		from .settings import PAGES
		return PAGES

	def starred(self):
		return PAGES

	async def streams(self):
		yield self.name

	def hides(self, CacheManager):
		return CacheManager

	def _worker(self):
		return self.name

	def wrapped(self):
		return self.name

	wrapped = staticmethod(wrapped)

	def names(self):
		return vars(), dir(), vars(int), self.name

	def uses_guarded(self):
		return guarded.dumps(self.name) if sys.argv[1:] else ""

	def kept(self):
		return super().close()
