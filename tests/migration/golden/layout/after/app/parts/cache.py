"""Cache of Worker: cut out of app/worker.py."""

from __future__ import annotations

from typing import Any, Protocol


class WorkerView(Protocol):
    """What the section needs from its worker."""

    @property
    def a(self) -> int: ...

    @property
    def text(self) -> str: ...


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

    # two lines
    # that belong to strings()
    def strings(self):
        """Doc with a tab:
			inside
		"""
        sql = """
		select {a}
			  from self.a
		""" + f"""
		{self._worker.a} and {self._worker.text!r:>{self._worker.a + 8}}
		{ self._worker.a
			+ 1 }"""
        joined = ("x"
                 f"{self._worker.text} → é {self._worker.a}" "tail"
    )   
        raw = 'line one \
		line two'


        return sql, joined, raw, self._worker.text

    def tail(self):  # trailing comment
        if self._worker.a:
            # a comment before any statement
            return [self._worker.a,
                    self._worker.text,
    # a comment to the left
                    ]
        # return None
        #     self.a is not code here

    def one(self): return self._worker.a, "self.text"

    def two(self, *, é=1): "doc"; return é + self._worker.a

    def backslash(self):
        return self._worker.a + \
            self._worker.a \
 + 1
