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
	def own_class(self):
		return [__class__ for _ in self.name]

	def mangled_name(self):
		__local = self.name
		return __local

	def counts(self):
		global COUNT
		COUNT += 1

	def twice(self):
		return 1

	def twice(self):
		return 2

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

	def inner_super(self):
		return [super().close() for _ in self.name]

	@numba.njit
	def compiled(self):
		return self.name

	def __del__(self):
		self.name = None

	def wide_default(self, cache={
		"a": 1,
	}):
		return cache

	def shadows_rebound(self):
		return [COUNT for COUNT in self.name], count_up(), (lambda: COUNT)()

	def catches_missing(self):
		try:
			return MAYBE
		except NameError:
			return self.name

	def spread_import(self):
		from . \
			import settings
		return settings
