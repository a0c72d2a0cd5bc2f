"""What has to be done before what: slices, and the small changes that they wait for, leaves first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from migration.errors import CATALOGUE, Refusal
from migration.seams.plan import ClassPlan
from migration.seams.trial import Trial


@dataclass(frozen=True)
class Step:
    """`needs` are the keys of steps that come first. A "slice" can be cut now when it needs nothing; "fix"
    and "split" are changes to the class; "goal" is the class taken apart."""

    key: str
    kind: Literal["goal", "slice", "fix", "split"]
    text: str
    needs: tuple[str, ...]


def steps(plan: ClassPlan) -> tuple[Step, ...]:
    """Every step after those that it needs, the goal last."""
    found: dict[str, Step] = {}
    placed: list[int] = []
    for index in plan.order:
        trial = plan.trials[index]
        before = [*_fixes(trial), *_splits(plan, trial)]
        for step in before:
            found.setdefault(step.key, step)
        needs = [step.key for step in before]
        needs += [_key(plan.trials[i]) for i in placed if _comes_first(plan, index, i)]
        cut = trial.candidate.cluster
        count = f"{len(cut.names)} method{'' if len(cut.names) == 1 else 's'}, {cut.lines} lines"
        text = f"{index + plan.first} {trial.candidate.name}: {count}{_left(trial)}"
        found[_key(trial)] = Step(_key(trial), "slice", text, tuple(needs))
        placed.append(index)
    whole = [one for one in plan.trials if one.candidate.origin in ("section", "methods")]
    slices = tuple(map(_key, whole or [plan.trials[index] for index in plan.order]))
    name = plan.graph.shape.name
    text = f"{whole[0].candidate.name} taken out of {name}" if whole else f"{name} taken apart"
    goal = Step("goal", "goal", text, slices)
    return (*found.values(), goal)


def _key(trial: Trial) -> str:
    return f"slice {trial.candidate.name}"


def _left(trial: Trial) -> str:
    if trial.verdict == "part":
        stay = len(trial.refused)
        return f", {stay} of them {'stays' if stay == 1 else 'stay'} until fixed"
    return "" if trial.verdict == "yes" else ", not before it is fixed"


def _comes_first(plan: ClassPlan, one: int, other: int) -> bool:
    """A slice waits for those that it calls, a whole section for its parts."""
    if plan.trials[one].candidate.origin in ("section", "methods"):
        return plan.trials[other].candidate.origin == "part"
    return plan.calls(one, other) > 0


def _fixes(trial: Trial) -> Iterator[Step]:
    for name, refusals in trial.refused.items():
        yield Step(f"fix {name}", "fix", "; ".join(dict.fromkeys(map(_fix, refusals))), ())
    for refusal in trial.blocking:
        yield Step(f"fix {refusal.code} {refusal.where}", "fix", _fix(refusal), ())


def _fix(refusal: Refusal) -> str:
    where = f"{refusal.where}:{refusal.line}" if refusal.line else refusal.where
    title = CATALOGUE[refusal.code].title
    return f"{refusal.code} {where} {title} ({refusal.message}): {refusal.way_out}"


def _splits(plan: ClassPlan, trial: Trial) -> Iterator[Step]:
    """Methods that are longer than a slice may be."""
    for name in trial.candidate.cluster.names:
        if (found := plan.splits.get(name)) is not None:
            text = (
                f"MG536 {name} has {found.lines} lines, the budget is {plan.wanted.budget}: {found.command}"
            )
            yield Step(f"split {name}", "split", f"{text} ({found.verdict})", ())


def tree_lines(found: Sequence[Step]) -> list[str]:
    """The steps as a tree below the goal; what stands elsewhere already is only named."""
    by_key = {step.key: step for step in found}
    shown: set[str] = set()

    def below(step: Step, indent: str) -> Iterator[str]:
        for index, key in enumerate(step.needs):
            last = index == len(step.needs) - 1
            again = key in shown
            shown.add(key)
            title = by_key[key].text.partition(":")[0] if again else by_key[key].text
            yield f"{indent}{'└─' if last else '├─'} {title}{' (above)' if again else ''}"
            if not again:
                yield from below(by_key[key], indent + ("   " if last else "│  "))

    goal = found[-1]
    return [goal.text, *below(goal, "")]


def mermaid(found: Sequence[Step]) -> str:
    """The steps as a Mermaid flow chart: an arrow leads from a step to what waits for it."""
    names = {step.key: f"s{index}" for index, step in enumerate(found)}
    lines = ["graph BT"]
    for step in found:
        left, right = ("([", "])") if step.kind == "goal" else ("[", "]")
        lines.append(f'    {names[step.key]}{left}"{_quoted(step.text)}"{right}')
    lines += [f"    {names[key]} --> {names[step.key]}" for step in found for key in step.needs]
    fixes = [names[step.key] for step in found if step.kind in ("fix", "split")]
    if fixes:
        lines += ["    classDef first stroke-dasharray: 4", f"    class {','.join(fixes)} first"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Characters that end a label or a line in Mermaid, written as entities."""
    return re.sub(r"[\"#<>\n\r]", lambda match: f"#{ord(match[0])};", text)
