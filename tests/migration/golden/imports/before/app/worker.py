"""Imports of every kind, and names that only this module has."""

import json
import logging
import os.path
import os as _os
import textwrap
from collections import (
	OrderedDict,
	defaultdict,
)
from typing import TYPE_CHECKING, Dict

from . import shapes
from .settings import PAGES
from .shapes import area as area_of

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
		from app.settings import PAGES as now

		return PAGES, now

	def add(self, key: str, shape: "Shape | None" = None) -> Entry:
		"""Uses the module's own names."""
		logger.warning("adding %s", key)
		self.entries[key] = Entry()
		if DEBUG:
			logger.debug("%s", json.dumps(list(self.entries)))
		return self.entries[key]

	def measure(self, side: int) -> int:
		found: OrderedDict[str, int] = OrderedDict(a=area_of(side), b=shapes.area(side))
		return helper(sum(found.values())) + (0 if fast is None else 1)

	def one_line(self): return helper(1)

	def path(self) -> str:
		# os is bound by `import os.path` alone
		return textwrap.dedent(os.path.join(" a", "b"))

	# ============ Rest ============

	def rest(self) -> bool:
		return DEBUG
