"""A/A runs of one pairing class: the same tree on both sides, other prompts in each run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shadow.messages import Setup
from shadow.noise.bound import Bound, Class, StepScore, calibrate
from shadow.noise.classes import observed, rules, varied
from shadow.noise.meter import Meter
from shadow.observation import Kind
from shadow.pair import compare_sides

Run = Mapping[Kind, list[StepScore]]


@dataclass(frozen=True)
class NotMeasured:
    """The class has no bounds, because its sides could not be run or aligned. `harness`: no fault of the class."""

    pairing: Class
    reason: str
    harness: bool = False


def measure_class(
    control: Setup,
    pairing: Class,
    runs: int,
    folder: Path,
    *,
    margin: float,
    timeout: float,
    on_step: Callable[[int, int], None] = lambda run, step: None,
) -> tuple[Bound, ...] | NotMeasured:
    """The bounds of every kind that all runs showed; `folder` takes the request files of the runs.

    Run i has the prompts of the files with their first i words at the end: a pair of sides that is
    deterministic would show the same scores in every repetition of one and the same run.
    """
    found: list[Run] = []
    for number in range(runs):
        batches = tuple(str(_variant(Path(path), number, folder)) for path in control.batches)
        setup = observed(replace(control, batches=batches), pairing)
        meter = Meter()
        tally, outcome = compare_sides(
            setup,
            varied(setup, pairing, number),
            timeout=timeout,
            pairing=rules(pairing),
            on_step=lambda step, _differing, run=number: on_step(run, step),  # type: ignore[misc]
            review=meter,
        )
        if outcome.trouble is not None:
            return NotMeasured(pairing, outcome.trouble.message, harness=True)
        if not outcome.stopped and None in outcome.done:
            parted = tally.first_of_kind.get(Kind.SCHEDULE) or tally.first_of_kind.get(Kind.OUTCOME)
            where = f" at step {parted.step}: {parted.legacy} against {parted.candidate}" if parted else ""
            return NotMeasured(pairing, f"the sides part{where}")
        found.append(dict(meter.steps))
    kinds = [kind for kind in Kind if all(run.get(kind) for run in found)]
    return tuple(calibrate(pairing, kind.value, [run[kind] for run in found], margin) for kind in kinds)


def _variant(requests: Path, number: int, folder: Path) -> Path:
    """The requests with the first `number` words (or tokens) of each prompt moved to its end."""
    target = folder / f"{number}-{requests.name}"
    lines = [_turned(line, number) for line in requests.read_text(encoding="utf-8").splitlines()]
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return target


def _turned(line: str, number: int) -> str:
    try:
        request: Any = json.loads(line)
        body = request["body"]
        if "messages" in body:
            body["messages"][-1]["content"] = _rotated(body["messages"][-1]["content"], number)
        else:
            body["prompt"] = _rotated(body["prompt"], number)
    except (ValueError, LookupError, TypeError):
        return line  # the engine's parser says what is wrong with it
    return json.dumps(request)


def _rotated(prompt: Any, number: int) -> Any:
    if isinstance(prompt, str):
        words = prompt.split(" ")
        at = number % len(words)
        return " ".join(words[at:] + words[:at])
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        at = number % len(prompt)
        return prompt[at:] + prompt[:at]
    return prompt
