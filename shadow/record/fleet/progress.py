"""The progress of a replay of many records: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from reports.text import shorten, visible
from shadow.record.fleet.total import Total


@contextmanager
def progress(records: int) -> Iterator[Callable[[Total], None]]:
    """Records and plans done, plans a second since the start, and the first divergence once there is one."""
    console = Console(stderr=True)
    columns = (BarColumn(bar_width=10), MofNCompleteColumn(), TimeElapsedColumn())
    text = TextColumn("{task.description}", markup=False)
    started = time.monotonic()
    with Progress(*columns, text, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=records)

        def show(total: Total) -> None:
            rate = total.plans / max(time.monotonic() - started, 1e-9)
            first = f", first: {visible(shorten(total.first, 60))}" if total.first else ""
            said = f"{total.plans:,} plans, {rate:,.0f} a second{first}"
            bar.update(task, completed=total.done, description=said)

        yield show
