"""The progress of a run: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from batchgen.requests.types import WorkerProgress

RATE_WINDOW_SECONDS = 10.0
REFRESH_SECONDS = 0.1


class TokenRate:
    """Tokens per second over the last ``RATE_WINDOW_SECONDS``."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def update(self, now: float, tokens: int) -> float:
        self._samples.append((now, tokens))
        while len(self._samples) > 2 and now - self._samples[0][0] > RATE_WINDOW_SECONDS:
            self._samples.popleft()
        then, tokens_then = self._samples[0]
        return (tokens - tokens_then) / (now - then) if now > then else 0.0


def describe(counts: WorkerProgress, rate: float) -> str:
    """Speed, sequences and pages in one short line."""
    held = f", {counts.on_hold} on hold" if counts.on_hold else ""
    host = f", host {counts.host_pages_used}/{counts.host_pages_total}" if counts.host_pages_total else ""
    return (
        f"{rate:.1f} tok/s, {counts.running} running, {counts.queued} queued{held}, "
        f"pages {counts.gpu_pages_used}/{counts.gpu_pages_total}{host}"
    )


class ProgressBar:
    """Context manager; ``update`` is the worker's ``on_progress`` and draws at most ten times a second."""

    def __init__(self, console: Console, *, total: int, enabled: bool) -> None:
        self._total = total
        self._rate = TokenRate()
        self._last_draw = float("-inf")
        self._progress = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=10),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            disable=not enabled,
            transient=True,
        )
        self._task = self._progress.add_task("loading the model", total=total)

    def update(self, counts: WorkerProgress) -> None:
        now = time.monotonic()
        if now - self._last_draw < REFRESH_SECONDS and counts.completed < counts.total:
            return
        self._last_draw = now
        rate = self._rate.update(now, counts.generated_tokens)
        # The worker has neither the lines done before nor the wrong ones: what it still has is missing.
        completed = self._total - (counts.total - counts.completed)
        self._progress.update(self._task, completed=completed, description=describe(counts, rate))

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
