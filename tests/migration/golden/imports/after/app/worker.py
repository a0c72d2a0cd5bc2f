"""Imports of every kind, and names that only this module has."""

import json
import logging
import os as _os
from collections import (
	defaultdict,
)
from typing import TYPE_CHECKING, Dict

from .settings import PAGES
from app.parts.cache import CacheManager

if TYPE_CHECKING:
	from app.shapes import Shape

try:
	import ujson_that_is_not_there as fast
except ImportError:
	fast = None

logger = logging.getLogger(__name__)
DEBUG = _os.environ.get("APP_DEBUG", "0") == "1"


def helper(value):
	return value + 1


class Entry:
	pass


class Worker:
	def __init__(self) -> None:
		self.entries: Dict[str, "Entry"] = {}
		self.width = int(defaultdict(int)["x"])

	# ============ Cache ============

	def configured(self) -> tuple[int, int]:
		return CacheManager.for_worker(self).configured()

	def add(self, key: str, shape: "Shape | None" = None) -> Entry:
		return CacheManager.for_worker(self).add(key, shape)

	def measure(self, side: int) -> int:
		return CacheManager.for_worker(self).measure(side)

	def one_line(self):
		return CacheManager.for_worker(self).one_line()

	def path(self) -> str:
		return CacheManager.for_worker(self).path()

	# ============ Rest ============

	def rest(self) -> bool:
		return DEBUG
