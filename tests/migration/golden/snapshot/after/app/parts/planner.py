"""Planning of Worker: cut out of app/worker.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from app.settings import Settings


class PlanState(Protocol):
    """What changes while a batch runs."""

    tokens: int

    @property
    def args(self) -> Settings: ...

    def left(self) -> Any: ...

    def plan(self, count: Any) -> Any: ...


@dataclass(frozen=True)
class PlanConfig:
    """Configuration of a Worker, as it is when a handler is made."""

    max_tokens: Any
    page_size: Any
    PAGE_LIMIT: int
    device: Any


class Planner:
    """Planning of Worker, without state of its own.

    Attributes stay on the worker and are looked up there at every use, so that rebinding,
    deletion and hasattr() mean what they meant.
    """

    def __init__(self, *, state: PlanState, config: PlanConfig) -> None:
        self._state = state
        self._config = config

    @classmethod
    def for_worker(cls, worker: Any) -> Planner:
        """Handles on a worker: the worker itself, or what the recipe says is read from it."""
        return cls(
            state=worker,
            config=PlanConfig(
                max_tokens=worker.args.max_tokens,
                page_size=worker.args.kv.page_size,
                PAGE_LIMIT=worker.PAGE_LIMIT,
                device=worker.device,
            ),
        )

    def plan(self, count):
        pages = -(-count // self._config.page_size)
        self._state.tokens += count
        return min(pages, self._config.PAGE_LIMIT), self._state.tokens <= self._config.max_tokens, f"{self._config.device}:{self._config.page_size}"

    def several(self, counts):
        return [self._state.plan(count) for count in counts if count < self._config.max_tokens], self._state.left()

    def left(self):
        def inner():
            return self._config.max_tokens - self._state.tokens

        return inner(), self._state.args.kv
