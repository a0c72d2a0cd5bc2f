"""A control whose bits may differ: judged by bounds that runs of the same pair on other prompts gave."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from shadow.messages import Setup
from shadow.mutants.detect import Alarms
from shadow.noise.bound import Class, calibrate
from shadow.noise.classes import observed, rules
from shadow.noise.conditions import conditions_of
from shadow.noise.judging import Judge
from shadow.noise.meter import Meter
from shadow.noise.store import NoiseFloor
from shadow.observation import Kind
from shadow.pair import compare_sides

RUNS, MARGIN = 2, 4.0


def measured(pairing: Class, control: Setup, candidate: Setup, timeout: float) -> NoiseFloor:
    """Bounds of this pair of sides; `control` and `candidate` name the request files to measure on."""
    steps = []
    for number in range(RUNS):
        sides = [observed(_turned(setup, number + 1), pairing) for setup in (control, candidate)]
        meter = Meter()
        compare_sides(*sides, timeout=timeout, pairing=rules(pairing), review=meter)
        steps.append(meter.steps)
    kinds = [kind for kind in Kind if all(run.get(kind) for run in steps)]
    bounds = [calibrate(pairing, kind.value, [run[kind] for run in steps], MARGIN) for kind in kinds]
    return NoiseFloor(conditions_of(control), tuple(bounds))


def alarms_above_noise(pairing: Class, control: Setup, candidate: Setup, timeout: float) -> Alarms:
    """What the pair shows on its own prompts beyond those bounds."""
    judge = Judge(measured(pairing, control, candidate, timeout), pairing)
    sides = [observed(setup, pairing) for setup in (control, candidate)]
    tally, outcome = compare_sides(*sides, timeout=timeout, pairing=rules(pairing), review=judge)
    alarms = Alarms(fired=tally.fired)
    for mismatch in tally.kept:
        alarms.find(mismatch)
    if outcome.trouble is not None:
        raise OSError(outcome.trouble.message)
    return alarms


def _turned(setup: Setup, by: int) -> Setup:
    """The same requests with their prompts turned by so many characters."""
    return replace(setup, batches=tuple(str(_turned_file(Path(path), by)) for path in setup.batches))


def _turned_file(path: Path, by: int) -> Path:
    target = path.with_name(f"{path.stem}-turned-{by}.jsonl")
    requests = [json.loads(line) for line in path.read_text().splitlines()]
    for request in requests:
        prompt = request["body"]["prompt"]
        request["body"]["prompt"] = prompt[by:] + prompt[:by]
    target.write_text("".join(f"{json.dumps(request)}\n" for request in requests))
    return target
