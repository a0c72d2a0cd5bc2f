"""Cache of Worker: cut out of app/worker.py."""

from __future__ import annotations

import json
import logging
import os.path
import textwrap
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Dict, Protocol

from app import shapes
from app.shapes import area as area_of

if TYPE_CHECKING:
    from app.shapes import Shape
    from app.worker import Entry

logger = logging.getLogger("app.worker")


class WorkerView(Protocol):
    """What the section needs from its worker."""

    @property
    def entries(self) -> Dict[str, Entry]: ...


class CacheManager:
    """Cache of Worker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(self, *, worker: WorkerView) -> None:
        self._worker = worker

    @classmethod
    def for_worker(cls, worker: Any) -> CacheManager:
        """Every handle is the worker itself, seen as the part that the methods may touch."""
        return cls(worker=worker)

    def configured(self) -> tuple[int, int]:
        from app.worker import PAGES
        from app.settings import PAGES as now

        return PAGES, now

    def add(self, key: str, shape: "Shape | None" = None) -> Entry:
        """Uses the module's own names."""
        from app.worker import DEBUG, Entry

        logger.warning("adding %s", key)
        self._worker.entries[key] = Entry()
        if DEBUG:
            logger.debug("%s", json.dumps(list(self._worker.entries)))
        return self._worker.entries[key]

    def measure(self, side: int) -> int:
        from app.worker import fast, helper

        found: OrderedDict[str, int] = OrderedDict(a=area_of(side), b=shapes.area(side))
        return helper(sum(found.values())) + (0 if fast is None else 1)

    def one_line(self): from app.worker import helper; return helper(1)

    def path(self) -> str:
        # os is bound by `import os.path` alone
        return textwrap.dedent(os.path.join(" a", "b"))
