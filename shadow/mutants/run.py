"""All mutants, two at a time: trials as they end."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from pathlib import Path

from shadow.mutants.registry import CATALOGUE, Mutant, MutantError, Plant, load
from shadow.mutants.trial import Bench, Trial

AT_ONCE = 2
"""Mutants that are tried at the same time, each in a process that compares and has its side beside it."""


def collect(files: Sequence[str], only: Sequence[str] = (), *, catalogue: bool = True) -> list[Mutant]:
    """The mutants to run, in the order of their registration. MutantError for a file or name that is none."""
    found: dict[str, Mutant] = load(CATALOGUE) if catalogue else {}
    for file in files:
        found = {**found, **load(str(Path(file).resolve()) if file.endswith(".py") else file)}
    unknown = [name for name in only if name not in found]
    if unknown:
        raise MutantError(f"there is no mutant {', '.join(unknown)}; `shadow mutants --list` names them")
    return [mutant for name, mutant in found.items() if not only or name in only]


def try_all(
    mutants: Sequence[Mutant],
    tree: Path,
    *,
    on_trial: Callable[[Trial], None] = lambda trial: None,
    at_once: int = AT_ONCE,
    timeout: float = 60.0,
) -> list[Trial]:
    """Trials in the order of `mutants`; `on_trial` is told each as it ends."""
    by_name = {mutant.name: mutant for mutant in mutants}
    done: dict[str, Trial] = {}
    pool = ProcessPoolExecutor(
        at_once, multiprocessing.get_context("spawn"), initializer=_ready, initargs=(tree, timeout)
    )
    try:
        # Those that share a control go to the same process as far as can be: they lie together.
        running = [pool.submit(_try, mutant.source, mutant.name) for mutant in sorted(mutants, key=_alike)]
        for future in as_completed(running):
            name, trial = future.result()
            done[name] = replace(trial, mutant=by_name[name])
            on_trial(done[name])
    finally:
        pool.shutdown(cancel_futures=True)
    return [done[mutant.name] for mutant in mutants]


def _alike(mutant: Mutant) -> tuple[str, str]:
    return mutant.workload, repr(sorted(mutant.options.items()))


_bench: Bench | None = None  # that of a process of the pool


def _ready(tree: Path, timeout: float) -> None:
    global _bench
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the starting process's to handle
    _bench = Bench(tree, timeout)


def _try(source: str, name: str) -> tuple[str, Trial]:
    """In a process of the pool. A mutant's function may come from a file: it cannot be sent back."""
    assert _bench is not None
    mutant = loaded(source)[name]
    return name, replace(_bench.try_mutant(mutant), mutant=replace(mutant, plant=_elsewhere))


def _elsewhere(plant: Plant) -> AbstractContextManager[None]:
    raise NotImplementedError


@cache
def loaded(source: str) -> dict[str, Mutant]:
    """The mutants of a module or file, loaded once in this process."""
    return load(CATALOGUE if source.startswith(CATALOGUE) else source)
