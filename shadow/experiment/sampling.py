"""Which calls are compared: a fixed share of the sequences, fewer when comparing costs more than it may."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any

_BURST = 0.1  # seconds that may be spent before the first control has run
_key: ContextVar[str | None] = ContextVar("shadow_key", default=None)


@contextlib.contextmanager
def about(key: str) -> Iterator[None]:
    """Gated calls made inside belong to this sequence (or other unit that sampling sticks to)."""
    token = _key.set(key)
    try:
        yield
    finally:
        _key.reset(token)


def current_key() -> str | None:
    """The innermost `about`."""
    return _key.get()


def position(key: str) -> float:
    """Where a key lies between 0 and 1: always the same place, in every process."""
    return (
        int.from_bytes(blake2b(key.encode("utf-8", "surrogateescape"), digest_size=7).digest(), "big") / 2**56
    )


class Sampler:
    """Compares the keys that lie below a threshold.

    Args:
        rate: the threshold while there is no lack of time, 0 to 1.
        budget: time for comparing as a fraction of the control's time; None: no limit. When it is used up, nothing
            is compared until it is not, and the threshold falls, so that whole sequences are left out and not
            single steps of each; with time to spare it rises, and they come back in the reverse order.
    """

    def __init__(self, rate: float, budget: float | None) -> None:
        self.rate, self.budget = rate, budget
        self.control_seconds = 0.0
        self.overhead_seconds = 0.0
        self._kept = 1.0
        self._lock = threading.Lock()

    def why_not(self, place: float, rate: float | None = None) -> str | None:
        """Why a call at this place is not compared: "sampling", "budget" or None. `rate`: instead of the sampler's."""
        rate = self.rate if rate is None else rate
        if place >= rate:
            return "sampling"
        if self.budget is not None and (place >= rate * self._kept or self._over() > _BURST):
            return "budget"
        return None

    def _over(self) -> float:
        return self.overhead_seconds - (self.budget or 0.0) * self.control_seconds

    def spent(self, control: float, overhead: float) -> None:
        """Seconds that one call took: the control itself, and what comparing added."""
        with self._lock:
            self.control_seconds += control
            self.overhead_seconds += overhead
            if self.budget is None:
                return
            if self._over() > 0:
                if overhead:
                    self._kept = max(self._kept * 0.7, 1e-4)
            elif self.overhead_seconds < 0.5 * self.budget * self.control_seconds:
                self._kept = min(self._kept * 1.02, 1.0)


def place_of(value: Any, fallback: str) -> tuple[float, str]:
    """(place, shown key) of a call: of the one uuid, of the lowest of several, or of `fallback`."""
    key = current_key()
    if isinstance(value, str | int) and not isinstance(value, bool):
        key = str(value)
    elif isinstance(value, list | tuple | set | frozenset) and value:
        keys = [str(item) for item in list(value)[:1000] if isinstance(item, str | int)]
        if keys:
            place, key = min((position(key), key) for key in keys)
            return place, key
    return position(key if key is not None else fallback), key or ""
