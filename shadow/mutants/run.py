"""All mutants, two at a time: trials as they end, and what they say about the detectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from shadow.mutants.registry import CATALOGUE, Fault, Mutant, MutantError, load
from shadow.mutants.trial import Trial, try_mutant

AT_ONCE = 2
"""Pairs of sides that run at the same time; the sides are processes, this process only compares."""


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
    done: dict[str, Trial] = {}
    with ThreadPoolExecutor(at_once) as pool:
        running = [pool.submit(try_mutant, mutant, tree, timeout=timeout) for mutant in mutants]
        try:
            for future in as_completed(running):
                trial = future.result()
                done[trial.mutant.name] = trial
                on_trial(trial)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [done[mutant.name] for mutant in mutants]


@dataclass(frozen=True)
class Detector:
    """`kills`: mutants it alarms on; `earliest`: those that nothing sees sooner; `sole`: that nothing else sees.

    `alone`: with one path only (an invariant).
    """

    name: str
    kills: int
    earliest: int
    sole: int
    alone: int = 0


def detectors(trials: Sequence[Trial]) -> list[Detector]:
    """What each detector is worth on these mutants, the most useful first."""
    kills, earliest, sole, alone = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for trial in trials:
        if trial.mutant.kind is Fault.CONTROL:
            continue
        kills.update(trial.alarms)
        soonest = min(trial.alarms.values(), default=None)
        earliest.update(name for name, step in trial.alarms.items() if step == soonest)
        if len(trial.alarms) == 1:
            sole.update(trial.alarms)
        alone.update(f"invariant:{name}" for name in trial.alone)
    names = sorted({*kills, *alone}, key=lambda name: (-kills[name], name))
    return [Detector(name, kills[name], earliest[name], sole[name], alone[name]) for name in names]
